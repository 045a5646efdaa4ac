"""Fixed sines and cosines that mark positions."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import positions


@keras.saving.register_keras_serializable(package="keras_attention")
class SinusoidalPositionEncoding(keras.layers.Layer):
    """Adds sines and cosines of the position to a sequence.

    Returns the sum, not the table alone, which is
    `keras_attention.ops.sinusoidal_positions`. The sum is made in float32 and
    cast last, so that positions stay apart in half precision.

    Args:
        max_wavelength: Longest wavelength, in units of `2 * pi` positions.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor `(..., T, D)`, such as `(B, T, D)`.
        start_index: Position of the first step, for decoding step by step:
            an integer or a scalar tensor, or a tensor `(B,)` with one for
            each sequence of inputs `(B, T, D)`.

    Returns:
        A tensor shaped like the inputs, in the compute dtype. It carries
        the mask of the inputs.

    Raises:
        ValueError: `max_wavelength` is not a positive number.

    Example:

    >>> layer = SinusoidalPositionEncoding()
    >>> layer(keras.ops.zeros((1, 1, 4))).numpy().tolist()
    [[[0.0, 1.0, 0.0, 1.0]]]

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """

    def __init__(self, max_wavelength=10000, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.max_wavelength = arguments.positive_number(
            "max_wavelength", max_wavelength
        )
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def call(self, inputs, start_index=0):
        """Adds the rows from `start_index` on."""
        wide = keras.backend.result_type(inputs.dtype, "float32")
        table = positions.sinusoidal_positions(
            ops.shape(inputs)[-2],
            inputs.shape[-1],
            max_wavelength=self.max_wavelength,
            start_index=start_index,
            dtype=wide,
        )
        return ops.cast(ops.cast(inputs, wide) + table, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        return tuple(input_shape)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        return {**super().get_config(), "max_wavelength": self.max_wavelength}

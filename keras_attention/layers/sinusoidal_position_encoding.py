"""Fixed sines and cosines that mark positions."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import positions as position_ops
from keras_attention.ops.inputs import check_inputs


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
        positions: Integer positions `(T,)` or `(B, T)`, in any order, which
            then replace those that are counted from `start_index`.

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

    def call(self, inputs, start_index=0, positions=None):
        """Adds the rows from `start_index` on, or those of `positions`."""
        self._check(inputs, positions)
        wide = keras.backend.result_type(inputs.dtype, "float32")
        options = {"max_wavelength": self.max_wavelength, "dtype": wide}
        length, width = ops.shape(inputs)[-2], inputs.shape[-1]
        if positions is None:
            table = position_ops.sinusoidal_positions(
                length, width, start_index=start_index, **options
            )
        else:
            table = position_ops.sinusoids_of(positions, width, **options)
            table = position_ops.by_axis(table, len(inputs.shape))
        return ops.cast(ops.cast(inputs, wide) + table, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        return tuple(input_shape)

    def compute_output_spec(self, inputs, start_index=0, positions=None):
        """Returns the symbolic output, after the check that `call` makes."""
        self._check(inputs, positions)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        return {**super().get_config(), "max_wavelength": self.max_wavelength}

    def _check(self, inputs, positions):
        check_inputs(inputs=inputs)
        position_ops.check(positions, inputs.shape)

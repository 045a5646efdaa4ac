"""A padding mask read from the inputs, as a tensor of the graph."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments
from keras_attention.ops import masks
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class PaddingMask(keras.layers.Layer):
    """Tells which positions are tokens and which are padding.

    Made inside the graph, a mask needs no input of its own: what is served
    masks itself. Hand the result to `padding_mask=` of a block and `mask=` of
    a pooling layer.

    Args:
        pad_id: What stands at padding: an id, or the value of every feature
            of a padded step, which may be NaN.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`.

    Call arguments:
        inputs: Ids `(B, T)`, or features `(B, T, F)`.

    Returns:
        A boolean tensor `(B, T)`, True for tokens, False for padding.

    Raises:
        ValueError: `pad_id` is not a number, or `inputs` has another rank.

    Example:

    >>> mask = PaddingMask()(keras.ops.array([[7, 4, 0]]))
    >>> keras.ops.convert_to_numpy(mask).tolist()
    [[True, True, False]]
    """

    def __init__(self, pad_id=0, **kwargs):
        # In half precision large ids and small features would be rounded.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.pad_id = arguments.number_or_nan("pad_id", pad_id)

    def call(self, inputs):
        """Compares each position with the padding."""
        check_inputs(inputs=inputs)
        self._check_rank(inputs.shape)
        return masks.padding_mask(inputs, self.pad_id)

    def compute_mask(self, inputs, previous_mask=None):
        """Returns None: a mask carries no mask of its own."""
        return None

    def compute_output_shape(self, input_shape):
        """Returns `(B, T)`."""
        self._check_rank(input_shape)
        return tuple(input_shape[:2])

    def compute_output_spec(self, inputs):
        """Returns the symbolic mask, which is boolean."""
        check_inputs(inputs=inputs)
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype="bool")

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        pad_id = arguments.serialize_number(self.pad_id)
        return {**super().get_config(), "pad_id": pad_id}

    def _check_rank(self, shape) -> None:
        if len(shape) not in (2, 3):
            raise ValueError(
                "`inputs` must be ids (B, T) or features (B, T, F). "
                f"Received: inputs.shape={tuple(shape)}"
            )

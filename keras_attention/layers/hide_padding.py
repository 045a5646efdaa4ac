"""Zeros where a sequence is padding, whatever stood there."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import masks
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class HidePadding(keras.layers.Layer):
    """Puts zeros at the steps of a sequence that are padding.

    Stands before layers that compute with padding, such as `Dense`: NaN there
    would reach the gradient of the kernel. Like `keras.layers.Masking` it lets
    a mask travel with its output, and unlike it takes NaN as the value of
    padding.

    Args:
        pad_value: A step whose features all equal this number, NaN included,
            is padding. None to go by the mask alone.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor `(B, T, F)`.
        mask: Boolean `(B, T)`, True for tokens, False for padding, beside
            what `pad_value` says. Defaults to the mask that Keras carries.

    Returns:
        A tensor shaped like the inputs, in the compute dtype. It carries the
        mask.

    Raises:
        TypeError: The mask is neither boolean nor integers.
        ValueError: `pad_value` is no number, or a shape is another.

    Example:

    >>> steps = keras.ops.array([[[1.0], [float("nan")], [2.0]]])
    >>> keras.ops.convert_to_numpy(HidePadding("nan")(steps)).tolist()
    [[[1.0], [0.0], [2.0]]]
    """

    def __init__(self, pad_value=None, **kwargs):
        # In half precision the value of padding would be rounded.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        if pad_value is not None:
            pad_value = arguments.number_or_nan("pad_value", pad_value)
        self.pad_value = pad_value
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def call(self, inputs, mask=None):
        """Selects zeros where there is padding."""
        visible = self._visible(inputs, mask)
        outputs = masks.hide(ops.cast(inputs, self.compute_dtype), visible)
        masks.set_implicit_mask(outputs, visible)
        return outputs

    def compute_mask(self, inputs, previous_mask=None):
        """Returns which steps are no padding, or None for all."""
        return self._visible(inputs, previous_mask)

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        return tuple(input_shape)

    def compute_output_spec(self, inputs, mask=None):
        """Returns the symbolic output, after the checks that `call` makes."""
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        masks.set_implicit_mask(outputs, self._visible(inputs, mask))
        return outputs

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        value = arguments.serialize_number(self.pad_value)
        return {**super().get_config(), "pad_value": value}

    def _visible(self, inputs, mask):
        check_inputs(inputs=inputs)
        if mask is None:
            mask = masks.get_implicit_mask(inputs)
        batch_size, length, _ = inputs.shape
        visible = masks.check_padding(mask, "mask", (batch_size,), length)
        if self.pad_value is None:
            return visible
        return masks.both(visible, masks.padding_mask(inputs, self.pad_value))

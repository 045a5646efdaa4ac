"""One vector from a sequence, padding left out."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import masks
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class SequencePooling(keras.layers.Layer):
    """Pools the positions of a sequence that are not padding.

    What stands at padding is selected away, not multiplied by zero, so that
    NaN there does no harm. A sequence of nothing but padding gives zeros.

    Args:
        mode: "mean", "max", or "first" for the first position that is not
            padding.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor `(B, T, D)`.
        mask: Boolean `(B, T)`, True for tokens. Defaults to the mask that
            Keras carries with `inputs`.

    Returns:
        A tensor `(B, D)` in the compute dtype, which carries no mask.

    Raises:
        TypeError: The mask is neither boolean nor integers.
        ValueError: `mode` is unknown, or a shape is another.

    Example:

    >>> layer = SequencePooling("mean")
    >>> steps = ops.array([[[1.0], [3.0], [9.0]]])
    >>> ops.convert_to_numpy(layer(steps, mask=[[1, 1, 0]])).tolist()
    [[2.0]]
    """

    def __init__(self, mode="mean", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.mode = arguments.one_of("mode", mode, tuple(_POOL))

    def call(self, inputs, mask=None):
        """Pools over time."""
        check_inputs(inputs=inputs)
        visible = _check(inputs.shape, mask)
        inputs = ops.cast(inputs, self.compute_dtype)
        visible = ops.broadcast_to(
            True if visible is None else visible, ops.shape(inputs)[:2]
        )
        pooled = _POOL[self.mode](masks.hide(inputs, visible), visible)
        return ops.cast(pooled, inputs.dtype)

    def compute_mask(self, inputs, mask=None):
        """Returns None: no time is left to mask."""
        return None

    def compute_output_shape(self, input_shape):
        """Returns `(B, D)`."""
        _check(input_shape)
        return (input_shape[0], input_shape[2])

    def compute_output_spec(self, inputs, mask=None):
        """Returns the symbolic output, after the checks that `call` makes."""
        check_inputs(inputs=inputs)
        _check(inputs.shape, mask)
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        return {**super().get_config(), "mode": self.mode}


def _check(shape, mask=None):
    """Refuses what cannot be pooled, and returns the mask as booleans."""
    if len(shape) != 3:
        raise ValueError(
            "`inputs` must have the shape (B, T, D). Received: "
            f"inputs.shape={tuple(shape)}"
        )
    return masks.check_padding(mask, "mask", (shape[0],), shape[1])


def _mean(inputs, visible):
    # Float32: half precision stops counting at a few thousand steps.
    wide = keras.backend.result_type(inputs.dtype, "float32")
    total = ops.sum(ops.cast(inputs, wide), axis=1)
    count = ops.sum(ops.cast(visible, wide), axis=1, keepdims=True)
    return total / ops.maximum(count, 1.0)


def _max(inputs, visible):
    lowest = ops.cast(-np.inf, inputs.dtype)
    inputs = ops.where(ops.expand_dims(visible, -1), inputs, lowest)
    # With an initial value, nothing at all has a maximum as well.
    highest = ops.max(inputs, axis=1, initial=-np.inf)
    return masks.hide(highest, ops.any(visible, axis=1))


def _first(inputs, visible):
    count = ops.cumsum(ops.cast(visible, "int32"), axis=1)
    first = ops.logical_and(visible, ops.equal(count, 1))
    return ops.sum(masks.hide(inputs, first), axis=1)


_POOL = {"mean": _mean, "max": _max, "first": _first}

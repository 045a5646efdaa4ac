"""Positions of cached keys: checked, and tensors taken at them.

A position is a Python integer, a scalar tensor, or one integer for each row
of the batch, `(B,)`.
"""

from __future__ import annotations

import keras
import numpy as np
from keras import KerasTensor, ops

from keras_attention.ops.shapes import sizes_differ
from keras_attention.ops.tracing import known


def take(tensor, positions):
    """Takes `(B, ..., M)` at positions `(X,)` or `(B, X)` of the last axis.

    Positions outside are moved to the nearest one inside.
    """
    if tensor.shape[-1] == 1:
        return tensor
    last = ops.shape(tensor)[-1] - 1
    positions = ops.maximum(ops.minimum(positions, last), 0)
    if len(positions.shape) == 1:
        return ops.take(tensor, positions, axis=-1)
    lead = [1] * (len(tensor.shape) - 2)
    shape = ops.shape(positions)
    positions = ops.reshape(positions, (shape[0], *lead, shape[1]))
    return ops.take_along_axis(tensor, positions, axis=-1)


def take_slots(tensor, slots):
    """Takes `(B, X, L, ...)` at slots `(M,)` or `(B, M)` of axis 2."""
    if len(slots.shape) == 1:
        return ops.take(tensor, slots, axis=2)
    batch, pair, length, *rest = ops.shape(tensor)
    starts = ops.arange(batch * pair, dtype="int32") * length
    starts = ops.reshape(starts, (batch, pair, 1))
    flat = ops.reshape(tensor, (batch * pair * length, *rest))
    return ops.take(flat, starts + ops.expand_dims(slots, 1), axis=0)


def count_from(index, steps):
    """Returns the positions `(T,)` or `(B, T)` from an index on."""
    first = ops.expand_dims(index, 1) if rank(index) == 1 else index
    return first + ops.arange(steps, dtype="int32")


def rank(index) -> int:
    """Returns 1 for one position a row, else 0."""
    return len(getattr(index, "shape", ()))


def check_index(index, batch_size):
    """Returns the index as a Python integer or an int32 tensor."""
    if not hasattr(index, "dtype") and not isinstance(index, int):
        index = np.asarray(index)
    kind = keras.backend.standardize_dtype(getattr(index, "dtype", type(index)))
    shape = tuple(getattr(index, "shape", ()))
    if not kind.startswith(("int", "uint")):
        raise TypeError(
            "`cache_update_index` must be an integer or a tensor of "
            f"integers. Received: cache_update_index={index!r}"
        )
    if len(shape) > 1 or (shape and sizes_differ(shape[0], batch_size)):
        raise ValueError(
            "`cache_update_index` must be a scalar, or hold one position for "
            f"each row of the batch, ({batch_size},) here. Received: "
            f"cache_update_index.shape={shape}"
        )
    if isinstance(index, KerasTensor):
        return index
    if isinstance(index, (int, np.integer)):
        return int(index)
    return ops.cast(index, "int32")


def refuse_beyond(index, steps, size, message):
    """Refuses `index + steps > size` and `index < 0`, now or at run time.

    Returns:
        The index, which in a graph waits for the answer.
    """
    if isinstance(index, KerasTensor) or None in (steps, size):
        return index
    values = [known(x) for x in (index, steps, size)]
    received = f"Received: cache_update_index={index}, T={steps}, S={size}"
    if all(x is not None for x in values):
        first, count, end = values
        if np.any(first < 0) or np.any(first + count > end):
            raise ValueError(f"{message} {received}")
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        checks = (
            tf.debugging.assert_non_negative(index, message=message),
            tf.debugging.assert_less_equal(
                index + steps, size, message=message
            ),
        )
        with tf.control_dependencies([x for x in checks if x is not None]):
            return tf.identity(index)
    return index

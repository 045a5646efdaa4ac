"""Writing into a tensor that nothing else needs, without a copy of it.

A graph then overwrites its memory; where something else still needs the
tensor as it was, TensorFlow copies it first.
"""

from __future__ import annotations

import keras

from keras_attention.ops.indexing import rank
from keras_attention.ops.tracing import compiles_with_xla


def is_possible() -> bool:
    """Returns whether `overwrite` can be used in the graph that is traced now.

    XLA cannot write to a place that it does not know beforehand, nor can it
    later compile a graph that was traced without it and does.
    """
    return keras.backend.backend() == "tensorflow" and not compiles_with_xla()


def overwrite(tensor, first, values):
    """Returns a tensor with a block of it replaced.

    Args:
        tensor: Any tensor.
        first: Where the block begins, an integer or scalar tensor for each of
            the first axes.
        values: The block, of the rank and dtype of the tensor.
    """
    import tensorflow as tf

    first = tf.stack([tf.cast(place, "int64") for place in first])
    size = tf.shape(values, "int64")[: first.shape[0]]
    written = tf.raw_ops.TensorStridedSliceUpdate(
        input=tensor,
        begin=first,
        end=first + size,
        strides=tf.ones_like(first),
        value=values,
    )
    return tf.ensure_shape(written, tensor.shape)


def overwrite_rows(tensor, first, values):
    """Returns `(B, X, S, ...)` with entries of each row replaced.

    Args:
        tensor: Tensor `(B, X, S, ...)`.
        first: Number of the first entry, along S: a scalar, or `(B,)`.
        values: Entries `(B, X, T, ...)`.
    """
    import tensorflow as tf

    values = tf.cast(values, tensor.dtype)
    if rank(first) == 0:
        return overwrite(tensor, [0, 0, first], values)
    if tensor.shape[0] == 1:
        return overwrite(tensor, [0, 0, first[0]], values)

    def one_row(row, tensor):
        place = [row, 0, first[row]]
        return row + 1, overwrite(tensor, place, values[row : row + 1])

    rows = tf.shape(tensor)[0]
    return tf.while_loop(
        lambda row, _: row < rows, one_row, (tf.constant(0), tensor)
    )[1]

"""Two halves of a batch at once: while one waits, the other computes.

A product of many small matrices leaves a core idle at the end of each. On two
cores, two halves side by side take two thirds of the time of one whole. Where
oneDNN multiplies, it shares the matrices out by itself, and nothing is gained.
"""

from __future__ import annotations

import keras

from keras_attention.ops import processor
from keras_attention.ops.tracing import compiles_with_xla


def in_halves(function, tensors, parts=()):
    """Returns `function(*tensors, *parts)`, computed for either half at once.

    In a graph of TensorFlow without oneDNN; elsewhere nothing runs side by
    side, or all does, and the function is called once.

    Args:
        function: Returns a tuple of tensors, of the length of its inputs
            along the first axis.
        tensors: Tensors of one length along the first axis.
        parts: Others of that length, or of length 1 where they are for all.
            None is passed on as it is.
    """
    if not _is_possible(tensors[0]):
        return function(*tensors, *parts)
    import tensorflow as tf

    halves = [*map(_split, tensors), *map(_split_unless_one, parts)]
    results = [function(*half) for half in zip(*halves, strict=True)]
    return tuple(tf.concat(found, 0) for found in zip(*results, strict=True))


def _is_possible(tensor) -> bool:
    if keras.backend.backend() != "tensorflow" or tensor.shape[0] in (0, 1):
        return False
    if processor.multiplies_with_onednn():
        return False
    import tensorflow as tf

    return not tf.executing_eagerly() and not compiles_with_xla()


def _split(tensor):
    """Returns both halves, whose gradients need only be joined."""
    import tensorflow as tf

    length = tensor.shape[0] or tf.shape(tensor)[0]
    half = length // 2
    return tf.split(tensor, [half, length - half], num=2)


def _split_unless_one(tensor):
    """Returns both halves, or for a length of one the whole twice."""
    if tensor is None or tensor.shape[0] == 1:
        return tensor, tensor
    import tensorflow as tf

    half = tf.shape(tensor)[0] // 2
    # A length of one may show only now. If so is the batch's, then the first
    # half has no rows, and takes one of this as well as none.
    return tensor[: tf.maximum(half, 1)], tensor[half:]

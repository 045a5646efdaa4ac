"""Padding masks of calls with a cache: of the call, or of all positions."""

from __future__ import annotations

import numpy as np
from keras import KerasTensor, ops

from keras_attention.ops import indexing, masks


def split_padding(inputs, padding_masks, cache, index):
    """Returns the padding of a call, and of the positions of its cache.

    Args:
        inputs: Tensor `(B, T, D)`.
        padding_masks: A tuple of a boolean `(B, T)` about the inputs, or,
            where the cache is of another length, about its positions; and
            of a mask `(B, T)` about the inputs, which stands in for the
            former, and the mask that Keras carries for both.
        cache: Tensor `(B, 2, S, K, H)`, or None.
        index: As in `cache.choose`.

    Returns:
        A tuple of a mask `(B, T)` and one by position, each None where it
        hides nothing.
    """
    name = "padding_mask"
    padding_mask, mask = padding_masks
    batch_size, length = inputs.shape[:2]
    if padding_mask is None:
        if mask is None:
            mask = masks.get_implicit_mask(inputs)
        return masks.check_padding(mask, "mask", (batch_size,), length), None
    if cache is None or is_of_inputs(padding_mask, inputs, cache):
        own = masks.check_padding(padding_mask, name, (batch_size,), length)
        return own, None
    mask = masks.check_padding(padding_mask, name, (batch_size,), None)
    if isinstance(inputs, KerasTensor):
        return KerasTensor((batch_size, length), "bool"), mask
    index = indexing.check_index(index, batch_size)
    positions = indexing.count_from(index, ops.shape(inputs)[1])
    return indexing.take(mask, positions), mask


def is_of_inputs(mask, inputs, cache) -> bool:
    """Whether a padding mask is about the inputs, not about the cache.

    The mask that Keras carries with the inputs is about these. Of a plain
    cache that is no longer than the inputs, it is about both; a ring of their
    length may be at any position.
    """
    shape = mask.shape if hasattr(mask, "shape") else np.shape(mask)
    length, steps = shape[-1], inputs.shape[1]
    if None in (length, steps):
        return mask is masks.get_implicit_mask(inputs)
    return length == steps

"""Which rows and columns of the scores one step of a kernel works on.

Queries are taken in blocks of consecutive rows. A block is compared with the
keys it can reach and no others, in one or two pieces: causality hides part of
the last keys only, so that only these pay for a mask.

Lengths are Python integers where they are known when the graph is built, and
scalar tensors where they are not; the arithmetic is the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

Tensor = Any
Length = Any  # int or scalar int32 tensor

# Rows of a block by the number of keys they reach, as (most keys, rows):
# measured on two cores, float32. Fewer rows lose speed in the products;
# more take memory.
ROWS = ((8192, 256), (1024, 512))
LEAST_ROWS = 128
# Where positions hide keys, a block also computes some that they hide, the
# more the larger it is.
BOUNDED_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Piece:
    """A range of keys, `[start, start + size)`, that a block is compared with.

    Attributes:
        start: First key, counted in the padded keys.
        size: Number of keys, or None for all of them.
        visible: Boolean `(size, rows)`, or None where positions hide nothing.
    """

    start: Length
    size: Length
    visible: Tensor = None


class Geometry:
    """Blocks of queries and the keys that each of them can reach.

    Args:
        query_length: T.
        key_length: S.
        causal: As in `AttentionMask`.
        window: As in `AttentionMask`.
        offset: As in `AttentionMask`.

    Attributes:
        rows: Number of queries in a block.
        blocks: Number of blocks.
        padding: Queries of padding that fill the last block.
        key_padding: Keys of padding before and after the keys, so that
            blocks are compared with whole windows and diagonals.
        keys_in_all: Number of keys with padding.
        padding_seen: Whether padding among the keys is to be hidden, because
            positions alone do not.
        first: Of the padded keys, the first one in the first block's window
            or diagonal.
        span: Number of keys in the window or diagonal of a block.
    """

    def __init__(self, query_length, key_length, causal, window, offset):
        self.query_length, self.key_length = query_length, key_length
        self.causal = causal
        if window is not None:
            # No two positions are further apart.
            farthest = maximum(query_length + offset, key_length - offset)
            window = maximum(minimum(window, farthest), 1)
        self.window = window
        self.rows = self._choose_rows()
        self.blocks = maximum(-(-query_length // self.rows), 1)
        self.padding = self.blocks * self.rows - query_length
        self.key_padding, self.padding_seen = (0, 0), False
        if causal or window is not None:
            self._pad_keys(offset)
        self.keys_in_all = key_length + sum(self.key_padding)

    def pieces(self, block) -> list[Piece]:
        """Returns the keys that a block can reach, in order and adjoining."""
        if self.window is None and not self.causal:
            return [Piece(0, None)]
        start = self.first + block * self.rows
        ahead = tf.range(self.span)[:, None] - tf.range(self.rows)[None]
        if self.window is None:
            return [Piece(0, start), Piece(start, self.span, ahead <= 0)]
        width = self.window if self.causal else 2 * self.window - 1
        return [Piece(start, self.span, (ahead >= 0) & (ahead < width))]

    def _choose_rows(self):
        reach = self.key_length
        if self.window is not None:
            reach = minimum(reach, self.window)
        bounded = self.causal or self.window is not None
        rows = LEAST_ROWS
        for longest, more in ROWS:
            more = min(more, BOUNDED_ROWS) if bounded else more
            rows = where(reach <= longest, maximum(rows, more), rows)
        if self.window is not None:
            rows = where(self.window <= BOUNDED_ROWS, LEAST_ROWS, rows)
        blocks = maximum(-(-self.query_length // rows), 1)
        # Of even size, and of whole vectors of numbers.
        even = maximum(-(-self.query_length // blocks), 1)
        return where(blocks == 1, even, -(-even // 8) * 8)

    def _pad_keys(self, offset):
        before = 0 if self.window is None else self.window - 1
        after = 0 if self.causal else before
        self.span = before + self.rows + after
        # Beyond these, queries see all keys or none.
        offset = minimum(offset, self.key_length + before)
        offset = maximum(offset, -self.query_length - after)
        front = maximum(before - offset, 0)
        self.first = offset - before + front
        last = self.first + (self.blocks - 1) * self.rows + self.span
        back = maximum(last - front - self.key_length, 0)
        self.key_padding = (front, back)
        # Keys after the last query are hidden by causality anyway.
        beyond = self.key_length - self.query_length - offset
        known = isinstance(beyond, int) and isinstance(front, int)
        self.padding_seen = not (known and beyond >= after and front == 0)


def length_of(tensor, axis) -> Length:
    """Returns a dimension, as an integer where it is known."""
    static = tensor.shape[axis]
    return tf.shape(tensor)[axis] if static is None else static


def minimum(first, second) -> Length:
    """Returns the lesser of two lengths."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return tf.minimum(first, second)


def maximum(first, second) -> Length:
    """Returns the greater of two lengths."""
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return tf.maximum(first, second)


def where(condition, first, second) -> Length:
    """Returns the first length where the condition holds, else the second."""
    if isinstance(condition, bool):
        return first if condition else second
    return tf.where(condition, first, second)

"""Which part of the scores one step of the blockwise kernel works on.

A step takes some heads and, of these, a block of consecutive queries. It
compares them with the keys that the block can reach and no others, in one or
two pieces: causality hides part of the last keys only, so that only these pay
for a mask.

Lengths are Python integers where they are known when the graph is built, and
scalar tensors where they are not; the arithmetic is the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from keras_attention.ops import processor

Tensor = Any
Length = Any  # int or scalar int32 tensor

_WITH_ONEDNN = processor.multiplies_with_onednn()

# Scores that a step may make, and the rows of a block, which rule where they
# disagree: measured on two cores, float32. Smaller steps lose speed in the
# products; larger ones leave the cache and make memory that has to be asked for
# anew each time. oneDNN multiplies the matrices of several heads at once; where
# there are more than `LONG` keys that is worth less, and memory more.
SCORES = 2**22 if _WITH_ONEDNN else 2**20
LONG, LONG_SCORES = 2**12, 2**21
LEAST_ROWS, MOST_ROWS = 128, 256 if _WITH_ONEDNN else 512
# Rows of queries or keys that a step takes of all heads together.
ROWS = 2**17 if _WITH_ONEDNN else 2**14
# Keys that the backward pass takes at a time, where it takes tiles. Measured
# at 8,192 and 16,384 tokens: two thirds of the time of whole beginnings, and
# less memory.
TILE = 2**11 if _WITH_ONEDNN else 2**10
# Without oneDNN, a product of up to so many multiplications is left to one
# core, and two of them run side by side: narrow windows are worth blocks of few
# rows then.
ONE_CORE, FEW_ROWS = 1_400_000, 64


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
    """Blocks of queries, and the keys that each of them can reach.

    To be prepared outside the loops, before `pieces` is called in them.

    Args:
        query_length: T.
        key_length: S.
        causal: As in `AttentionMask`.
        window: As in `AttentionMask`.
        offset: As in `AttentionMask`.
        groups: Number of query heads that share a key.
        key_heads: Number of which the key heads in all are a multiple.
        whole: Whether ranges of keys must be of one size, as XLA wants.
        tiled: Whether keys may be taken a tile at a time: those of windows,
            and ranges that must be whole, are not.
        width: H, or None where it is unknown.

    Attributes:
        rows: Number of queries in a block.
        blocks: Number of blocks.
        tile: Number of keys in a tile, a multiple of rows; as good as all
            where they are not to be tiled.
        tiles: Number of tiles that hold all keys.
        together: Number of key heads in a step.
        padding: Queries of padding that fill the last block.
        key_padding: Keys of padding before and after the keys, so that
            blocks are compared with whole windows and diagonals.
        keys_in_all: Number of keys with padding.
        padding_seen: Whether padding among the keys is to be hidden, because
            positions alone do not.
        first: Of the padded keys, the first one in the first block's window
            or diagonal.
        span: Number of keys in the window or diagonal of a block.
        tiled: Whether blocks are compared with one tile after the other.
        reaches_beginnings: Whether blocks reach the keys from the first to
            one of their own.
    """

    def __init__(
        self,
        query_length,
        key_length,
        causal,
        window,
        offset,
        groups=1,
        key_heads=1,
        whole=False,
        tiled=False,
        width=None,
    ):
        self.query_length, self.key_length = query_length, key_length
        self.causal, self._visible = causal, None
        if window is not None:
            # No two positions are further apart.
            farthest = maximum(query_length + offset, key_length - offset)
            window = maximum(minimum(window, farthest), 1)
        self.window = window
        self.reaches_beginnings = causal and window is None and not whole
        self.tiled = tiled and window is None and not whole
        self.rows = self._choose_rows(groups, width)
        self.blocks = maximum(-(-query_length // self.rows), 1)
        self.together = self._choose_heads(groups, key_heads)
        self.padding = self.blocks * self.rows - query_length
        self.key_padding, self.padding_seen = (0, 0), False
        if causal or window is not None:
            self._pad_keys(offset)
        self.keys_in_all = key_length + sum(self.key_padding)
        tile = self.keys_in_all
        if self.tiled:
            tile = minimum(tile, TILE)
        self.tile = maximum(-(-tile // self.rows), 1) * self.rows
        self.tiles = maximum(-(-self.keys_in_all // self.tile), 1)

    def prepare(self) -> None:
        """Makes what positions show in a window or diagonal, once for all."""
        if self.window is None and not self.causal:
            return
        ahead = tf.range(self.span)[:, None] - tf.range(self.rows)[None]
        if self.window is None:
            self._visible = ahead <= 0
            return
        width = self.window if self.causal else 2 * self.window - 1
        self._visible = (ahead >= 0) & (ahead < width)

    def tiles_before(self, block) -> Length:
        """Returns how many tiles a block reaches all of, before the rest."""
        if not self.tiled:
            return 0
        if not self.causal:
            return self.tiles - 1
        return (self.first + block * self.rows) // self.tile

    def pieces_left(self, block) -> list[Piece]:
        """Returns the pieces of a block that `tiles_before` it leave."""
        return self.pieces(block, self.tiles_before(block) * self.tile)

    def pieces(self, block, beyond=0) -> list[Piece]:
        """Returns the keys that a block can reach, in order and adjoining.

        Args:
            block: Number of the block.
            beyond: Number of keys to leave out, the first ones.
        """
        if self.window is None and not self.causal:
            size = self.key_length - beyond if self.tiled else None
            return [Piece(beyond, size)]
        start = self.first + block * self.rows
        if self.window is not None:
            return [Piece(start, self.span, self._visible)]
        if not self.reaches_beginnings:
            last = start + tf.range(self.rows)
            keys = tf.range(self.keys_in_all)
            return [Piece(0, None, keys[:, None] <= last[None])]
        diagonal = Piece(start, self.span, self._visible)
        before = Piece(beyond, start - beyond)
        known_empty = isinstance(before.size, int) and before.size == 0
        return [diagonal] if known_empty else [before, diagonal]

    def without_padding(self, keys) -> Tensor:
        """Returns the rows `(k, S, X)` of padded `(k, keys_in_all, X)`."""
        front, _ = self.key_padding
        return keys[:, front : front + self.key_length]

    def _reach(self):
        if self.window is None:
            return self.key_length
        return minimum(self.key_length, 2 * self.window)

    def _choose_rows(self, groups, width):
        least, most = LEAST_ROWS, MOST_ROWS
        if self.window is not None:
            least, most = self._rows_of_windows(groups, width)
        reach = self._reach()
        if self.tiled:
            reach = minimum(reach, TILE)
        rows = _scores(reach) // maximum(groups, 1) // maximum(reach, 1)
        rows = maximum(minimum(rows, most), least)
        blocks = maximum(-(-self.query_length // rows), 1)
        # Of even size, and of whole vectors of numbers.
        even = maximum(-(-self.query_length // blocks), 1)
        return where(blocks == 1, even, -(-even // 8) * 8)

    def _rows_of_windows(self, groups, width):
        """Returns the least and most rows of a block, seen through a window.

        Larger blocks compute more that the window hides than they show.
        """
        if _WITH_ONEDNN:
            return LEAST_ROWS, LEAST_ROWS
        most = minimum(MOST_ROWS, self.window)
        if width is None:
            return LEAST_ROWS, most
        sides = 1 if self.causal else 2
        span = sides * (self.window - 1) + FEW_ROWS
        # As a quotient, lest the product overflow.
        few = span <= ONE_CORE // (FEW_ROWS * width * maximum(groups, 1))
        return where(few, FEW_ROWS, LEAST_ROWS), where(few, FEW_ROWS, most)

    def _choose_heads(self, groups, key_heads):
        reach = self._reach()
        most = _scores(reach) // maximum(groups, 1) // self.rows
        most = most // maximum(reach, 1)
        longest = maximum(groups * self.query_length, self.key_length)
        most = minimum(most, ROWS // maximum(longest, 1))
        together = 1
        for heads in range(2, key_heads + 1):
            if key_heads % heads == 0:
                together = where(most >= heads, heads, together)
        return together

    def _pad_keys(self, offset):
        before = 0 if self.window is None else self.window - 1
        after = 0 if self.causal else before
        self.span = before + self.rows + after
        # Beyond these, queries see all keys or none.
        offset = minimum(offset, self.key_length + before)
        offset = maximum(offset, -self.query_length - after)
        front = maximum(before - offset, 0)
        if self.tiled:
            # Lest tiles end within a block.
            front += -(offset + front) % self.rows
        self.first = offset - before + front
        last = self.first + (self.blocks - 1) * self.rows + self.span
        back = maximum(last - front - self.key_length, 0)
        self.key_padding = (front, back)
        # Keys after the last query are hidden by causality anyway.
        beyond = self.key_length - self.query_length - offset
        known = isinstance(beyond, int) and isinstance(front, int)
        self.padding_seen = not (known and beyond >= after and front == 0)


def _scores(reach) -> Length:
    """Returns how many scores a step may make, of so many keys a query."""
    return where(reach > LONG, min(SCORES, LONG_SCORES), SCORES)


def length_of(tensor, axis) -> Length:
    """Returns a dimension, as an integer where it is known."""
    static = tensor.shape[axis]
    return tf.shape(tensor)[axis] if static is None else static


def lengths_of(tensor) -> list[Length]:
    """Returns all dimensions, as integers where they are known."""
    return [length_of(tensor, axis) for axis in range(len(tensor.shape))]


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

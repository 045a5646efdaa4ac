"""What the blockwise kernel reads: some heads at a time, block by block.

All leading axes are flattened to one, the heads. Masks and biases that are
shared between heads are kept once, next to a vector that says which of them
belongs to which head.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import tensorflow as tf

from keras_attention.ops import masks
from keras_attention.ops.blockwise_geometry import (
    Geometry,
    Piece,
    length_of,
    lengths_of,
    maximum,
)
from keras_attention.ops.masks import AttentionMask
from keras_attention.ops.tracing import compiles_with_xla

Tensor = Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is known when the graph is built, and no tensor.

    Attributes:
        scale: Number the queries are multiplied by.
        dropout: Rate at which weights are dropped.
        causal: As in `AttentionMask`.
        window: As in `AttentionMask`.
        offset: As in `AttentionMask`, or None where it is a tensor.
        groups: Number of query heads that share a key and value, or None
            where that is unknown.
        key_heads: Number of key heads in an entry of the batch, 1 where
            that is unknown.
        shared: Names of the tensors that are alike for all heads of an
            entry of the batch.
        dense_scores: Number of scores of a head, T * S, up to which they are
            written out.
    """

    scale: float
    dropout: float
    causal: bool
    window: int | None
    offset: int | None
    groups: int | None
    key_heads: int = 1
    shared: frozenset[str] = frozenset()
    dense_scores: int | None = None

    def geometry(self, tensors, tiled=False) -> Geometry:
        """Returns the blocks of tensors as `flatten` returns them."""
        offset = tensors["offset"] if self.offset is None else self.offset
        geometry = Geometry(
            length_of(tensors["query"], 1),
            length_of(tensors["key"], 1),
            self.causal,
            self.window,
            offset,
            self.groups_in(tensors),
            self.key_heads,
            whole=compiles_with_xla(),
            tiled=tiled,
            width=tensors["key"].shape[2],
        )
        geometry.prepare()
        return geometry

    @property
    def kept_share(self) -> float:
        """Share of the weights that dropout spares; 1 where it spares none."""
        return 1.0 - self.dropout or 1.0

    def groups_in(self, tensors):
        """Returns how many query heads share a key and value."""
        if self.groups is not None:
            return self.groups
        heads = length_of(tensors["query"], 0)
        return heads // maximum(length_of(tensors["key"], 0), 1)


def flatten(
    query, key, value, mask: AttentionMask, bias, seed
) -> dict[str, Tensor]:
    """Returns the tensors of one call by name, with one axis of heads.

    Args:
        query: Tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`.
        value: Tensor `(..., K, S, Hv)`.
        mask: An `AttentionMask`.
        bias: Tensor that broadcasts to `(..., N, T, S)`, or None.
        seed: Integer tensor `(2,)`, or None without dropout.

    Returns:
        Among others "query" `(heads, T, H)`, "key" `(key heads, S, H)` and
        "bias" `(M, T, S)` with "bias_of" `(heads,)`, M at most the number of
        heads; T and S may be 1 in a mask or bias.
    """
    lead = [length_of(query, a) for a in range(len(query.shape) - 2)]
    lengths = length_of(query, -2), length_of(key, -2)
    tensors = {
        "query": _merge_lead(query, 2),
        "key": _merge_lead(key, 2),
        "value": _merge_lead(value, 2),
    }
    for name, part in (("bias", bias), ("full", mask.full)):
        if part is not None:
            part = _fill_unknown(part, lengths)
            tensors[name] = _merge_lead(part, 2)
            tensors[f"{name}_of"] = _owners(part.shape[:-2], part, lead)
    padding = (("queries", mask.query, 0), ("keys", mask.key, 1))
    for name, part, axis in padding:
        if part is not None:
            flat = _merge_lead(part, 1)
            shape = (length_of(flat, 0), lengths[axis])
            tensors[name] = tf.broadcast_to(flat, shape)
            tensors[f"{name}_of"] = _owners(part.shape[:-1], part, lead)
    if seed is not None:
        tensors["seed"] = seed
    if not isinstance(mask.offset, int):
        tensors["offset"] = tf.cast(mask.offset, "int32")
    return tensors


def _merge_lead(tensor, kept) -> Tensor:
    """Merges all axes but the last `kept` into one."""
    rank = len(tensor.shape)
    shape = [length_of(tensor, axis) for axis in range(rank)]
    lead = math.prod(shape[: rank - kept])
    return tf.reshape(tensor, (lead, *shape[rank - kept :]))


def _fill_unknown(part, lengths) -> Tensor:
    """Broadcasts lengths not known to be 1 or whole, the last two axes."""
    shape = [length_of(part, axis) for axis in range(len(part.shape))]
    unknown = False
    for axis, length in zip((-2, -1), lengths, strict=True):
        if part.shape[axis] is None:
            shape[axis], unknown = length, True
    return tf.broadcast_to(part, shape) if unknown else part


def _owners(static, part, lead) -> Tensor:
    """Returns which of a part's leading entries belongs to each head."""
    sizes = [length_of(part, axis) for axis in range(len(static))]
    numbers = tf.reshape(tf.range(math.prod(sizes)), sizes)
    return tf.reshape(tf.broadcast_to(numbers, lead), [-1])


class Heads:
    """The rows that a step works on: some key heads and their query heads.

    Queries that share a key head are laid side by side in products with it,
    so that it is not repeated: scores are `(k, size, G * rows)` for k key
    heads of G query heads each.

    Loops over blocks hold on to what they use, and so had better not use the
    tensors `key` and `value`.

    Attributes:
        count: Number of query heads, k * G.
        query: The scaled queries `(k * G, T, H)`, padded to whole blocks.
        key: The keys `(k, S, H)`, padded for windows.
        value: The values `(k, S, Hv)`, padded for windows.
        dtype: Dtype to compute in.
        scale: The scale as a tensor.
        kept_share: `Settings.kept_share` as a tensor.
        inverse: Inverse `(k * G, T, 1)` of what normalizes the weights of a
            query, if `norms` are given.

    Args:
        settings: The `Settings` of the call.
        tensors: As `flatten` returns them.
        geometry: The `Geometry` of the call.
        step: Number of the step.
        norms: As `blockwise_forward.forward` returns them, to subtract the
            highest from the scores, or None.
    """

    def __init__(
        self,
        settings: Settings,
        tensors,
        geometry: Geometry,
        step,
        norms=None,
    ):
        self._settings, self._tensors = settings, tensors
        self._geometry, self._step = geometry, step
        self._groups = settings.groups_in(tensors)
        self._keys = geometry.together
        self.count = self._keys * self._groups
        self.dtype = compute_dtype(tensors["query"])
        self.scale = tf.constant(settings.scale, self.dtype)
        self.kept_share = tf.constant(settings.kept_share, self.dtype)
        self.query = self.take_rows(tensors["query"]) * self.scale
        self.key = self._take_keys(tensors["key"])
        self.value = self._take_keys(tensors["value"])
        self._width = length_of(self.key, 2)
        self._sought, self._offered = [self.query], [self.key]
        self._add_hidden_keys()
        self._highest = None
        if norms is not None:
            # Rows of padding see nothing.
            norms = self.take_rows(norms, math.inf)
            self._highest, self.inverse = norms[..., :1], 1 / norms[..., 1:]
        self._sought = tf.concat(self._sought, 2)
        self._offered = tf.concat(self._offered, 2)

    def take_rows(self, tensor, padding=0.0) -> Tensor:
        """Returns the rows of `(heads, T, X)`, padded to whole blocks."""
        rows = self._take(tensor, self.count)
        return pad(rows, (0, 0), (0, self._geometry.padding), value=padding)

    def across(self, rows, block) -> Tensor:
        """Returns a block of `(k * G, T, X)` as `(k, G * rows, X)`."""
        rows = self._block(rows, block)
        shape = (self._keys, self._groups * self._geometry.rows)
        return tf.reshape(rows, (*shape, length_of(rows, 2)))

    def to_rows(self, columns) -> Tensor:
        """Returns `(k, X, G * rows)` as `(k * G, rows, X)`."""
        shape = (self.count, self._geometry.rows, length_of(columns, 1))
        return tf.reshape(tf.transpose(columns, (0, 2, 1)), shape)

    def sum_keys(self, piece: Piece, weights) -> Tensor:
        """Returns the sum of the keys of a piece for each query.

        Args:
            piece: The range of keys.
            weights: Numbers `(k, size, G * rows)` to multiply them by.

        Returns:
            A tensor `(k, H, G * rows)`.
        """
        offered = self.cut(self._offered, piece)
        # The product with all columns costs less than a copy of some.
        total = tf.matmul(offered, weights, transpose_a=True)
        return total[:, : self._width]

    def scores(self, block, piece: Piece) -> Tensor:
        """Returns the scores of a block, `(k, size, G * rows)`.

        Less the highest of each query, if that is known.
        """
        scores = self._bare_scores(block, piece)
        if self._highest is None:
            return scores
        across = (self._keys, 1, self._groups * self._geometry.rows)
        return scores - tf.reshape(self._block(self._highest, block), across)

    def _bare_scores(self, block, piece):
        scores = tf.matmul(
            self.cut(self._offered, piece),
            self.across(self._sought, block),
            transpose_b=True,
        )
        visible = self._visible(block, piece)
        if visible is None and "bias" not in self._tensors:
            return scores
        shape = lengths_of(scores)
        rows = self._geometry.rows
        scores = tf.reshape(scores, (*shape[:2], self._groups, rows))
        if "bias" in self._tensors:
            bias = self._part("bias", block, piece)
            scores += masks.finite_bias(bias, self.dtype.name)
        if visible is not None:
            scores = tf.where(visible, scores, minus_infinity(self.dtype))
        return tf.reshape(scores, shape)

    def queries_seen(self) -> Tensor:
        """Returns which queries are no padding, `(k * G or 1, T, 1)`."""
        if "queries" not in self._tensors:
            return None
        return self._padding("queries")[:, :, None]

    def cut(self, keys, piece: Piece) -> Tensor:
        """Returns the rows `(k, size, X)` of a piece of `(k, S, X)`."""
        if piece.size is None or _is_whole(piece.size, keys):
            return keys
        heads, _, width = lengths_of(keys)
        if isinstance(heads, int) and heads == 1:
            # Along the first axis, a cut copies nothing.
            size = [piece.size, width]
            return tf.slice(keys[0], [piece.start, 0], size)[None]
        size = [heads, piece.size, width]
        return tf.slice(keys, [0, piece.start, 0], size)

    def spared(self, block, index, weights) -> Tensor:
        """Returns which weights of a piece dropout spares, or None.

        Drawn from the piece's own seed, hence the same each time.
        """
        if not self._settings.dropout:
            return None
        place = tf.stack([self._step, 2 * block + index])
        seed = self._tensors["seed"] + tf.cast(place, "int64")
        draws = tf.random.stateless_uniform(tf.shape(weights), seed)
        return draws >= self._settings.dropout

    def _block(self, rows, block):
        size = self._geometry.rows
        if _is_whole(size, rows):
            return rows
        heads, _, width = lengths_of(rows)
        return tf.slice(rows, [0, block * size, 0], [heads, size, width])

    def _take(self, tensor, count):
        _, length, width = lengths_of(tensor)
        first = self._step * count
        rows = tf.slice(tensor, [first, 0, 0], [count, length, width])
        return tf.cast(rows, self.dtype)

    def _take_keys(self, tensor):
        keys = self._take(tensor, self._keys)
        return pad(keys, (0, 0), self._geometry.key_padding)

    def _add_hidden_keys(self):
        """Puts the scores of hidden keys at minus infinity.

        One more column of the product does it: ones times that number.
        """
        geometry = self._geometry
        if not self._hides_by_column() and not geometry.padding_seen:
            return
        shape = (self._keys, geometry.key_length)
        seen = tf.ones(shape, "bool")
        if self._hides_by_column():
            seen = tf.broadcast_to(self._padding("keys"), shape)
        seen = pad(seen[:, :, None], (0, 0), geometry.key_padding)
        zero = tf.zeros((), self.dtype)
        self._sought.append(tf.ones_like(self.query[:, :, :1]))
        self._offered.append(tf.where(seen, zero, minus_infinity(self.dtype)))

    def _hides_by_column(self):
        """Whether queries that share a key head see the same keys."""
        settings = self._settings
        alike = settings.groups == 1 or "keys" in settings.shared
        return alike and "keys" in self._tensors

    def _owners(self, name):
        """Returns which entries of a mask or bias the step's heads use.

        A vector for each head, or of one entry if that serves them all.
        """
        count = self.count
        first = [self._step * count]
        size = [1 if name in self._settings.shared else count]
        return tf.slice(self._tensors[f"{name}_of"], first, size)

    def _padding(self, name):
        """Returns a padding mask `(k * G or 1, length)`."""
        return tf.gather(self._tensors[name], self._owners(name))

    def _visible(self, block, piece):
        """Returns what may be seen, `(k, size, G, rows)` when broadcast."""
        parts = []
        if piece.visible is not None:
            parts.append(piece.visible[None, :, None])
        if "full" in self._tensors:
            parts.append(self._part("full", block, piece))
        if "keys" in self._tensors and not self._hides_by_column():
            keys = self._padding("keys")[:, :, None]
            keys = pad(keys, (0, 0), self._geometry.key_padding)
            keys = tf.transpose(self.cut(keys, piece), (0, 2, 1))
            parts.append(self._turn(keys, "keys"))
        return functools.reduce(tf.logical_and, parts) if parts else None

    def _part(self, name, block, piece):
        """Returns a block of a mask or bias, like `_visible`."""
        part, geometry = self._tensors[name], self._geometry
        entries, length, keys = lengths_of(part)
        rows = tf.zeros((1,), "int32")
        if part.shape[1] != 1:
            # In place of rows beyond the last one, that one again.
            rows = block * geometry.rows + tf.range(geometry.rows)
            rows = tf.minimum(rows, length - 1)
        rows = self._owners(name)[:, None] * length + rows
        found = tf.gather(tf.reshape(part, (entries * length, keys)), rows)
        if part.shape[2] != 1:
            found = pad(found, (0, 0), (0, 0), geometry.key_padding)
            if piece.size is not None:
                heads, rows, _ = lengths_of(found)
                size = [heads, rows, piece.size]
                found = tf.slice(found, [0, 0, piece.start], size)
        return self._turn(found, name)

    def _turn(self, part, name):
        """Turns `(k * G or 1, rows, size)` to `(k, size, G, rows)`."""
        lead = (self._keys, self._groups)
        if name in self._settings.shared:
            lead = (1, 1)
        _, rows, size = lengths_of(part)
        return tf.transpose(tf.reshape(part, (*lead, rows, size)), (0, 3, 1, 2))


def compute_dtype(tensor) -> tf.DType:
    """Returns the dtype in which scores of `tensor` are safe."""
    return tensor.dtype if tensor.dtype == tf.float64 else tf.float32


def minus_infinity(dtype) -> Tensor:
    """Returns minus infinity as a scalar tensor."""
    return tf.constant(-math.inf, dtype)


def _is_whole(size, rows) -> bool:
    """Returns whether a cut of some size is known to be all rows."""
    return isinstance(size, int) and size == rows.shape[1]


def pad(tensor, *amounts, value=0.0) -> Tensor:
    """Pads the first axes with a value, `(before, after)` each."""
    if all(isinstance(n, int) and n == 0 for pair in amounts for n in pair):
        return tensor
    missing = len(tensor.shape) - len(amounts)
    amounts = [*amounts, *[(0, 0)] * missing]
    if value == 0.0:
        return tf.pad(tensor, amounts)
    return tf.pad(tensor, amounts, constant_values=value)

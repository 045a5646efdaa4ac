"""What the blockwise kernel reads: one head at a time, one block at a time.

All leading axes are flattened to one, the heads. Masks and biases that are
shared between heads are kept once, next to a vector that says which of them
belongs to which head.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import Geometry, Piece, length_of
from keras_attention.ops.masks import AttentionMask

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
        dense_scores: Number of scores of a head, T * S, up to which they are
            written out.
    """

    scale: float
    dropout: float
    causal: bool
    window: int | None
    offset: int | None
    groups: int | None
    dense_scores: int = 0

    def geometry(self, tensors) -> Geometry:
        """Returns the blocks of tensors as `flatten` returns them."""
        offset = tensors["offset"] if self.offset is None else self.offset
        return Geometry(
            length_of(tensors["query"], 1),
            length_of(tensors["key"], 1),
            self.causal,
            self.window,
            offset,
        )


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


class Head:
    """The rows of one query head and of its key and value head.

    Attributes:
        number: Index of the query head.
        query: The scaled query `(T, H)`, padded to whole blocks.
        key: The key `(S, H)`, padded for windows.
        value: The value `(S, Hv)`, padded for windows.
        key_number: Index of the key and value head.
        groups: Number of query heads that share it.
        dtype: Dtype to compute in.
        scale: The scale as a tensor.
        kept_share: Share of the weights that dropout spares.

    Args:
        settings: The `Settings` of the call.
        tensors: As `flatten` returns them.
        geometry: The `Geometry` of the call.
        number: Index of the query head.
    """

    def __init__(self, settings: Settings, tensors, geometry: Geometry, number):
        self._settings, self._tensors = settings, tensors
        self._geometry, self.number = geometry, number
        self.groups = settings.groups or (
            length_of(tensors["query"], 0) // length_of(tensors["key"], 0)
        )
        self.key_number = number // self.groups
        self.dtype = compute_dtype(tensors["query"])
        self.scale = tf.constant(settings.scale, self.dtype)
        self.kept_share = tf.constant(1.0 - settings.dropout, self.dtype)
        self.query = self.take_rows(tensors["query"]) * self.scale
        self.key = self._take_keys(tensors["key"])
        self.value = self._take_keys(tensors["value"])
        self._sought, self._offered = self._with_hidden_keys()
        self._parts = {
            name: self._take_part(name)
            for name in ("bias", "full")
            if name in tensors
        }

    def take_rows(self, tensor) -> Tensor:
        """Returns this head of `(heads, T, X)`, padded to whole blocks."""
        rows = tf.cast(tensor[self.number], self.dtype)
        return pad(rows, (0, self._geometry.padding))

    def rows(self, tensor, block) -> Tensor:
        """Returns the rows of a block of `(T, X)`."""
        rows = self._geometry.rows
        return tf.slice(tensor, [block * rows, 0], [rows, length_of(tensor, 1)])

    def scores(self, block, piece: Piece) -> Tensor:
        """Returns the scores of a block, keys down: `(size, rows)`."""
        scores = tf.matmul(
            self.cut(self._offered, piece),
            self.rows(self._sought, block),
            transpose_b=True,
        )
        if "bias" in self._parts:
            scores += self._across("bias", block, piece)
        visible = piece.visible
        if "full" in self._parts:
            full = self._across("full", block, piece)
            visible = full if visible is None else visible & full
        if visible is None:
            return scores
        return tf.where(visible, scores, minus_infinity(self.dtype))

    def cut(self, keys, piece: Piece) -> Tensor:
        """Returns the rows `(size, X)` of a piece of `(S, X)`."""
        return _cut(keys, piece)

    def spared(self, block, index, weights) -> Tensor:
        """Returns which weights `(size, rows)` dropout spares, or None.

        Drawn from the block's own seed, hence the same each time.
        """
        if not self._settings.dropout:
            return None
        place = tf.stack([self.number, 2 * block + index])
        seed = self._tensors["seed"] + tf.cast(place, "int64")
        draws = tf.random.stateless_uniform(tf.shape(weights), seed)
        return draws >= self._settings.dropout

    def queries_seen(self, block) -> Tensor:
        """Returns which queries are no padding, `(1, rows)`, or None."""
        if "queries" not in self._tensors:
            return None
        owner = self._tensors["queries_of"][self.number]
        seen = self._tensors["queries"][owner][:, None]
        seen = pad(seen, (0, self._geometry.padding))
        return tf.transpose(self.rows(seen, block))

    def _take_keys(self, tensor):
        keys = tf.cast(tensor[self.key_number], self.dtype)
        return pad(keys, self._geometry.key_padding)

    def _with_hidden_keys(self):
        """Query and key, with hidden keys' scores at minus infinity.

        One more column of the product does it: ones times minus infinity.
        """
        padding_seen = self._geometry.padding_seen
        if "keys" not in self._tensors and not padding_seen:
            return self.query, self.key
        if "keys" in self._tensors:
            owner = self._tensors["keys_of"][self.number]
            seen = self._tensors["keys"][owner]
        else:
            seen = tf.ones([self._geometry.key_length], "bool")
        seen = pad(seen[:, None], self._geometry.key_padding)
        zero = tf.zeros((), self.dtype)
        column = tf.where(seen, zero, minus_infinity(self.dtype))
        ones = tf.ones_like(self.query[:, :1])
        return (
            tf.concat([self.query, ones], axis=1),
            tf.concat([self.key, column], axis=1),
        )

    def _take_part(self, name):
        """Returns this head's `(T, S)` of a mask or bias, padded like both."""
        owner = self._tensors[f"{name}_of"][self.number]
        _, length, keys = self._tensors[name].shape
        return pad(
            self._tensors[name][owner],
            (0, 0) if length == 1 else (0, self._geometry.padding),
            (0, 0) if keys == 1 else self._geometry.key_padding,
        )

    def _across(self, name, block, piece):
        """Returns a block of a mask or bias, turned to `(size, rows)`."""
        part, (_, length, keys) = self._parts[name], self._tensors[name].shape
        if length != 1:
            part = self.rows(part, block)
        if keys != 1:
            part = _cut(part, piece, axis=1)
        if name == "bias":
            # Minus infinity is hidden through the mask; as a number it would
            # turn a wholly hidden row into NaN.
            part = tf.maximum(tf.cast(part, self.dtype), self.dtype.min)
        return tf.transpose(part)


def _cut(tensor, piece: Piece, axis=0) -> Tensor:
    """Returns a piece along an axis. Along the first, that copies nothing."""
    if piece.size is None:
        return tensor
    if isinstance(piece.start, int) and piece.start == 0:
        return tensor[: piece.size] if axis == 0 else tensor[:, : piece.size]
    # Unlike the above, of a size known to XLA though the start is not.
    start, size = [0, 0], [length_of(tensor, 0), length_of(tensor, 1)]
    start[axis], size[axis] = piece.start, piece.size
    return tf.slice(tensor, start, size)


def compute_dtype(tensor) -> tf.DType:
    """Returns the dtype in which scores of `tensor` are safe."""
    return tensor.dtype if tensor.dtype == tf.float64 else tf.float32


def minus_infinity(dtype) -> Tensor:
    """Returns minus infinity as a scalar tensor."""
    return tf.constant(-math.inf, dtype)


def pad(tensor, *amounts) -> Tensor:
    """Pads the first axes with zeros, `(before, after)` each."""
    if all(isinstance(n, int) and n == 0 for pair in amounts for n in pair):
        return tensor
    missing = len(tensor.shape) - len(amounts)
    return tf.pad(tensor, [*amounts, *[(0, 0)] * missing])

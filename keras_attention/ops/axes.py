"""Attention over any axes, brought to the one layout of the kernels.

A projected tensor is `(B, d1, ..., dn, N, H)`. Its attention axes are
flattened to one length T, the others join the batch: `(B, ..., N, T, H)`.
For the common case, one axis of time, that is a single transposition.
"""

from __future__ import annotations

import dataclasses

from keras import KerasTensor, ops

from keras_attention.ops.shapes import product, sizes_differ


@dataclasses.dataclass(frozen=True)
class AttentionAxes:
    """Moves tensors and masks between the two layouts.

    Attributes:
        attended: The attention axes of the input, all positive.
        free: The other axes between batch and features.
    """

    attended: tuple[int, ...]
    free: tuple[int, ...]

    @classmethod
    def resolve(cls, attention_axes, rank) -> AttentionAxes:
        """Returns the axes for inputs `(B, d1, ..., dn, D)` of `rank` axes.

        Args:
            attention_axes: Tuple of axes, negative ones counted from the
                end of the input, or None for all of `d1, ..., dn`.
            rank: Rank of the input.

        Returns:
            An `AttentionAxes`.

        Raises:
            ValueError: The rank is below 3, or an axis is the batch axis,
                the feature axis, out of range or named twice.

        Example:

        >>> AttentionAxes.resolve((-2,), rank=4)
        AttentionAxes(attended=(2,), free=(1,))
        """
        if rank < 3:
            raise ValueError(
                "Attention needs inputs of rank 3 or more, (B, T, D). Add "
                "the missing axis with `keras.ops.expand_dims`. Received: "
                f"rank={rank}"
            )
        between = range(1, rank - 1)
        if attention_axes is None:
            return cls(tuple(between), ())
        axes = tuple(a if a >= 0 else rank + a for a in attention_axes)
        if len(set(axes)) < len(axes) or not set(axes) <= set(between):
            raise ValueError(
                f"`attention_axes` must name distinct axes from 1 to "
                f"{rank - 2} for inputs of rank {rank}: neither the batch "
                f"nor the features. Received: attention_axes={attention_axes}"
            )
        free = tuple(a for a in between if a not in axes)
        return cls(axes, free)

    def check(self, query_shape, value_shape, key_shape) -> None:
        """Refuses inputs `(B, d1, ..., dn, D)` that do not belong together.

        Raises:
            ValueError: Value and key differ in more than their width, or
                query and value in rank, batch size or a free axis.
        """
        query, value, key = map(tuple, (query_shape, value_shape, key_shape))
        shapes = f"query_shape={query}, value_shape={value}, key_shape={key}"
        if len(value) != len(key) or any(
            map(sizes_differ, value[:-1], key[:-1])
        ):
            raise ValueError(
                "All axes of `value` and `key` but the last must be equal: "
                "each key belongs to one value. The order is `(query, value, "
                "key)`, as in Keras, and not that of PyTorch. "
                f"Received: {shapes}"
            )
        if len(query) != len(value):
            raise ValueError(
                "`query` and `value` must have the same rank, such as "
                f"(B, T, D) and (B, S, D). Received: {shapes}"
            )
        if any(sizes_differ(query[a], value[a]) for a in (0, *self.free)):
            others = ""
            if self.free:
                others = f" and at axes that are not attended over, {self.free}"
            raise ValueError(
                "`query` and `value` must be of the same size at the batch "
                f"axis{others}. Received: {shapes}"
            )

    def heads_first(self, projected):
        """`(B, d1, ..., dn, N, H)` to `(B, ..., N, T, H)`."""
        rank = len(projected.shape)
        order = (0, *self.free, rank - 2, *self.attended, rank - 1)
        moved = ops.transpose(projected, order)
        if len(self.attended) == 1:
            return moved
        shape = ops.shape(moved)
        start = rank - 1 - len(self.attended)
        length = product(shape[start:-1])
        return ops.reshape(moved, (*shape[:start], length, shape[-1]))

    def heads_last(self, context, query):
        """`(B, ..., N, T, H)` back to `(B, d1, ..., dn, N, H)`.

        Args:
            context: The tensor to move.
            query: The layer's query input, whose lengths are restored.
        """
        rank = len(query.shape) + 1
        if len(self.attended) > 1:
            shape, lengths = ops.shape(context), self._lengths(query)
            context = ops.reshape(context, (*shape[:-2], *lengths, shape[-1]))
        order = (0, *self.free, rank - 2, *self.attended, rank - 1)
        return ops.transpose(context, [order.index(i) for i in range(rank)])

    def split_scores(self, scores, query, key):
        """`(B, ..., N, T, S)` to one axis for each attention axis."""
        if len(self.attended) == 1:
            return scores
        shape = ops.shape(scores)
        lengths = (*self._lengths(query), *self._lengths(key))
        return ops.reshape(scores, (*shape[:-2], *lengths))

    def flatten_mask(self, mask):
        """A mask over `2n` attention axes to one that ends in `(T, S)`."""
        n = len(self.attended)
        if mask is None or n == 1:
            return mask
        mask = _as_tensor(mask)
        if len(mask.shape) < 2 * n:
            return mask  # refused later, with the shapes that are accepted
        shape = ops.shape(mask)
        length_q, length_k = product(shape[-2 * n : -n]), product(shape[-n:])
        return ops.reshape(mask, (*shape[: -2 * n], length_q, length_k))

    def flatten_padding(self, mask):
        """A padding mask `(B, d1, ..., dn)` to `(B, ..., 1, T)`."""
        if mask is None:
            return None
        mask = _as_tensor(mask)
        if not self.free and len(self.attended) == 1:
            return mask
        if len(mask.shape) != 1 + len(self.free) + len(self.attended):
            return mask
        moved = ops.transpose(mask, (0, *self.free, *self.attended))
        # Not -1: beside an empty batch, that is anything.
        shape, start = ops.shape(moved), 1 + len(self.free)
        return ops.reshape(moved, (*shape[:start], 1, product(shape[start:])))

    def input_padding(self, visible, inputs):
        """A mask `(B, ..., N, T)` to the layout of `inputs`, or None.

        A position counts as visible where any head sees it.
        """
        if visible is None:
            return None
        visible = ops.any(visible, axis=-2)
        if not self.free and len(self.attended) == 1:
            return visible
        *kept, length = ops.shape(visible)
        lengths = self._lengths(inputs)
        if isinstance(length, int) and length == 1:
            lengths = [1] * len(lengths)
        visible = ops.reshape(visible, (*kept, *lengths))
        order = (0, *self.free, *self.attended)
        back = [order.index(i) for i in range(len(order))]
        return ops.transpose(visible, back)

    def static_shape(self, input_shape, num_heads, width):
        """Shape of a projected input in the layout of the kernels."""
        lengths = [input_shape[a] for a in self.attended]
        length = product(lengths)
        free = [input_shape[a] for a in self.free]
        return (input_shape[0], *free, num_heads, length, width)

    def scores_shape(self, query_shape, key_shape, num_heads):
        """Shape of the scores that a layer returns."""
        free = [query_shape[a] for a in self.free]
        lengths = [
            s[a] for s in (query_shape, key_shape) for a in self.attended
        ]
        return (query_shape[0], *free, num_heads, *lengths)

    def _lengths(self, inputs):
        shape = ops.shape(inputs)
        return [shape[a] for a in self.attended]


def _as_tensor(mask):
    # Keras 3.10 makes float32 of a symbolic mask that it converts.
    return (
        mask if isinstance(mask, KerasTensor) else ops.convert_to_tensor(mask)
    )

"""Any number of leading axes, made the two that dense kernels see.

TensorFlow's operations do not take any number: with oneDNN a softmax takes
five axes, and what broadcasts may change between whole axes and axes of one
five times.
"""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_attention.ops.shapes import product

# Two leading axes and two more.
MOST = 4


def in_two(attend, query, key, value, mask, bias):
    """Returns what `attend` returns, which is shown two leading axes at most.

    Args:
        attend: Function of the other arguments that returns the context and
            the weights.
        query: Tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`, where K divides N.
        value: Tensor `(..., K, S, Hv)`.
        mask: An `AttentionMask`.
        bias: Additive bias that broadcasts to `(..., N, T, S)`, or None.

    Returns:
        A tuple of the context `(..., N, T, Hv)` and the weights
        `(..., N, T, S)`.
    """
    if len(query.shape) <= MOST:
        return attend(query, key, value, mask, bias)
    pairs = [part for part in (mask.full, bias) if part is not None]
    axes = _LeadingAxes(query, pairs)
    joined = dataclasses.replace(
        mask,
        full=axes.join_part(mask.full, 2),
        query=axes.join_part(mask.query, 1),
        key=axes.join_part(mask.key, 1),
    )
    inputs = (axes.join(x, 2) for x in (query, key, value))
    results = attend(*inputs, joined, axes.join_part(bias, 2))
    return tuple(axes.part(x) for x in results)


def with_rank(part, rank):
    """Returns a mask or bias with all its leading axes, or None."""
    if part is None or len(part.shape) == rank:
        return part
    return with_rank(ops.expand_dims(part, 0), rank)


class _LeadingAxes:
    """Joins all axes but the last ones to two, and parts them again.

    Heads make the second axis. Axes before them join these where that spares
    a mask from being repeated: one `(B, 1, 1, T, S)` for all axes but the
    first serves as `(B, 1, T, S)`.

    Args:
        query: Tensor `(..., N, T, H)`.
        pairs: Masks and biases that broadcast to `(..., N, T, S)`.
    """

    def __init__(self, query, pairs):
        self._shape = ops.shape(query)[:-2]
        self._static = tuple(query.shape[:-2])
        rank = len(query.shape)
        leads = [with_rank(pair, rank).shape[:-2] for pair in pairs]
        heads = rank - 3
        fits = [
            at
            for at in (heads, *range(1, heads))
            if not any(any(self._mixed(lead, at)) for lead in leads)
        ]
        self._at = [*fits, heads][0]

    def join(self, tensor, kept):
        """Returns a tensor with all axes but the last `kept` made two."""
        shape, at = ops.shape(tensor), self._at
        first, second = product(shape[:at]), product(shape[at:-kept])
        return ops.reshape(tensor, (first, second, *shape[-kept:]))

    def join_part(self, part, kept):
        """Returns a mask or bias joined, repeated only where it has to be."""
        if part is None:
            return None
        part = with_rank(part, len(self._shape) + kept)
        shape, at = ops.shape(part), self._at
        first, second = shape[:at], shape[at:-kept]
        mixed_first, mixed_second = self._mixed(part.shape[:-kept], at)
        if mixed_first:
            first = self._shape[:at]
        if mixed_second:
            second = self._shape[at:]
        if mixed_first or mixed_second:
            part = ops.broadcast_to(part, (*first, *second, *shape[-kept:]))
        return self.join(part, kept)

    def part(self, tensor):
        """Returns a joined tensor with the axes that the query had."""
        return ops.reshape(tensor, (*self._shape, *ops.shape(tensor)[2:]))

    def _mixed(self, lead, at):
        """Whether some of the axes before and after `at`, not all, are one."""
        sizes = list(zip(lead, self._static, strict=True))
        return [_mixes(side) for side in (sizes[:at], sizes[at:])]


def _mixes(sizes):
    """Whether a part's sizes, each beside the whole one, are one in part."""
    found = [size for size, whole in sizes if whole != 1]
    # What is unknown may turn out to be one.
    ones = [size is None or size == 1 for size in found]
    return len(found) > 1 and any(ones) and any(size != 1 for size in found)

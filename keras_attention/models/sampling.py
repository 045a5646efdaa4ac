"""Choosing the next token from logits, in each row for itself.

A row draws its random numbers from a seed of its own and the step it is at,
and from nothing else: it gets the same tokens alone, in a batch, and in a
server that puts requests together.
"""

from __future__ import annotations

import numpy as np
from keras import ops

# Odd multipliers whose products spread over all 32 bits.
_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_BITS = 23


def greedy(logits):
    """Returns the likeliest token of each row.

    Args:
        logits: Tensor `(B, V)`.

    Returns:
        An int32 tensor `(B,)`; the lowest id where several are likeliest.
    """
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


def sample(logits, uniform, temperature=1.0, top_k=None, top_p=None):
    """Draws a token for each row.

    Args:
        logits: Float tensor `(B, V)`; minus infinity is never drawn.
        uniform: Float tensor `(B,)` of numbers from 0 to below 1.
        temperature: What logits are divided by, a number or a tensor
            `(B,)`. A row at 0 gets its likeliest token.
        top_k: Number of likeliest tokens to draw from. None for all.
        top_p: Draws from the fewest likeliest tokens whose probabilities
            add up to at least this, a number or a tensor `(B,)`. None for
            all. Counted among the `top_k` if both are given.

    Returns:
        An int32 tensor `(B,)`.

    Example:

    >>> logits = ops.log(ops.array([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3]]))
    >>> sample(logits, ops.array([0.05, 0.95]), top_k=2).numpy().tolist()
    [2, 2]

    Reference:
        - [Hierarchical Neural Story
          Generation](https://arxiv.org/abs/1805.04833) for `top_k`
        - [The Curious Case of Neural Text
          Degeneration](https://arxiv.org/abs/1904.09751) for `top_p`
    """
    values, tokens = logits, None
    if top_k is not None or top_p is not None:
        size = logits.shape[-1]
        values, tokens = ops.top_k(logits, min(top_k or size, size))
    heat = ops.reshape(ops.cast(temperature, values.dtype), (-1, 1))
    positive = heat > 0
    values = values - ops.max(values, axis=-1, keepdims=True)
    weights = ops.exp(values / ops.where(positive, heat, 1.0))
    weights = weights / ops.sum(weights, axis=-1, keepdims=True)
    if top_p is not None:
        before = ops.cumsum(weights, axis=-1) - weights
        limit = ops.reshape(ops.cast(top_p, weights.dtype), (-1, 1))
        # One that rounds to zero lets the likeliest token in still.
        limit = ops.maximum(limit, np.finfo("float32").tiny)
        weights = ops.where(before < limit, weights, 0.0)
    reached = ops.cumsum(weights, axis=-1)
    target = ops.expand_dims(uniform, -1) * reached[:, -1:]
    choice = ops.sum(ops.cast(reached <= target, "int32"), axis=-1)
    if tokens is not None:
        choice = ops.take_along_axis(
            ops.cast(tokens, "int32"), ops.expand_dims(choice, -1), axis=-1
        )[:, 0]
    return ops.where(positive[:, 0], choice, greedy(logits))


def uniform(seeds, step):
    """Returns a random number for each row, the same each time.

    Args:
        seeds: Integer tensor `(B, 2)`.
        step: Integer scalar.

    Returns:
        A float32 tensor `(B,)` of numbers from 0 to below 1.

    Example:

    >>> first = uniform(ops.array([[3, 0], [3, 1], [3, 0]]), 5)
    >>> bool(first[0] == first[2]), bool(first[0] == first[1])
    (True, False)
    """
    seeds = ops.cast(seeds, "uint32")
    bits = _constant(0x27D4EB2F)
    for word in (seeds[:, 0], seeds[:, 1], ops.cast(step, "uint32")):
        bits = _mix(ops.bitwise_xor(bits, word))
    # So few bits that no product with a sum rounds up to the sum itself.
    bits = ops.right_shift(bits, _constant(32 - _BITS))
    return ops.cast(bits, "float32") * 2.0**-_BITS


def _mix(bits):
    """Spreads a change of any bit over all of them; one to one."""
    for multiplier, shift in zip(_MULTIPLIERS, (16, 13, 15), strict=True):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, _constant(shift)))
        bits = bits * _constant(multiplier)
    return ops.bitwise_xor(bits, ops.right_shift(bits, _constant(16)))


def _constant(number):
    return ops.convert_to_tensor(number, dtype="uint32")

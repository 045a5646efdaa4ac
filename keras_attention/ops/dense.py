"""Attention with the scores written out: the readable definition.

Similarity, scale, softmax, weighted sum. Runs on every Keras backend and
makes a tensor of shape `(..., T, S)`; `blockwise.py` gives the same numbers
without one.
"""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_attention.ops.masks import AttentionMask, finite_bias


def attend(
    query,
    key,
    value,
    mask: AttentionMask,
    *,
    bias=None,
    scale,
    dropout=0.0,
    seed=None,
):
    """Scaled dot-product attention that keeps its scores.

    Args:
        query: Float32 or float64 tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`, where K divides N.
        value: Tensor `(..., K, S, Hv)`.
        mask: An `AttentionMask`.
        bias: Additive bias that broadcasts to `(..., N, T, S)`, or None.
        scale: Number the queries are multiplied by.
        dropout: Rate at which weights are dropped; 0 at inference.
        seed: Seed of the dropout: integer or `keras.random.SeedGenerator`.

    Returns:
        A tuple of the context `(..., N, T, Hv)` and the attention weights
        `(..., N, T, S)` before dropout.
    """
    similarity = _grouped_matmul(query * scale, ops.swapaxes(key, -1, -2))
    weights = weigh(similarity, mask, bias)
    return average(weights, value, dropout, seed), weights


def weigh(scores, mask: AttentionMask, bias=None):
    """Turns scores into attention weights: bias, mask, softmax.

    Args:
        scores: Float32 or float64 tensor `(..., T, S)`, already scaled.
        mask: An `AttentionMask`, which hides what `bias` hides.
        bias: Additive bias that broadcasts to `(..., T, S)`, or None.

    Returns:
        Weights shaped like `scores`. Each row sums to one, or is all zero
        where a query may attend to nothing.
    """
    lowest = float(np.finfo(keras.backend.standardize_dtype(scores.dtype)).min)
    if bias is not None:
        scores = scores + finite_bias(bias, scores.dtype)
    shape = ops.shape(scores)
    visible = mask.dense(shape[-2], shape[-1])
    if visible is None:
        return _softmax(scores)
    if bias is not None:
        # Rows may see nothing but keys of the lowest bias.
        seen = ops.any(visible, axis=-1, keepdims=True)
        lowest = ops.where(seen, ops.cast(-np.inf, scores.dtype), lowest)
    # Selected before, so that nothing hidden counts, and after, so that a
    # row with nothing to see is zero instead of uniform.
    weights = _softmax(ops.where(visible, scores, lowest))
    return ops.where(visible, weights, ops.zeros((), weights.dtype))


def average(weights, value, dropout=0.0, seed=None):
    """Averages the values with weights, of which dropout spares some.

    Args:
        weights: Attention weights `(..., N, T, S)`.
        value: Tensor `(..., K, S, Hv)`, where K divides N.
        dropout: Rate at which weights are dropped; 0 at inference.
        seed: Seed of the dropout: integer or `keras.random.SeedGenerator`.

    Returns:
        The context `(..., N, T, Hv)`.
    """
    if dropout:
        weights = drop(weights, dropout, seed)
    return _grouped_matmul(weights, value)


def drop(weights, rate, seed=None):
    """Drops weights at a rate above 0, up to all of them."""
    if rate == 1:
        # Earlier releases of Keras refuse to drop all.
        return ops.zeros_like(weights)
    return keras.random.dropout(weights, rate, seed=seed)


def _softmax(scores):
    """Softmax over the keys, of which there may be a single one."""
    if scores.shape[-1] == 1:
        # Keras warns of an axis of size one, which is no mistake here.
        return ops.exp(scores - scores)
    return ops.softmax(scores, axis=-1)


def _grouped_matmul(left, right):
    """Matrix product where `right` may have fewer heads than `left`.

    `left` `(..., N, T, X)` times `right` `(..., K, X, Y)` is
    `(..., N, T, Y)`: each of the K heads serves N / K heads of `left`, which
    are stacked along T so that no head of `right` is repeated in memory.
    """
    if len(left.shape) < 4 or left.shape[-3] == right.shape[-3]:
        return ops.matmul(left, right)
    *lead, heads, rows, width = ops.shape(left)
    groups = right.shape[-3]
    stacked = (*lead, groups, heads // groups * rows, width)
    product = ops.matmul(ops.reshape(left, stacked), right)
    return ops.reshape(product, (*lead, heads, rows, ops.shape(right)[-1]))

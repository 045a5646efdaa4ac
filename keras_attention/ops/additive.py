"""Additive attention on projected queries and keys."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.ops import dense, leading_axes, shapes
from keras_attention.ops.masks import AttentionMask


def additive_attention(
    query,
    key,
    value,
    score_vector,
    mask: AttentionMask,
    *,
    attention_bias=None,
    dropout=0.0,
    seed=None,
    return_attention_scores=False,
):
    """Attention whose scores are `score_vector . tanh(query + key)`.

    Float16 and bfloat16 inputs are computed in float32 and cast last.

    Args:
        query: Tensor `(..., T, U)`, finite at hidden positions.
        key: Tensor `(..., S, U)`, finite at hidden positions.
        value: Tensor `(..., S, Dv)`, finite at hidden positions.
        score_vector: Tensor `(U,)`.
        mask: An `AttentionMask`.
        attention_bias: Additive bias that broadcasts to `(..., T, S)`, or
            None.
        dropout: Rate at which attention weights are dropped. Pass 0 at
            inference.
        seed: Integer or `keras.random.SeedGenerator` for the dropout.
        return_attention_scores: Whether to return the weights as well.

    Returns:
        A tuple of the context `(..., T, Dv)` and the weights `(..., T, S)`,
        taken before dropout, both in the dtype of `value`. The weights are
        None where they were not asked for.

    Raises:
        ValueError: `dropout` is not within [0, 1].
        TypeError: `seed` is a tensor or another thing that seeds nothing.

    Example:

    >>> query, key = ops.ones((2, 3, 8)), ops.ones((2, 5, 8))
    >>> context, _ = additive_attention(
    ...     query, key, ops.ones((2, 5, 4)), ops.ones(8), AttentionMask())
    >>> tuple(context.shape)
    (2, 3, 4)

    Reference:
        [Neural Machine Translation by Jointly Learning to Align and
        Translate](https://arxiv.org/abs/1409.0473)
    """
    shapes.check_dropout(dropout, seed)
    out_dtype = value.dtype
    wide = keras.backend.result_type(out_dtype, "float32")
    query, key, value, score_vector = (
        ops.cast(x, wide) for x in (query, key, value, score_vector)
    )

    def attend(query, key, value, mask, bias):
        pairs = ops.expand_dims(query, -2) + ops.expand_dims(key, -3)
        scores = ops.dot(ops.tanh(pairs), score_vector)
        weights = dense.weigh(scores, mask, bias)
        return dense.average(weights, value, dropout, seed), weights

    context, weights = leading_axes.in_two(
        attend, query, key, value, mask, attention_bias
    )
    context = ops.cast(context, out_dtype)
    if not return_attention_scores:
        return context, None
    return context, ops.cast(weights, out_dtype)

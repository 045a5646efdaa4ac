"""Attention whose scores come from elsewhere than a scaled dot product."""

import numpy as np

from keras_attention.reference.arrays import boolean, float64, zero_unless
from keras_attention.reference.attention import softmax


def additive_scores(query, key, scale_vector) -> np.ndarray:
    """Scores of additive attention (Bahdanau et al., 2015).

    Args:
        query: `(..., T, U)`, projected to U units where that is wanted.
        key: `(..., S, U)`.
        scale_vector: `(U,)`, or 1.0 for none.

    Returns:
        `(..., T, S)`: the sum over U of `scale_vector * tanh(query + key)`.

    Example: tanh(+-large) is +-1, so the score is 5 * 1 + 3 * -1.
    >>> print(additive_scores([[50, -50]], [[9, -9]], [5, 3]))
    [[2.]]
    """
    query, key = float64(query), float64(key)
    pairs = query[..., :, None, :] + key[..., None, :, :]
    return np.sum(float64(scale_vector) * np.tanh(pairs), axis=-1)


def multiplicative_scores(query, key, weight=None) -> np.ndarray:
    """Scores of multiplicative attention (Luong et al., 2015), unscaled.

    Args:
        query: `(..., T, D)`.
        key: `(..., S, E)`, where E is D unless a weight joins the two.
        weight: `(D, E)` for the "general" score; None for the "dot" score.

    Returns:
        `(..., T, S)`: `query @ weight @ key^T`.

    Example:
    >>> print(multiplicative_scores([[1, 2]], [[3, 4]]))  # 1*3 + 2*4
    [[11.]]
    >>> print(multiplicative_scores([[1, 2]], [[3]], [[5], [7]]))  # (5+14)*3
    [[57.]]
    """
    query, key = float64(query), float64(key)
    if weight is not None:
        query = query @ float64(weight)
    return query @ key.swapaxes(-1, -2)


def attention_from_scores(
    scores, value, visible=None
) -> tuple[np.ndarray, np.ndarray]:
    """The last two steps, softmax and weighted sum, for scores of any kind.

    Args:
        scores: `(..., T, S)`.
        value: `(..., S, Hv)`.
        visible: Boolean, broadcast to `(..., T, S)`.

    Returns:
        context `(..., T, Hv)` and weights `(..., T, S)`.

    Example:
    >>> context, _ = attention_from_scores([[0.0, 0.0]], [[4.0], [8.0]])
    >>> print(context)
    [[6.]]
    """
    scores = float64(scores)
    seen = scores != -np.inf
    if visible is not None:
        seen = seen & boolean(visible)
    weights = softmax(scores, seen)
    return weights @ zero_unless(seen.any(axis=-2), float64(value)), weights

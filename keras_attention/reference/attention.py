"""Attention itself: four steps, for one sequence and then for many."""

import math

import numpy as np

from keras_attention.reference.arrays import (
    boolean,
    float64,
    insert_axes,
    zero_unless,
)


def softmax(scores, visible=None) -> np.ndarray:
    """Turns scores into weights that sum to one over the last axis.

    A hidden entry, or one whose score is minus infinity, weighs exactly 0. A
    row with nothing to attend to is all zeros.

    Args:
        scores: `(..., S)`.
        visible: Boolean, broadcast to `(..., S)`; True where it may attend.

    Returns:
        Weights `(..., S)`, float64.

    Example:
    >>> print(softmax(np.log([1.0, 3.0, 4.0])))  # 1/8, 3/8, 4/8
    [0.125 0.375 0.5  ]
    >>> print(softmax(np.log([1.0, 3.0, 4.0]), visible=[True, True, False]))
    [0.25 0.75 0.  ]
    """
    scores = float64(scores)
    if visible is not None:
        scores = np.where(boolean(visible), scores, -np.inf)
    # Subtracting the largest score changes nothing but keeps exp in range.
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


def attend_one(
    query, key, value, visible=None, bias=None, scale=None
) -> tuple[np.ndarray, np.ndarray]:
    """Scaled dot-product attention over one sequence (Vaswani et al., 2017).

    What stands at a key that no query may see, even NaN, reaches nothing. A
    query that may see nothing receives zeros.

    Args:
        query: `(T, H)`.
        key: `(S, H)`.
        value: `(S, Hv)`.
        visible: Boolean `(T, S)`; True where query t may attend to key s.
        bias: `(T, S)`, added to the scaled scores; minus infinity hides,
            infinity is the largest number.
        scale: Factor of the similarities; `1 / sqrt(H)` if None.

    Returns:
        context `(T, Hv)` and weights `(T, S)`.

    Example: the scores are 0 and log 3, so the weights are 1/4 and 3/4, and
    the context is 4 / 4 + 8 * 3 / 4 = 7.
    >>> context, weights = attend_one([[np.log(3)]], [[0], [1]], [[4], [8]])
    >>> print(weights.round(6), context.round(6))
    [[0.25 0.75]] [[7.]]
    """
    query, key, value = float64(query), float64(key), float64(value)
    pairs = (len(query), len(key))
    bias = np.zeros(pairs) if bias is None else float64(bias)
    visible = np.ones(pairs, bool) if visible is None else boolean(visible)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale

    visible = visible & (bias != -np.inf)
    bias = np.nan_to_num(bias, nan=np.nan)
    # A weight of 0 alone would not do: 0 * NaN is NaN.
    query = zero_unless(visible.any(axis=1), query)
    key = zero_unless(visible.any(axis=0), key)
    value = zero_unless(visible.any(axis=0), value)

    similarity = query @ key.T  # 1. how alike are they?
    scores = similarity * scale + bias  # 2. undo growth with H
    weights = softmax(scores, visible)  # 3. shares that sum to one
    context = weights @ value  # 4. the average value
    return context, weights


def visible_pairs(
    query_length,
    key_length,
    use_causal_mask=False,
    sliding_window=None,
    causal_offset=0,
) -> np.ndarray:
    """Which query may see which key, by their positions alone.

    Query t stands at position `t + causal_offset`, key s at position s. Both
    the causal mask and the window go by these positions.

    Args:
        query_length: T.
        key_length: S.
        use_causal_mask: Whether a query sees no later key.
        sliding_window: How near a key must be, to either side; None for any
            distance.
        causal_offset: The position of the first query.

    Returns:
        Boolean `(T, S)`, True where query t may attend to key s.

    Example:
    >>> print(visible_pairs(2, 3, use_causal_mask=True).astype(int))
    [[1 0 0]
     [1 1 0]]
    >>> print(visible_pairs(3, 3, True, sliding_window=2).astype(int))
    [[1 0 0]
     [1 1 0]
     [0 1 1]]
    """
    query_position = np.arange(query_length)[:, None] + causal_offset
    key_position = np.arange(key_length)[None, :]
    visible = np.ones((query_length, key_length), bool)
    if use_causal_mask:
        visible &= key_position <= query_position
    if sliding_window is not None:
        visible &= np.abs(query_position - key_position) < sliding_window
    return visible


def dot_product_attention(
    query,
    key,
    value,
    attention_mask=None,
    attention_bias=None,
    *,
    query_mask=None,
    key_mask=None,
    use_causal_mask=False,
    sliding_window=None,
    causal_offset=0,
    scale=None,
) -> tuple[np.ndarray, np.ndarray]:
    """`attend_one` for every sequence and head of a batch.

    The leading axes are any, most often `(B, N)`. Masks and bias may leave
    out the axes between the batch and T. All masks must agree that a query
    may see a key.

    Args:
        query: `(..., N, T, H)`.
        key: `(..., K, S, H)`. With fewer heads than the query, each serves
            `N // K` query heads in a row (Ainslie et al., 2023).
        value: `(..., K, S, Hv)`.
        attention_mask: Boolean `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`.
        attention_bias: Added to the scaled scores; shapes as attention_mask.
        query_mask: Boolean `(B, T)`.
        key_mask: Boolean `(B, S)`.
        use_causal_mask: Hide later keys, see `visible_pairs`.
        sliding_window: Hide distant keys, see `visible_pairs`.
        causal_offset: The position of the first query.
        scale: Factor of the similarities; `1 / sqrt(H)` if None.

    Returns:
        context `(..., N, T, Hv)` and weights `(..., N, T, S)`.

    Raises:
        TypeError: A mask is of floats other than 0 and 1.
        ValueError: K does not divide N.

    Example: two sequences of three equal keys; the second is shorter by one.
    >>> context, _ = dot_product_attention(
    ...     query=np.zeros((2, 1, 4)), key=np.zeros((2, 3, 4)),
    ...     value=[[[1], [2], [6]], [[1], [2], [6]]],
    ...     key_mask=[[True, True, True], [True, True, False]])
    >>> print(context[:, 0, 0].round(6))  # (1 + 2 + 6) / 3, (1 + 2) / 2
    [3.  1.5]
    """
    query, key, value = float64(query), float64(key), float64(value)
    if query.ndim > 2:
        key = _repeat_heads(key, query.shape[-3])
        value = _repeat_heads(value, query.shape[-3])
    *leading, query_length, _ = query.shape
    key_length = key.shape[-2]
    shape = (*leading, query_length, key_length)

    visible = np.ones(shape, bool) & visible_pairs(
        query_length, key_length, use_causal_mask, sliding_window, causal_offset
    )
    bias = np.zeros(shape)
    rank = len(shape)
    if attention_mask is not None:
        visible &= insert_axes(boolean(attention_mask), rank, before=2)
    if query_mask is not None:
        mask = insert_axes(boolean(query_mask), rank - 1, before=1)
        visible &= mask[..., :, None]
    if key_mask is not None:
        mask = insert_axes(boolean(key_mask), rank - 1, before=1)
        visible &= mask[..., None, :]
    if attention_bias is not None:
        bias += insert_axes(float64(attention_bias), rank, before=2)

    context = np.empty((*leading, query_length, value.shape[-1]))
    weights = np.empty(shape)
    for i in np.ndindex(*leading):
        context[i], weights[i] = attend_one(
            query[i], key[i], value[i], visible[i], bias[i], scale
        )
    return context, weights


def _repeat_heads(array, num_heads):
    num_own = array.shape[-3]
    if num_heads % num_own:
        raise ValueError(
            "The number of query heads must be a multiple of the number of "
            f"key/value heads. Received: {num_heads} and {num_own}"
        )
    return np.repeat(array, num_heads // num_own, axis=-3)

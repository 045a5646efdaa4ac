"""Dense passes for the short sequences among those of unknown length.

Where lengths are known only at run time, so is the faster kernel. The choice
is made within one pass, under one gradient: a branch with a gradient of its
own is lost when a SavedModel that was loaded is differentiated.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops import (
    blockwise_backward,
    blockwise_forward,
    dense,
    side_by_side,
)
from keras_attention.ops.blockwise_geometry import length_of, maximum
from keras_attention.ops.blockwise_inputs import Settings, compute_dtype
from keras_attention.ops.masks import AttentionMask


def forward(settings: Settings, tensors):
    """Attends densely or blockwise, as the lengths at run time ask for.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.

    Returns:
        What `blockwise_forward.forward` returns, then the weights and the
        weights that dropout left, which are empty if that is what ran.
    """

    def short():
        context, weights, kept = attend(settings, tensors)
        return context, tf.zeros((0, 0, 0), weights.dtype), weights, kept

    def long():
        none = tf.zeros((0, 0, 0), compute_dtype(tensors["query"]))
        return *blockwise_forward.forward(settings, tensors), none, none

    return tf.cond(_is_long(settings, tensors), long, short)


def backward(
    settings: Settings, tensors, upstream, context, norms, weights, kept
):
    """Finds the gradients, from what `forward` has kept.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context, `(heads, T, Hv)`.
        context: As `forward` returned it, like all that follow.
        norms: Norms of a blockwise pass.
        weights: Weights of a dense pass, `(heads, T, S)`.
        kept: These weights after dropout.

    Returns:
        What `blockwise_backward.backward` returns.
    """

    def short():
        return _differentiate(settings, tensors, upstream, weights, kept)

    def long():
        return blockwise_backward.backward(
            settings, tensors, upstream, context, norms
        )

    return tf.cond(_is_long(settings, tensors), long, short)


def _is_long(settings, tensors):
    lengths = (tf.shape(tensors[name])[1] for name in ("query", "key"))
    # As integers of 32 bits, the product could overflow.
    scores = tf.reduce_prod([tf.cast(n, tf.float32) for n in lengths])
    return scores > settings.dense_scores


def attend(settings: Settings, tensors):
    """Attends with the scores written out.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.

    Returns:
        A tuple of the context `(heads, T, Hv)` and the weights
        `(heads, T, S)` before and after dropout.
    """
    names = ("full", "queries", "keys", "bias")
    parts = [_per_head(tensors, name) for name in names]

    def attend_part(query, key, value, full, queries, keys, bias):
        mask = AttentionMask(
            full=full,
            query=queries,
            key=keys,
            causal=settings.causal,
            window=settings.window,
            offset=tensors.get("offset", settings.offset),
        )
        groups = _groups(settings, query, key)
        scores = _multiply(query * settings.scale, key, groups, transpose=True)
        weights = kept = dense.weigh(scores, mask, bias)
        if settings.dropout:
            kept = _drop(settings, tensors, weights)
        return _multiply(kept, value, groups), weights, kept

    inputs = _exact(tensors, "query", "key", "value")
    # Heads that share a key stay together, and draws are one for all.
    if settings.groups != 1 or settings.dropout:
        found = attend_part(*inputs, *parts)
    else:
        found = side_by_side.in_halves(attend_part, inputs, parts)
    context, weights, kept = found
    return tf.cast(context, tensors["query"].dtype), weights, kept


def _drop(settings, tensors, weights):
    draws = tf.random.stateless_uniform(tf.shape(weights), tensors["seed"])
    spared = draws >= settings.dropout
    zero = tf.zeros((), weights.dtype)
    return tf.where(spared, weights / settings.kept_share, zero)


def _differentiate(settings, tensors, upstream, weights, kept):
    """Returns the gradients of `attend`, from its weights."""

    def differentiate(query, key, value, upstream, weights, kept):
        groups = _groups(settings, query, key)
        pull = _multiply(upstream, value, groups, transpose=True)
        if settings.dropout:
            spared = tf.not_equal(kept, 0)
            zero = tf.zeros((), pull.dtype)
            pull = tf.where(spared, pull / settings.kept_share, zero)
        # What is hidden weighs nothing, and so has no gradient either.
        share = tf.reduce_sum(weights * pull, -1, keepdims=True)
        scores = weights * (pull - share)
        gradients = (
            _multiply(scores, key, groups) * settings.scale,
            _gather(scores, query, groups) * settings.scale,
            _gather(kept, upstream, groups),
        )
        return (*gradients, scores) if "bias" in tensors else gradients

    names = ("query", "key", "value")
    upstream = tf.cast(upstream, weights.dtype)
    inputs = (*_exact(tensors, *names), upstream, weights, kept)
    if settings.groups != 1 or "bias" in tensors:
        found = differentiate(*inputs)
    else:
        found = side_by_side.in_halves(differentiate, inputs)
    if "bias" in tensors:
        *found, scores = found
        names, found = (*names, "bias"), [*found, _sum_bias(tensors, scores)]
    return tuple(
        tf.cast(gradient, tensors[name].dtype)
        for name, gradient in zip(names, found, strict=True)
    )


def _sum_bias(tensors, scores):
    """Returns the gradient of the bias from those of the scores."""
    bias = tensors["bias"]
    total = tf.math.unsorted_segment_sum(
        scores, tensors["bias_of"], length_of(bias, 0)
    )
    ones = [axis for axis in (1, 2) if bias.shape[axis] == 1]
    return tf.reduce_sum(total, ones, keepdims=True)


def _exact(tensors, *names):
    dtype = compute_dtype(tensors["query"])
    return [tf.cast(tensors[name], dtype) for name in names]


def _per_head(tensors, name):
    """Returns a mask or bias for each head, or one that serves for all."""
    if name not in tensors or tensors[name].shape[0] == 1:
        return tensors.get(name)
    return tf.gather(tensors[name], tensors[f"{name}_of"])


def _groups(settings, query, key):
    heads, key_heads = length_of(query, 0), length_of(key, 0)
    return settings.groups or heads // maximum(key_heads, 1)


def _multiply(left, right, groups, transpose=False):
    """Returns the product of `(heads, T, X)` and `(key heads, X, Y)`.

    Heads that share a right side are stacked, so that it is not repeated.
    """
    product = tf.matmul(_stack(left, groups), right, transpose_b=transpose)
    heads, length, _ = _lengths(left)
    return tf.reshape(product, (heads, length, length_of(product, 2)))


def _gather(left, right, groups):
    """Returns `(heads, T, S)`, turned, times `(heads, T, X)`, by key head."""
    left, right = _stack(left, groups), _stack(right, groups)
    return tf.matmul(left, right, transpose_a=True)


def _stack(tensor, groups):
    heads, length, width = _lengths(tensor)
    return tf.reshape(tensor, (heads // groups, groups * length, width))


def _lengths(tensor):
    return [length_of(tensor, axis) for axis in range(3)]

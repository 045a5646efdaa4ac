"""The backward pass of the blockwise kernel.

Weights are found again, block by block, from the queries, the keys and the
log-sum-exp that the forward pass has kept: five products a block, no sum.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import Geometry, length_of
from keras_attention.ops.blockwise_inputs import Head, Settings
from keras_attention.ops.blockwise_loops import (
    BiasSum,
    RollingSum,
    Rows,
    WholeSum,
    loop,
)


def backward(settings: Settings, tensors, upstream, context, log_sums):
    """Finds the gradients, one block of queries at a time.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context, `(heads, T, Hv)`.
        context: Context `(heads, T, Hv)` from the forward pass.
        log_sums: Log-sum-exp `(heads, T, 1)` from the forward pass.

    Returns:
        A tuple of the gradients of "query", "key" and "value", and of "bias"
        where there is one, shaped and typed like these tensors.
    """
    geometry = settings.geometry(tensors)
    heads = length_of(tensors["query"], 0)
    found = [
        Rows(x.dtype, [length_of(x, axis) for axis in range(3)], geometry)
        for x in (tensors[name] for name in ("query", "key", "value"))
    ]
    bias = None
    if "bias" in tensors:
        bias = BiasSum(geometry, tensors["bias"], tensors["bias_of"])

    def per_head(number, states, totals, bias_state):
        head = Head(settings, tensors, geometry, number)
        # Heads that share a key and value follow each other.
        first = tf.equal(number % head.groups, 0)
        totals = [tf.where(first, tf.zeros_like(x), x) for x in totals]
        rows = _Upstream(head, upstream, context, log_sums)
        query, totals, bias_blocks = _one_head(
            head, geometry, rows, found[0], states[0], totals, bias
        )
        states = [
            query,
            found[1].write_head(states[1], head.key_number, totals[0]),
            found[2].write_head(states[2], head.key_number, totals[1]),
        ]
        if bias is not None:
            bias_state = bias.add(bias_state, number, bias_blocks)
        return states, totals, bias_state

    states, _, bias_state = loop(
        heads,
        per_head,
        [rows.state for rows in found],
        [tf.zeros(rows.shape[1:], log_sums.dtype) for rows in found[1:]],
        () if bias is None else bias.state,
    )
    results = map(Rows.result, found, states)
    return (*results,) if bias is None else (*results, bias_state.stack())


class _Upstream:
    """What the backward pass needs of each query of a head, `(T, ...)`."""

    def __init__(self, head: Head, upstream, context, log_sums):
        self.log_sum = head.take_rows(log_sums)
        gradient = head.take_rows(upstream)
        # Where a query saw nothing, its context was no function of anything.
        unseen = tf.math.is_inf(self.log_sum)
        self.gradient = tf.where(unseen, tf.zeros_like(gradient), gradient)
        along = self.gradient * head.take_rows(context)
        self.share = tf.reduce_sum(along, 1, keepdims=True)


def _one_head(
    head: Head, geometry: Geometry, rows: _Upstream, found, state, totals, bias
):
    """Returns the state of `found`, gradients of key and value, and bias."""
    kind = WholeSum if geometry.window is None else RollingSum
    sums = [kind(geometry, total) for total in totals]

    def per_block(block, query, key_state, value_state, bias_blocks):
        pieces = geometry.pieces(block)
        parts = [
            _one_piece(head, rows, block, index, piece)
            for index, piece in enumerate(pieces)
        ]
        scores, of_query, of_key, of_value = map(list, zip(*parts, strict=True))
        of_query = tf.transpose(tf.add_n(of_query) * head.scale)
        query = found.write_block(query, head.number, block, of_query)
        if bias is not None:
            bias_blocks = bias_blocks.write(
                block, bias.of_block(pieces, scores)
            )
        return (
            query,
            sums[0].add(key_state, block, pieces, of_key),
            sums[1].add(value_state, block, pieces, of_value),
            bias_blocks,
        )

    query, key_state, value_state, bias_blocks = loop(
        geometry.blocks,
        per_block,
        found.of_head(state),
        sums[0].state,
        sums[1].state,
        () if bias is None else bias.blocks(head.dtype),
    )
    totals = [sums[0].result(key_state), sums[1].result(value_state)]
    return found.end_head(state, head.number, query), totals, bias_blocks


def _one_piece(head: Head, rows: _Upstream, block, index, piece):
    """Returns gradients of scores `(size, rows)`, query, key and value."""
    log_sum, share = (
        tf.transpose(head.rows(x, block)) for x in (rows.log_sum, rows.share)
    )
    gradient = head.rows(rows.gradient, block) / head.kept_share
    weights = tf.exp(head.scores(block, piece) - log_sum)
    pull = tf.matmul(head.cut(head.value, piece), gradient, transpose_b=True)
    spared = head.spared(block, index, weights)
    kept = weights
    if spared is not None:
        zero = tf.zeros((), weights.dtype)
        kept, pull = (tf.where(spared, x, zero) for x in (weights, pull))
    scores = weights * (pull - share)
    return (
        scores,
        tf.matmul(head.cut(head.key, piece), scores, transpose_a=True),
        tf.matmul(scores, head.rows(head.query, block)),
        tf.matmul(kept, gradient),
    )

"""The forward pass of the blockwise kernel.

Loops over heads and, within a head, over blocks of queries. Scores lie with
the keys down and the queries across, `(keys, rows)`: then a range of keys is
cut without a copy, and the products run fastest.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import Geometry, length_of
from keras_attention.ops.blockwise_inputs import (
    Head,
    Settings,
    compute_dtype,
    minus_infinity,
)
from keras_attention.ops.blockwise_loops import (
    Rows,
    compiles_with_xla,
    loop,
)


def forward(settings: Settings, tensors):
    """Attends, one block of queries at a time.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.

    Returns:
        A tuple of the context `(heads, T, Hv)` and the log-sum-exp of the
        scores of each query, `(heads, T, 1)`: infinite where a query may
        attend to nothing.
    """
    geometry = settings.geometry(tensors)
    heads, length = (length_of(tensors["query"], axis) for axis in (0, 1))
    width = length_of(tensors["value"], 2)
    dtype = tensors["query"].dtype
    exact = compute_dtype(tensors["query"])
    contexts = Rows(dtype, (heads, length, width), geometry)
    log_sums = Rows(exact, (heads, length, 1), geometry)

    def per_head(number, *states):
        head = Head(settings, tensors, geometry, number)
        values = tf.concat([head.value, tf.ones_like(head.value[:, :1])], 1)

        def per_block(block, *states):
            results = _attend(head, geometry, values, block)
            return [
                rows.write_block(state, number, block, result)
                for rows, state, result in zip(
                    (contexts, log_sums), states, results, strict=True
                )
            ]

        begun = map(Rows.of_head, (contexts, log_sums), states)
        ended = loop(geometry.blocks, per_block, *begun)
        return [
            rows.end_head(state, number, end)
            for rows, state, end in zip(
                (contexts, log_sums), states, ended, strict=True
            )
        ]

    states = loop(heads, per_head, contexts.state, log_sums.state)
    return contexts.result(states[0]), log_sums.result(states[1])


def _attend(head: Head, geometry: Geometry, values, block):
    """Returns the context `(rows, Hv)` and log-sum-exp `(rows, 1)` of a block.

    `values` `(S, Hv + 1)` end on a column of ones. Weighted by weights not
    yet normalized, it gives the sum that normalizes them.
    """
    pieces = geometry.pieces(block)
    scores = [head.scores(block, piece) for piece in pieces]
    highest = _highest(scores)
    totals, sums = [], []
    for index, piece in enumerate(pieces):
        weights = tf.exp(scores[index] - highest)
        spared = head.spared(block, index, weights)
        if spared is not None:
            sums.append(tf.reduce_sum(weights, 0, keepdims=True))
            weights = tf.where(spared, weights, tf.zeros((), weights.dtype))
        part = head.cut(values, piece)
        totals.append(tf.matmul(part, weights, transpose_a=True))
    total = tf.add_n(totals)
    normalizer = tf.add_n(sums) if sums else total[-1:]
    # A query that sees nothing has a sum of zero, and gets a context of zero.
    unseen = tf.equal(normalizer, 0)
    queries_seen = head.queries_seen(block)
    if queries_seen is not None:
        unseen |= tf.logical_not(queries_seen)
    normalizer = tf.where(unseen, tf.ones_like(normalizer), normalizer)
    context = total[:-1] / (normalizer * head.kept_share)
    context = tf.where(unseen, tf.zeros_like(context), context)
    log_sum = highest + tf.math.log(normalizer)
    log_sum = tf.where(unseen, -minus_infinity(log_sum.dtype), log_sum)
    return tf.transpose(context), tf.transpose(log_sum)


def _highest(scores):
    """Returns the highest score of each query, or zero if all are hidden.

    Args:
        scores: List of `(keys, rows)`.

    Returns:
        A tensor `(1, rows)`.
    """
    tops = []
    for part in scores:
        keys, rows = length_of(part, 0), length_of(part, 1)
        if compiles_with_xla():
            tops.append(tf.reduce_max(part, 0, keepdims=True))
            continue
        # In two steps, as one reduction over so many keys is slow.
        groups = keys // _GROUP
        grouped = tf.reshape(part[: groups * _GROUP], (groups, _GROUP, rows))
        tops += [tf.reduce_max(grouped, 1), part[groups * _GROUP :]]
    highest = tf.reduce_max(tf.concat(tops, 0), 0, keepdims=True)
    hidden = tf.equal(highest, minus_infinity(highest.dtype))
    return tf.where(hidden, tf.zeros_like(highest), highest)


_GROUP = 64

"""The forward pass of the blockwise kernel.

Loops over heads, some at a time, and within these over blocks of queries.
Scores lie with the keys down and the queries across: so lie the operands of
the faster products.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import (
    Geometry,
    length_of,
    maximum,
)
from keras_attention.ops.blockwise_inputs import (
    Heads,
    Settings,
    compute_dtype,
    minus_infinity,
)
from keras_attention.ops.blockwise_loops import (
    Blocks,
    Rows,
    loop_over_blocks,
    loop_over_heads,
)

# Up to here on either side of zero, exponentials of scores and their sums are
# far from the ends of float32, and need not be shifted by the highest score.
SAFE_SCORE = 40.0


def forward(settings: Settings, tensors):
    """Attends, one block of queries at a time.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.

    Returns:
        A tuple of the context `(heads, T, Hv)` and the norms of each query,
        `(heads, T, 2)`: what to subtract from its scores, the highest, and
        what to divide their exponentials by. Both are infinite where a query
        may attend to nothing. As one number, the logarithm of their product,
        the second would be lost beside a high first.
    """
    geometry = settings.geometry(tensors)
    heads, length = (length_of(tensors["query"], axis) for axis in (0, 1))
    width = length_of(tensors["value"], 2)
    exact = compute_dtype(tensors["query"])
    together = geometry.together * settings.groups_in(tensors)
    rows = [
        Rows(tensors["query"].dtype, (heads, length, width), together),
        Rows(exact, (heads, length, 2), together),
    ]

    def per_step(step, *states):
        heads = Heads(settings, tensors, geometry, step)
        value = tf.concat([heads.value, tf.ones_like(heads.value[..., :1])], 2)
        safe = _is_safe(heads, tensors)
        blocks = [Blocks(geometry, together, r) for r in rows]

        def per_block(block, *arrays):
            found = _attend(heads, geometry, value, safe, block)
            return [
                b.write(array, block, part)
                for b, array, part in zip(blocks, arrays, found, strict=True)
            ]

        arrays = loop_over_blocks(
            geometry, per_block, *(b.array for b in blocks)
        )
        found = [b.join(array) for b, array in zip(blocks, arrays, strict=True)]
        found = _without_hidden(heads.queries_seen(), *found)
        return [
            r.write(state, step, part)
            for r, state, part in zip(rows, states, found, strict=True)
        ]

    steps = length_of(tensors["key"], 0) // maximum(geometry.together, 1)
    states = loop_over_heads(
        geometry, steps, per_step, *(r.state for r in rows)
    )
    context, norms = map(Rows.result, rows, states)
    return context, norms


def _is_safe(heads: Heads, tensors):
    """Returns whether no score can be beyond `SAFE_SCORE`.

    By the inequality of Cauchy and Schwarz, from the lengths of the vectors.
    """
    if "bias" in tensors:
        return False
    longest = [
        tf.reduce_max(tf.reduce_sum(tf.square(x), -1))
        for x in (heads.query, heads.key)
    ]
    return longest[0] * longest[1] <= SAFE_SCORE**2


def _attend(heads: Heads, geometry: Geometry, value, safe, block):
    """Returns context `(k, Hv, G * rows)` and norms of a block.

    `value` `(k, S, Hv + 1)` ends on a column of ones. Weighted by weights not
    yet normalized, it gives the sum that normalizes them.
    """
    pieces = geometry.pieces(block)
    scores = [heads.scores(block, piece) for piece in pieces]
    scores, highest = _shift(scores, safe)
    totals, sums = [], []
    for index, piece in enumerate(pieces):
        weights = tf.exp(scores[index])
        spared = heads.spared(block, index, weights)
        if spared is not None:
            sums.append(tf.reduce_sum(weights, 1, keepdims=True))
            weights = tf.where(spared, weights, tf.zeros((), weights.dtype))
        part = heads.cut(value, piece)
        totals.append(tf.matmul(part, weights, transpose_a=True))
    total = tf.add_n(totals)
    context, normalizer = total[:, :-1], tf.add_n(sums or [total[:, -1:]])
    # A query that sees nothing has a sum of zero, and gets a context of zero.
    unseen = tf.equal(normalizer, 0)
    normalizer = tf.where(unseen, tf.ones_like(normalizer), normalizer)
    # A product with the inverse takes a tenth of the time of a division.
    context *= 1 / (normalizer * heads.kept_share)
    context = tf.where(unseen, tf.zeros((), context.dtype), context)
    norms = tf.concat([highest, normalizer], 1)
    return context, tf.where(unseen, -minus_infinity(norms.dtype), norms)


def _without_hidden(seen, context, norms):
    """Returns the results with those of hidden queries as if they saw none."""
    if seen is None:
        return context, norms
    infinity = -minus_infinity(norms.dtype)
    return (
        tf.where(seen, context, tf.zeros((), context.dtype)),
        tf.where(seen, norms, infinity),
    )


def _shift(scores, safe):
    """Returns the scores less the highest of each query, and that one.

    Zero stands for the highest where the scores are safe as they are, or all
    hidden.
    """

    def shifted():
        tops = [tf.reduce_max(part, 1, keepdims=True) for part in scores]
        highest = tf.reduce_max(tf.concat(tops, 1), 1, keepdims=True)
        hidden = tf.equal(highest, minus_infinity(highest.dtype))
        highest = tf.where(hidden, tf.zeros_like(highest), highest)
        return [part - highest for part in scores], highest

    def unshifted():
        # Not of the first piece, which may be empty.
        return scores, tf.zeros_like(scores[-1][:, :1])

    return shifted() if safe is False else tf.cond(safe, unshifted, shifted)

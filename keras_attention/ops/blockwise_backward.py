"""The backward pass of the blockwise kernel.

Weights are found again, block by block, from the queries, the keys and the
norms that the forward pass has kept: five products a block, no sum. The
highest score is subtracted from whole scores alone, so that both passes round
alike; the division is done once, on the gradient of the context.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import (
    Geometry,
    Piece,
    length_of,
    lengths_of,
    maximum,
)
from keras_attention.ops.blockwise_inputs import Heads, Settings
from keras_attention.ops.blockwise_loops import (
    BiasSum,
    Blocks,
    Rows,
    kind_of_sum,
    loop_over_blocks,
    loop_over_heads,
    loop_over_tiles,
)


def backward(settings: Settings, tensors, upstream, context, norms):
    """Finds the gradients, one block of queries at a time.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context, `(heads, T, Hv)`.
        context: Context `(heads, T, Hv)` from the forward pass.
        norms: Norms `(heads, T, 2)` from the forward pass.

    Returns:
        A tuple of the gradients of "query", "key" and "value", and of "bias"
        where there is one, shaped and typed like these tensors.
    """
    # Dropout is drawn, and a bias differentiated, a block at a time.
    tiled = not settings.dropout and "bias" not in tensors
    geometry = settings.geometry(tensors, tiled)
    keys = geometry.together
    together = (keys * settings.groups_in(tensors), keys, keys)
    rows = [
        Rows(tensors[name].dtype, lengths_of(tensors[name]), count)
        for name, count in zip(("query", "key", "value"), together, strict=True)
    ]
    bias = BiasSum(settings, geometry, tensors) if "bias" in tensors else None

    def per_step(step, states, bias_state):
        heads = Heads(settings, tensors, geometry, step, norms)
        given = _Given(heads, upstream, context)
        found, bias_blocks = _one_step(heads, geometry, given, rows, bias)
        states = [
            r.write(state, step, gradient)
            for r, state, gradient in zip(rows, states, found, strict=True)
        ]
        if bias is not None:
            bias_state = bias.add(bias_state, step, bias_blocks)
        return states, bias_state

    states, bias_state = loop_over_heads(
        geometry,
        length_of(tensors["key"], 0) // maximum(keys, 1),
        per_step,
        [r.state for r in rows],
        () if bias is None else bias.state,
    )
    results = map(Rows.result, rows, states)
    return (*results,) if bias is None else (*results, bias.result(bias_state))


class _Given:
    """What the backward pass of a step is given, beside `Heads`.

    Attributes:
        pulling: Gradient `(k * G, T, Hv + 1)` of the context, as it was
            before what dropout spares was scaled up, and, in one more column,
            what all keys of a query bear together, to be subtracted; both
            divided by what normalizes the weights of the query.
        value: The values `(k, S, Hv + 1)`, which end on a column of ones.
    """

    def __init__(self, heads: Heads, upstream, context):
        upstream = heads.take_rows(upstream)
        along = upstream * heads.take_rows(context)
        share = tf.reduce_sum(along, 2, keepdims=True)
        pulling = tf.concat([upstream / heads.kept_share, -share], 2)
        self.pulling = pulling * heads.inverse
        ones = tf.ones_like(heads.value[..., :1])
        self.value = tf.concat([heads.value, ones], 2)


def _one_step(heads: Heads, geometry: Geometry, given: _Given, rows, bias):
    """Returns gradients of query, key and value, and the bias's blocks."""
    kind = kind_of_sum(geometry)
    sums = [kind(geometry, x) for x in (heads.key, heads.value)]
    queries = Blocks(geometry, heads.count, rows[0])

    def per_block(block, array, key_state, value_state, bias_blocks):
        pieces = geometry.pieces_left(block)
        parts = [
            _one_piece(heads, given, block, index, piece)
            for index, piece in enumerate(pieces)
        ]
        scores, of_query, of_key, of_value = map(list, zip(*parts, strict=True))
        if bias is not None:
            scores = heads.to_rows(tf.concat(scores, 1))
            bias_blocks = bias_blocks.write(
                block, bias.of_block(pieces, scores)
            )
        of_query, *states = _add_tiles(
            heads,
            geometry,
            given,
            sums,
            block,
            tf.add_n(of_query),
            sums[0].add(key_state, block, pieces, of_key),
            sums[1].add(value_state, block, pieces, of_value),
        )
        array = queries.write(array, block, of_query * heads.scale)
        return array, *states, bias_blocks

    array, *states, bias_blocks = loop_over_blocks(
        geometry,
        per_block,
        queries.array,
        sums[0].state,
        sums[1].state,
        () if bias is None else bias.blocks(heads.count, heads.dtype),
    )
    totals = [s.result(state) for s, state in zip(sums, states, strict=True)]
    return [queries.join(array), *totals], bias_blocks


def _add_tiles(heads: Heads, geometry, given, sums, block, *found):
    """Returns what is found for a block, with the tiles before it added."""

    def per_tile(tile, of_query, *states):
        piece = Piece(tile * geometry.tile, geometry.tile)
        _, query, *parts = _one_piece(heads, given, block, 0, piece)
        states = [
            s.add_tile(state, tile, part)
            for s, state, part in zip(sums, states, parts, strict=True)
        ]
        return of_query + query, *states

    return loop_over_tiles(geometry, block, per_tile, *found)


def _one_piece(heads: Heads, given: _Given, block, index, piece):
    """Returns gradients of scores `(k, size, G * rows)`, and of the inputs."""
    pulling = heads.across(given.pulling, block)
    gradient = pulling[..., :-1]
    value = heads.cut(given.value, piece)
    weights = tf.exp(heads.scores(block, piece))
    spared, kept = heads.spared(block, index, weights), weights
    if spared is None:
        pull = tf.matmul(value, pulling, transpose_b=True)
    else:
        zero = tf.zeros((), weights.dtype)
        kept = tf.where(spared, weights, zero)
        pull = tf.matmul(value[..., :-1], gradient, transpose_b=True)
        share = tf.transpose(pulling[..., -1:], (0, 2, 1))
        pull = tf.where(spared, pull, zero) + share
    scores = weights * pull
    return (
        scores,
        heads.sum_keys(piece, scores),
        tf.matmul(scores, heads.across(heads.query, block)),
        tf.matmul(kept, gradient),
    )

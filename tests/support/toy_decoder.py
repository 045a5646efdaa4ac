"""A decoder for the loops, small enough to be followed by hand.

Its logits hang on the last two tokens alone, by a table.
"""

import numpy as np
from keras import ops

VOCABULARY, PAD, END = 5, 0, 4
_TABLE = 2 * np.random.default_rng(0).normal(size=(VOCABULARY,) * 3)
TABLE = _TABLE.astype("float32")

PROMPTS = [[1, 2, 3], [2], [3, 1], [4, 2], []]
# Padding stands anywhere.
IDS = [[1, 2, 3, 0], [0, 0, 2, 0], [3, 0, 0, 1], [0, 4, 2, 0], [0, 0, 0, 0]]


class ToyDecoder:
    """Keeps the tokens themselves for a cache."""

    pad_id = PAD

    def make_caches(self, batch_size, length):
        return (ops.zeros((batch_size, length), "int32"),)

    def prefill(self, ids, last, caches, memory):
        missing = ops.shape(caches[0])[1] - ops.shape(ids)[1]
        cache = ops.pad(ids, [[0, 0], [0, missing]])
        return _look_up(cache, last), (cache,)

    def step(self, ids, index, caches, memory):
        columns = ops.arange(ops.shape(caches[0])[1])
        here = columns == ops.expand_dims(index, -1)
        cache = ops.where(here, ops.expand_dims(ids, -1), caches[0])
        return _look_up(cache, index), (cache,)


def log_probabilities(tokens):
    """What follows a list of tokens, padding left out, in float64."""
    logits = TABLE[tuple(([tokens[0]] + tokens)[-2:])].astype("float64")
    logits[PAD] = -np.inf
    return logits - np.log(np.exp(logits).sum())


def run(loop, ids, limits, size, chunk=100, seeds=None):
    """Returns the tokens and the number of steps that were taken."""
    seeds = np.zeros((len(ids), 2)) if seeds is None else seeds
    request, state = loop.start(
        ops.convert_to_tensor(ids, "int32"),
        ops.convert_to_tensor(limits, "int32"),
        ops.convert_to_tensor(seeds, "int32"),
        ops.convert_to_tensor(size, "int32"),
    )
    while int(state.step) < size and not bool(ops.all(state.ended)):
        state = loop.advance(request, state, ops.convert_to_tensor(chunk))
    return ops.convert_to_numpy(loop.result(state)).tolist(), int(state.step)


def _look_up(cache, index):
    index = ops.expand_dims(index, -1)
    last = ops.take_along_axis(cache, index, axis=1)
    before = ops.take_along_axis(cache, ops.maximum(index - 1, 0), axis=1)
    rows = (before * VOCABULARY + last)[:, 0]
    table = ops.convert_to_tensor(TABLE)
    return ops.take(ops.reshape(table, (-1, VOCABULARY)), rows, axis=0)

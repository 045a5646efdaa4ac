"""The loop that writes token after token, one graph for all lengths.

A loop is in two parts, both without Python inside: `start` reads the prompts,
allocates the caches at their final size and chooses the first token; `advance`
takes some steps more, and stops early where every row has ended. What a row
gets depends on that row alone.

A decoder is any object with

- `prefill(ids, last, caches, memory) -> (logits, caches)`: token ids `(B, T)`
  from position 0 on, and the logits `(B, V)` at position `last` `(B,)`;
- `step(ids, index, caches, memory) -> (logits, caches)`: one token a row,
  `(B,)`, at position `index` `(B,)`;
- `make_caches(batch_size, length)`: a tuple of zeros, batch first;
- `pad_id`: the id that stands for nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops

from keras_attention.models import sampling


class Request(NamedTuple):
    """What stays the same while the rows of a batch are written.

    Attributes:
        lengths: Number of tokens of each prompt, int32 `(B,)`.
        limits: Number of tokens to write at most, int32 `(B,)`.
        seeds: Seeds of each row, int32 `(B, 2)`.
        memory: Tuple of tensors with what an encoder has read.
    """

    lengths: Any
    limits: Any
    seeds: Any
    memory: tuple = ()


class State(NamedTuple):
    """What changes from step to step.

    Attributes:
        tokens: The tokens so far, then padding, int32 `(B, M)`.
        step: Number of tokens so far, an int32 scalar.
        ended: Which rows are complete, boolean `(B,)`.
        caches: Tuple of the caches of all blocks.
    """

    tokens: Any
    step: Any
    ended: Any
    caches: tuple


class SamplingLoop:
    """Writes the likeliest tokens, or drawn ones.

    Args:
        decoder: As above.
        end_token: Id that ends a row, which is its last one; or None.
        temperature: As in `sampling.sample`; None for the likeliest token.
        top_k: As in `sampling.sample`.
        top_p: As in `sampling.sample`.
    """

    def __init__(
        self, decoder, end_token=None, temperature=None, top_k=None, top_p=None
    ):
        self.decoder = decoder
        self.end_token = end_token
        self.temperature = temperature
        self.top_k, self.top_p = top_k, top_p

    def start(self, ids, limits, seeds, size, memory=()):
        """Reads the prompts and chooses the first token.

        Args:
            ids: Prompts, int32 `(B, T)`; padding stands anywhere.
            limits: As in `Request`.
            seeds: As in `Request`.
            size: Length M of the result, an int32 scalar of at least 1.
            memory: As in `Request`.

        Returns:
            A `Request` and a `State`.
        """
        pad_id = self.decoder.pad_id
        ids, lengths = compact(ids, pad_id)
        request = Request(lengths, limits, seeds, memory)
        logits, caches = prefill(self.decoder, ids, lengths, size, memory)
        tokens = ops.full((ops.shape(ids)[0], size), pad_id, dtype="int32")
        nothing = ops.zeros((), "int32")
        ended = (lengths == 0) | (limits < 1)
        state = State(tokens, nothing, ended, caches)
        return request, self._write(request, state, logits, caches)

    def advance(self, request, state, steps):
        """Takes up to `steps` steps more, an int32 scalar.

        Returns:
            A `State`.
        """
        last = ops.minimum(state.step + steps, ops.shape(state.tokens)[1])

        def unfinished(state):
            return (state.step < last) & ~ops.all(state.ended)

        def body(state):
            index = last_position(request, state.step)
            token = ops.take(state.tokens, state.step - 1, axis=1)
            logits, caches = self.decoder.step(
                token, index, state.caches, request.memory
            )
            return (self._write(request, state, logits, caches),)

        return ops.while_loop(unfinished, body, (state,))[0]

    def result(self, state):
        """Returns the tokens `(B, M)`."""
        return state.tokens

    def _write(self, request, state, logits, caches):
        """Returns the state after one more token."""
        token = self._choose(
            without(logits, self.decoder.pad_id), request, state
        )
        token = ops.where(state.ended, self.decoder.pad_id, token)
        tokens = put(state.tokens, state.step, ops.expand_dims(token, -1))
        step = state.step + 1
        ended = state.ended | (step >= request.limits)
        if self.end_token is not None:
            ended = ended | (token == self.end_token)
        return State(tokens, step, ended, caches)

    def _choose(self, logits, request, state):
        if self.temperature is None:
            return sampling.greedy(logits)
        return sampling.sample(
            logits,
            sampling.uniform(request.seeds, state.step),
            self.temperature,
            self.top_k,
            self.top_p,
        )


def compact(ids, pad_id):
    """Moves padding to the end of each row and cuts what is padding in all.

    Args:
        ids: Int32 tensor `(B, T)`.
        pad_id: Id that stands for padding.

    Returns:
        The ids, `(B, max(lengths))` but of one column at least, and the
        lengths of the rows, int32 `(B,)`.

    Example:

    >>> ids, lengths = compact(ops.array([[0, 7, 0, 4], [0, 0, 5, 0]]), 0)
    >>> ids.numpy().tolist(), lengths.numpy().tolist()
    ([[7, 4], [5, 0]], [2, 1])
    """
    ids = ops.pad(ids, ((0, 0), (0, 1)), constant_values=pad_id)
    is_token = ids != pad_id
    lengths = ops.sum(ops.cast(is_token, "int32"), axis=-1)
    width = ops.shape(ids)[1]
    columns = ops.arange(width, dtype="int32")
    # Distinct ranks: not every sort keeps the order of equals.
    order = ops.argsort(ops.where(is_token, columns, columns + width), axis=-1)
    ids = ops.take_along_axis(ids, ops.cast(order, "int32"), axis=-1)
    return ids[:, : ops.maximum(ops.max(lengths), 1)], lengths


def prefill(decoder, ids, lengths, size, memory):
    """Reads prompts and returns the logits after the last token of each.

    Args:
        decoder: A decoder as above.
        ids: Int32 tensor `(B, T)`, padding at the end.
        lengths: Number of tokens in each row, int32 `(B,)`.
        size: Number of tokens there will be room for.
        memory: As in `Request`.

    Returns:
        The logits `(B, V)` and the caches.
    """
    batch_size, width = ops.shape(ids)[0], ops.shape(ids)[1]
    caches = decoder.make_caches(batch_size, width + size)
    last = ops.maximum(lengths - 1, 0)
    return decoder.prefill(ids, last, caches, memory)


def last_position(request, step):
    """Returns where the last token of each row stands, int32 `(B,)`.

    Rows that have ended stay where they were, lest they run over the end of
    their caches or out of the positions that there are.
    """
    written = ops.minimum(step, request.limits - 1)
    return ops.maximum(request.lengths + written - 1, 0)


def without(logits, pad_id):
    """Returns float32 logits under which padding is never chosen."""
    is_padding = ops.arange(logits.shape[-1], dtype="int32") == pad_id
    return ops.where(is_padding, -float("inf"), ops.cast(logits, "float32"))


def put(tokens, step, column):
    """Returns `tokens` `(..., M)` with `column` `(..., 1)` at place `step`."""
    places = ops.arange(ops.shape(tokens)[-1], dtype="int32")
    return ops.where(places == step, column, tokens)

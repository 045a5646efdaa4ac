"""Beam search: the likeliest whole sequence that a beam of prefixes finds."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention.models.decoding_loop import (
    Request,
    compact,
    last_position,
    prefill,
    put,
    without,
)

_NEVER = -float("inf")


class BeamState(NamedTuple):
    """What changes from step to step, for W beams a row.

    Attributes:
        tokens: Prefixes that can go on, int32 `(B, W, M)`.
        scores: The logarithms of their probabilities, float32 `(B, W)`.
        results: Sequences that have ended, int32 `(B, W, M)`, best first.
        result_scores: Their scores under the length penalty, `(B, W)`;
            minus infinity where there is none yet.
        step: Number of tokens so far, an int32 scalar.
        ended: Which rows are complete, boolean `(B,)`.
        caches: Tuple of the caches, of `B * W` rows.
    """

    tokens: Any
    scores: Any
    results: Any
    result_scores: Any
    step: Any
    ended: Any
    caches: tuple


class BeamLoop:
    """Keeps the `num_beams` likeliest prefixes of each row.

    A sequence of n tokens scores `log(probability) / n ** length_penalty`. A
    row ends once no prefix can score higher than its worst result.

    Args:
        decoder: As in `decoding_loop`.
        end_token: Id that ends a sequence, which is its last one; or None.
        num_beams: Number of beams, W.
        length_penalty: 0 compares probabilities, 1 their average a token;
            more favours longer sequences.

    Reference:
        [Google's Neural Machine Translation
        System](https://arxiv.org/abs/1609.08144)
    """

    def __init__(
        self, decoder, end_token=None, num_beams=4, length_penalty=1.0
    ):
        self.decoder = decoder
        self.end_token = end_token
        self.num_beams = num_beams
        self.length_penalty = length_penalty

    def start(self, ids, limits, seeds, size, memory=()):
        """Reads the prompts and chooses the first tokens.

        Takes and returns what `SamplingLoop.start` does; nothing is drawn,
        so that the seeds play no part.
        """
        beams, pad_id = self.num_beams, self.decoder.pad_id
        ids, lengths = compact(ids, pad_id)
        request = Request(lengths, limits, seeds, memory)
        logits, caches = prefill(self.decoder, ids, lengths, size, memory)
        batch_size = ops.shape(ids)[0]
        tokens = ops.full((batch_size, beams, size), pad_id, dtype="int32")
        # All beams are the same at first: one of them goes on.
        scores = ops.where(ops.arange(beams) == 0, 0.0, _NEVER)
        scores = ops.tile(ops.expand_dims(scores, 0), (batch_size, 1))
        state = BeamState(
            tokens=tokens,
            scores=scores,
            results=tokens,
            result_scores=ops.full((batch_size, beams), _NEVER, "float32"),
            step=ops.zeros((), "int32"),
            ended=(lengths == 0) | (limits < 1),
            caches=self._per_beam(caches),
        )
        return request, self._write(request, state, self._per_beam(logits))

    def advance(self, request, state, steps):
        """Takes up to `steps` steps more, an int32 scalar."""
        last = ops.minimum(state.step + steps, ops.shape(state.tokens)[2])
        memory = self._per_beam(request.memory)

        def unfinished(state):
            return (state.step < last) & ~ops.all(state.ended)

        def body(state):
            index = self._per_beam(last_position(request, state.step))
            token = ops.take(state.tokens, state.step - 1, axis=2)
            logits, caches = self.decoder.step(
                ops.reshape(token, (-1,)), index, state.caches, memory
            )
            state = state._replace(caches=caches)
            return (self._write(request, state, logits),)

        return ops.while_loop(unfinished, body, (state,))[0]

    def result(self, state):
        """Returns the best sequence of each row, `(B, M)`."""
        return state.results[:, 0]

    def _write(self, request, state, logits):
        """Returns the state after one more token in every beam."""
        beams, pad_id = self.num_beams, self.decoder.pad_id
        choices = ops.log_softmax(without(logits, pad_id), axis=-1)
        width = choices.shape[-1]
        choices = ops.reshape(choices, (-1, beams, width))
        choices = ops.expand_dims(state.scores, -1) + choices
        # Of twice as many, enough go on even if all beams end here.
        scores, places = ops.top_k(
            ops.reshape(choices, (-1, beams * width)),
            min(2, width) * beams,
        )
        parents = ops.cast(places // width, "int32")
        token = ops.cast(places % width, "int32")
        tokens = put(
            _rows(state.tokens, parents),
            state.step,
            ops.expand_dims(token, -1),
        )
        step = state.step + 1
        ends = ops.expand_dims(step >= request.limits, -1)
        if self.end_token is not None:
            ends = ends | (token == self.end_token)
        ends = ops.broadcast_to(ends, ops.shape(scores))

        results, result_scores = self._merge(state, tokens, scores, ends, step)
        alive, kept = ops.top_k(ops.where(ends, _NEVER, scores), beams)
        parents = ops.take_along_axis(parents, kept, axis=1)
        new = BeamState(
            tokens=_rows(tokens, kept),
            scores=alive,
            results=results,
            result_scores=result_scores,
            step=step,
            ended=self._is_settled(request, alive, result_scores, step),
            caches=self._follow(state.caches, parents),
        )
        return _freeze(state, new)

    def _merge(self, state, tokens, scores, ends, step):
        """Returns the best of the results so far and those that end now."""
        scores = ops.where(ends, scores / self._norm(step), _NEVER)
        scores = ops.concatenate([state.result_scores, scores], axis=1)
        tokens = ops.concatenate([state.results, tokens], axis=1)
        scores, kept = ops.top_k(scores, self.num_beams)
        return _rows(tokens, kept), scores

    def _is_settled(self, request, alive, result_scores, step):
        """Whether no prefix of a row can become a result any more."""
        # Of one sum, the longest sequence has the highest score.
        best = alive[:, 0] / self._norm(request.limits)
        settled = result_scores[:, -1] >= best
        return settled | (step >= request.limits)

    def _norm(self, length):
        length = ops.maximum(ops.cast(length, "float32"), 1.0)
        return length**self.length_penalty

    def _per_beam(self, structure):
        """Repeats each row of all tensors for the beams of that row."""
        return keras.tree.map_structure(
            lambda x: ops.repeat(x, self.num_beams, axis=0), structure
        )

    def _follow(self, caches, parents):
        """Gives each beam the caches of the one that it goes on from."""
        batch_size = ops.shape(parents)[0]
        first = ops.arange(batch_size, dtype="int32") * self.num_beams
        rows = ops.reshape(ops.expand_dims(first, -1) + parents, (-1,))
        return tuple(ops.take(cache, rows, axis=0) for cache in caches)


def _rows(tokens, kept):
    """Takes the rows `kept` `(B, X)` of tokens `(B, W, M)`."""
    return ops.take_along_axis(tokens, ops.expand_dims(kept, -1), axis=1)


def _freeze(old, new):
    """Returns the new state, with what has ended as it was."""

    def keep(name):
        before, after = getattr(old, name), getattr(new, name)
        lead = (-1, *[1] * (len(after.shape) - 1))
        return ops.where(ops.reshape(old.ended, lead), before, after)

    names = ("tokens", "scores", "results", "result_scores")
    return new._replace(
        ended=old.ended | new.ended, **{name: keep(name) for name in names}
    )

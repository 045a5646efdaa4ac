"""Writing on from prompts: what a trained model says next."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_attention.layers import arguments
from keras_attention.models.compiled_loop import compiled_loop
from keras_attention.models.generation_settings import (
    GenerationSettings,
    read_ids,
    read_seeds,
)

_CHUNK = 16


def generate(
    model,
    prompts,
    max_new_tokens,
    *,
    source_ids=None,
    verbose=0,
    seed=None,
    **settings,
):
    """Writes on from each prompt, token by token.

    Each row gets exactly what it would get alone, however long the other
    prompts are. The loop is one graph without Python: it is compiled once for
    a model and a kind of settings, and then serves all batch sizes, lengths
    and values of `temperature`, `top_p` and `length_penalty`. A model keeps
    the eight loops used last. A loop stops early once every row has ended.
    Padding is never written.

    Args:
        model: A model such as `causal_language_model` or
            `sequence_to_sequence` returns, reloaded or not: a Functional
            model from token ids `(B, T)` to logits `(B, T, V)` whose
            attention stands in `DecoderBlock`s. What follows the last block
            must treat each position alone.
        prompts: Token ids: a list of lists of any lengths, or an array
            `(B, T)` with padding anywhere. An integer stands for that one
            token in each row, which is how a sequence-to-sequence model
            starts.
        max_new_tokens: Number of tokens to write at most, M.
        source_ids: What a sequence-to-sequence model reads, in the forms of
            `prompts`.
        verbose: 1 shows a progress bar, 0 nothing.
        seed: Integer, or one for each row. Rows of one integer draw
            different tokens; a row with a seed of its own draws the same in
            any batch, as the first row of that integer. None for new tokens
            each time.
        **settings: Fields of `GenerationSettings`: `end_token`,
            `temperature`, `top_k`, `top_p`, `num_beams`, `length_penalty`.

    Returns:
        The new tokens, a NumPy int32 array `(B, M)`: up to the end token and
        with it, then padding.

    Raises:
        TypeError: An argument is unknown, or ids are no integers.
        ValueError: A number is out of range, a prompt is empty, the model
            has no blocks with a cache, or more tokens are asked for than it
            has positions.

    Example:

    >>> from keras_attention.models import causal_language_model
    >>> model = causal_language_model(50, hidden_dim=16, num_heads=2)
    >>> generate(model, [[4, 7, 2], [9]], max_new_tokens=5).shape
    (2, 5)

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    job = _Job(model, prompts, max_new_tokens, source_ids, seed, settings)
    arguments.one_of("verbose", verbose, (0, 1))
    if not verbose:
        return job.result(job.advance(job.start(), job.size))
    bar = keras.utils.Progbar(job.size, unit_name="token")
    state = job.start()
    while not job.is_done(state):
        bar.update(int(state.step))
        state = job.advance(state, _CHUNK)
    bar.update(int(state.step), finalize=True)
    return job.result(state)


def stream(
    model, prompts, max_new_tokens, *, source_ids=None, seed=None, **settings
):
    """Writes on from each prompt and gives each token as it comes.

    Args:
        model: As in `generate`, like all that follow.
        prompts: Token ids.
        max_new_tokens: Number of tokens to write at most.
        source_ids: What a sequence-to-sequence model reads.
        seed: Integer, or one for each row, or None.
        **settings: Fields of `GenerationSettings`, `num_beams` apart: beams
            change their minds.

    Returns:
        An iterator over NumPy int32 arrays `(B,)`, the columns of what
        `generate` returns, until every row has ended.

    Raises:
        TypeError: As in `generate`, and at once.
        ValueError: Likewise; and for `num_beams` above 1.

    Example:

    >>> from keras_attention.models import causal_language_model
    >>> model = causal_language_model(50, hidden_dim=16, num_heads=2)
    >>> [tokens.shape for tokens in stream(model, [[4, 7], [9]], 3)]
    [(2,), (2,), (2,)]
    """
    job = _Job(model, prompts, max_new_tokens, source_ids, seed, settings)
    if job.settings.num_beams > 1:
        raise ValueError(
            "The tokens of a beam search are known at its end only. Call "
            "`generate`, or leave out `num_beams`. Received: "
            f"num_beams={job.settings.num_beams}"
        )
    return _columns(job)


def _columns(job):
    state = job.start()
    while True:
        step = int(state.step)
        yield ops.convert_to_numpy(state.tokens[:, step - 1])
        if job.is_done(state):
            return
        state = job.advance(state, 1)


class _Job:
    """The checked arguments of one call, and the loop that serves it."""

    def __init__(
        self, model, prompts, max_new_tokens, source_ids, seed, settings
    ):
        self.settings = GenerationSettings.of(settings)
        self.size = arguments.positive_integer("max_new_tokens", max_new_tokens)
        self._loop = compiled_loop(model, self.settings)
        decoder = self._loop.decoder
        self.settings.check_vocabulary(decoder.vocabulary_size, decoder.pad_id)
        sources = self._read_sources(decoder, source_ids)
        rows = len(sources[0]) if sources else 1
        if isinstance(prompts, (int, np.integer)):
            prompts = [[prompts]] * rows
        ids = read_ids(
            "prompts", prompts, decoder.vocabulary_size, decoder.pad_id
        )
        if sources and len(ids) != rows:
            raise ValueError(
                "`prompts` and `source_ids` must have as many rows as each "
                f"other. Received: {len(ids)} prompts and {rows} sources"
            )
        decoder.check_room(int((ids != decoder.pad_id).sum(1).max()), self.size)
        limits = np.full(len(ids), self.size, "int32")
        seeds = read_seeds(seed, len(ids))
        self._inputs = (ids, *sources, limits, seeds, np.int32(self.size))
        self._numbers = ops.convert_to_tensor(self.settings.numbers())
        self._request = None

    def start(self):
        """Reads the prompts; returns a state with the first token."""
        self._request, state = self._loop.start(
            self._numbers,
            *(ops.convert_to_tensor(x) for x in self._inputs),
        )
        return state

    def advance(self, state, steps):
        """Returns the state after up to `steps` tokens more."""
        steps = ops.convert_to_tensor(steps, "int32")
        return self._loop.advance(self._numbers, self._request, state, steps)

    def is_done(self, state):
        """Whether no token is to come."""
        return int(state.step) >= self.size or bool(ops.all(state.ended))

    def result(self, state):
        """Returns the tokens as a NumPy array."""
        return ops.convert_to_numpy(self._loop.result(state))

    def _read_sources(self, decoder, source_ids):
        if decoder.has_encoder != (source_ids is not None):
            wanted = "needs" if decoder.has_encoder else "takes no"
            raise ValueError(
                f"The model {wanted} `source_ids`: these are what an encoder "
                f"reads. Received: source_ids={source_ids}"
            )
        if source_ids is None:
            return ()
        size = decoder.source_vocabulary_size
        return (read_ids("source_ids", source_ids, size, decoder.pad_id),)

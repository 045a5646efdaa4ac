"""Decoding loops as graphs, made once for a model and a kind of settings."""

from __future__ import annotations

import operator

import keras

from keras_attention.models.cached_decoder import CachedDecoder

# Each is a graph or two of the whole model: a few tens of megabytes.
_MOST_LOOPS = 8


class CompiledLoop:
    """One loop over the cached blocks of a model.

    Both parts take the numbers of the settings first, as from
    `GenerationSettings.numbers`: one graph serves all of them.

    Args:
        decoder: A `CachedDecoder`.
        kind: A `GenerationSettings`, of which all but the numbers count.

    Attributes:
        decoder: The decoder.
        start: As in `SamplingLoop`, but for the numbers, and for the ids of
            a source after those of the prompts, where there is an encoder.
        advance: As in `SamplingLoop`, but for the numbers.
        result: As in `SamplingLoop`.
    """

    def __init__(self, decoder, kind):
        self.decoder = decoder
        self._kind = kind
        self.start, self.advance = self._start, self._advance
        self.result = kind.loop(decoder).result
        if keras.backend.backend() == "tensorflow":
            self._compile()

    def _start(self, numbers, ids, *others):
        *source_ids, limits, seeds, size = others
        memory = self.decoder.encode(*source_ids)
        loop = self._kind.loop(self.decoder, numbers)
        return loop.start(ids, limits, seeds, size, memory)

    def _advance(self, numbers, request, state, steps):
        loop = self._kind.loop(self.decoder, numbers)
        return loop.advance(request, state, steps)

    def _compile(self):
        """Gives both parts a signature, so that no call traces them again."""
        import tensorflow as tf

        numbers = tf.TensorSpec((None,), "float32")
        ids = tf.TensorSpec((None, None), "int32")
        self.start = tf.function(
            self._start,
            input_signature=[
                numbers,
                *[ids] * (2 if self.decoder.has_encoder else 1),
                tf.TensorSpec((None,), "int32"),
                tf.TensorSpec((None, 2), "int32"),
                tf.TensorSpec((), "int32"),
            ],
            autograph=False,
        )
        request, state = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype),
            self.start.get_concrete_function().structured_outputs,
        )
        self.advance = tf.function(
            self._advance,
            input_signature=[
                numbers,
                request,
                state,
                tf.TensorSpec((), "int32"),
            ],
            autograph=False,
        )
        # Traced by a call, loops of several kinds would look to TensorFlow
        # like one that is traced again and again, of which it warns.
        self.advance.get_concrete_function()


class _Loops:
    """What a model keeps of its loops; Keras looks into no plain object."""

    def __init__(self, model):
        self.decoder = CachedDecoder(model)
        self.by_kind = {}
        self._variables = model.variables

    def are_of(self, model):
        """Whether the model computes on the same variables still.

        Values may change, but what quantizes a model or adapts it by LoRA
        gives it other variables, which no compiled loop would read.
        """
        now = model.variables
        return len(now) == len(self._variables) and all(
            map(operator.is_, now, self._variables)
        )

    def of_kind(self, kind):
        """Returns the loop of a kind, and forgets the one unused longest."""
        loop = self.by_kind.get(kind) or CompiledLoop(self.decoder, kind)
        self.by_kind.pop(kind, None)
        self.by_kind[kind] = loop
        while len(self.by_kind) > _MOST_LOOPS:
            self.by_kind.pop(next(iter(self.by_kind)), None)
        return loop


def cached_decoder(model):
    """Returns the `CachedDecoder` of a model, the same one while it can be."""
    return _loops_of(model).decoder


def _loops_of(model):
    loops = getattr(model, "_decoding_loops", None)
    if not isinstance(loops, _Loops) or not loops.are_of(model):
        loops = model._decoding_loops = _Loops(model)
    return loops


def compiled_loop(model, settings):
    """Returns the loop of a model and settings, the same one while it can be.

    A model keeps the loops used last. Settings that differ in their numbers
    alone have one loop.

    Args:
        model: As in `generate`.
        settings: A `GenerationSettings`.

    Returns:
        A `CompiledLoop`.

    Raises:
        ValueError: The model cannot be read step by step.
    """
    return _loops_of(model).of_kind(settings.kind())

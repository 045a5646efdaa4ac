"""Decoding loops as graphs, made once for a model and its settings."""

from __future__ import annotations

import operator

import keras

from keras_attention.models.cached_decoder import CachedDecoder


class CompiledLoop:
    """One loop over the cached blocks of a model.

    Args:
        decoder: A `CachedDecoder`.
        settings: A `GenerationSettings`.

    Attributes:
        decoder: The decoder.
        start: As in `SamplingLoop`, but for the ids of a source after those
            of the prompts, where the model has an encoder.
        advance: As in `SamplingLoop`.
        result: As in `SamplingLoop`.
    """

    def __init__(self, decoder, settings):
        self.decoder = decoder
        self._loop = settings.loop(decoder)
        self.start, self.advance = self._start, self._loop.advance
        self.result = self._loop.result
        if keras.backend.backend() == "tensorflow":
            self._compile()

    def _start(self, ids, *others):
        *source_ids, limits, seeds, size = others
        memory = self.decoder.encode(*source_ids)
        return self._loop.start(ids, limits, seeds, size, memory)

    def _compile(self):
        """Gives both parts a signature, so that no call traces them again."""
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), "int32")
        self.start = tf.function(
            self._start,
            input_signature=[
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
            self._loop.advance,
            input_signature=[request, state, tf.TensorSpec((), "int32")],
            autograph=False,
        )
        # Traced by a call, loops of several settings would look to TensorFlow
        # like one that is traced again and again, of which it warns.
        self.advance.get_concrete_function()


class _Loops:
    """What a model keeps of its loops; Keras looks into no plain object."""

    def __init__(self, model):
        self.decoder = CachedDecoder(model)
        self.by_settings = {}
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

    Args:
        model: As in `generate`.
        settings: A `GenerationSettings`.

    Returns:
        A `CompiledLoop`.

    Raises:
        ValueError: The model cannot be read step by step.
    """
    loops = _loops_of(model)
    if settings not in loops.by_settings:
        loops.by_settings[settings] = CompiledLoop(loops.decoder, settings)
    return loops.by_settings[settings]

"""The functions of a served model that writes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_attention.export.interface import SignatureError
from keras_attention.models.decoding_loop import SamplingLoop, compact


class GeneratorSignatures:
    """Makes the `tf.function`s around one decoder.

    Args:
        decoder: A `CachedDecoder`.
        settings: A `GenerationSettings`.
        size: Number of tokens that are written at most, M.
        seed: Integer from which rows draw, all alike.
        start_token: Id that a decoder with an encoder starts with.

    Raises:
        ValueError: The settings do not fit the decoder.
    """

    def __init__(self, decoder, settings, size, seed, start_token):
        settings.check_vocabulary(decoder.vocabulary_size, decoder.pad_id)
        decoder.check_room(1, size)
        _check_start(decoder, start_token)
        self.decoder = decoder
        self.settings = settings
        self.size = size
        self.seed = seed
        self.start_token = start_token
        self._ids = "source_ids" if decoder.has_encoder else "token_ids"

    def generate(self):
        """From ids to new ids, by the settings."""
        loop = self.settings.loop(self.decoder)

        @tf.function(input_signature=[_ids(self._ids)], autograph=False)
        def generate(ids):
            rows = tf.shape(ids)[:1]
            limits = tf.fill(rows, self.size)
            seeds = tf.fill(rows, self.seed)
            return {"token_ids": self._run(loop, ids, limits, seeds)}

        return generate

    def generate_with_settings(self):
        """The same, with settings of its own for each row."""
        settings, decoder = self.settings, self.decoder
        signature = [
            _ids(self._ids),
            _numbers("max_new_tokens", tf.int32),
            _numbers("temperature", tf.float32),
            _numbers("top_p", tf.float32),
            _numbers("seed", tf.int32),
        ]

        @tf.function(input_signature=signature, autograph=False)
        def generate_with_settings(ids, limits, temperature, top_p, seeds):
            # What is no probability limits nothing.
            top_p = tf.where(top_p > 0, top_p, 1.0)
            # Logits divided by infinity may be no numbers.
            temperature = tf.minimum(temperature, tf.float32.max)
            loop = SamplingLoop(
                decoder, settings.end_token, temperature, settings.top_k, top_p
            )
            limits = tf.minimum(limits, self.size)
            return {"token_ids": self._run(loop, ids, limits, seeds)}

        return generate_with_settings

    def prefill(self, length):
        """From prompts to the logits after each, and a cache of `length`."""

        @tf.function(input_signature=[_ids("token_ids")], autograph=False)
        def prefill(ids):
            ids = _refuse_negative(ids, self.decoder.pad_id)
            ids, lengths = compact(ids, self.decoder.pad_id)
            ids = _refuse_longer(ids, lengths, length)
            caches = self.decoder.make_caches(tf.shape(ids)[0], length)
            last = tf.maximum(lengths - 1, 0)
            logits, caches = self.decoder.prefill(ids, last, caches)
            cache = tf.stack(caches, axis=1)
            # What padding left is nothing that a client should see.
            used = tf.sequence_mask(lengths, length)
            used = used[:, tf.newaxis, tf.newaxis, :, tf.newaxis, tf.newaxis]
            return {
                "logits": tf.cast(logits, tf.float32),
                "position": lengths,
                "cache": tf.cast(tf.where(used, cache, 0), tf.float32),
            }

        return prefill

    def decode_step(self, length):
        """From tokens and a cache to the logits after each, and a cache."""
        shapes, dtypes = self.decoder.cache_shapes, self.decoder.cache_dtypes
        if any(shape != shapes[0] for shape in shapes):
            raise SignatureError(
                "All blocks must have caches of one shape, to be served as "
                f"one tensor. Received: shapes (2, K, H) {shapes}"
            )
        pair, *heads = shapes[0]
        shape = (None, len(shapes), pair, length, *heads)
        signature = [
            _numbers("token", tf.int32),
            _numbers("position", tf.int32),
            tf.TensorSpec(shape, tf.float32, name="cache"),
        ]

        @tf.function(input_signature=signature, autograph=False)
        def decode_step(token, position, cache):
            token = _refuse_negative(token, self.decoder.pad_id)
            caches = tuple(
                tf.cast(one, dtype)
                for one, dtype in zip(
                    tf.unstack(cache, axis=1), dtypes, strict=True
                )
            )
            logits, caches = self.decoder.step(token, position, caches)
            return {
                "logits": tf.cast(logits, tf.float32),
                "cache": tf.cast(tf.stack(caches, axis=1), tf.float32),
            }

        return decode_step

    def _run(self, loop, ids, limits, seeds):
        """Runs a loop to its end, from the ids that a client sent."""
        ids = _refuse_negative(ids, self.decoder.pad_id)
        memory = ()
        if self.decoder.has_encoder:
            memory = self.decoder.encode(ids)
            # A source without tokens has no translation.
            is_empty = tf.reduce_all(ids == self.decoder.pad_id, axis=-1)
            start = tf.fill(tf.shape(ids)[:1], self.start_token)
            start = tf.where(is_empty, self.decoder.pad_id, start)
            ids = start[:, tf.newaxis]
        if self.decoder.max_length is not None:
            lengths = tf.math.count_nonzero(
                ids != self.decoder.pad_id, axis=-1, dtype=tf.int32
            )
            ids = _refuse_longer(ids, lengths, self.decoder.max_length)
            # All tokens but the last are read, and need a position.
            room = self.decoder.max_length - lengths + 1
            limits = tf.minimum(limits, room)
        seeds = tf.stack([seeds, tf.zeros_like(seeds)], axis=-1)
        size = tf.constant(self.size)
        request, state = loop.start(ids, limits, seeds, size, memory)
        return loop.result(loop.advance(request, state, size))


def with_texts(generate, postprocessing):
    """Adds the output `text` to a function, if there is a layer for it."""
    if postprocessing is None:
        return generate

    @tf.function(input_signature=generate.input_signature, autograph=False)
    def with_text(*inputs):
        outputs = generate(*inputs)
        text = postprocessing(outputs["token_ids"])
        return {**outputs, "text": text}

    return with_text


def _check_start(decoder, start_token):
    if not decoder.has_encoder:
        if start_token is None:
            return
        raise ValueError(
            "A model without an encoder starts with what it is sent. Leave "
            f"out `start_token`. Received: start_token={start_token}"
        )
    is_id = isinstance(start_token, (int, np.integer))
    known = is_id and 0 <= start_token < decoder.vocabulary_size
    if not known or start_token == decoder.pad_id:
        raise ValueError(
            "A sequence-to-sequence model needs `start_token`, the id that "
            "its target sequences began with in training, from 0 to "
            f"{decoder.vocabulary_size - 1} and not that of padding. "
            f"Received: start_token={start_token}"
        )


def _refuse_negative(ids, pad_id):
    """Returns the ids, once they are known to count from 0."""
    # Keras counts negative ids from the end of its table.
    check = tf.debugging.assert_non_negative(
        tf.where(ids == pad_id, 0, ids), message="Token ids count from 0."
    )
    return _after(check, ids)


def _refuse_longer(ids, lengths, longest):
    """Returns the ids, once there are known to be positions for them."""
    check = tf.debugging.assert_less_equal(
        lengths,
        longest,
        message=f"A prompt is longer than the {longest} positions there are.",
    )
    return _after(check, ids)


def _after(check, tensor):
    # Else the error of an operation further on may come first.
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def _ids(name):
    return tf.TensorSpec((None, None), tf.int32, name=name)


def _numbers(name, dtype):
    return tf.TensorSpec((None,), dtype, name=name)

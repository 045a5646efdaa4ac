"""A functional model as a decoder: read step by step, with caches.

The operations of the model run again, in order, on new inputs, by the same
layers with the same weights. Each decoder block is called with a cache, and
each layer that marks positions with the position at hand. So a decoder can be
had of any such model, a reloaded one too.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_attention import layers
from keras_attention.models.cached_calls import (
    CachedCalls,
    ModelSurvey,
    PassOn,
)
from keras_attention.models.scores import is_functional

_INPUTS = ("source_ids", "target_ids")
# Lengths and positions are int32.
_MOST_POSITIONS = 2**31 - 2


class CachedDecoder:
    """Reads token ids step by step, as the loops of generation need it.

    Args:
        model: A Functional model from token ids to logits, or one with the
            inputs `source_ids` and `target_ids`.

    Attributes:
        pad_id: Id that stands for padding.
        vocabulary_size: Number of ids that it writes, V.
        source_vocabulary_size: Number of ids that its encoder reads, or
            None without one.
        max_length: Number of positions that it can read, or None for any.
        has_encoder: Whether it reads a source before it writes.
        cache_shapes: Shape `(2, K, H)` of each cache, length left out.
        cache_dtypes: Dtype of each cache.

    Raises:
        ValueError: The model cannot be read step by step.
    """

    def __init__(self, model):
        target, sources = _inputs_of(model)
        self.has_encoder = bool(sources)
        survey = _survey(model, target)
        self.pad_id = survey.pad_id
        self.max_length = survey.max_length
        self.cache_shapes = [(2, *shape) for shape, _ in survey.caches]
        self.cache_dtypes = [dtype for _, dtype in survey.caches]
        self._encoder = self.source_vocabulary_size = None
        if sources:
            self._encoder = keras.Model(sources, survey.memory)
            self.source_vocabulary_size = _vocabulary_of(self._encoder)
        self._prefill = _rebuild(model, target, survey, is_prefill=True)
        self._step = _rebuild(model, target, survey, is_prefill=False)
        self.vocabulary_size = self._step.outputs[0].shape[-1]

    def make_caches(self, batch_size, length):
        """Returns a tuple of empty caches `(B, 2, length, K, H)`."""
        return tuple(
            ops.zeros((batch_size, pair, length, *heads), dtype=dtype)
            for (pair, *heads), dtype in zip(
                self.cache_shapes, self.cache_dtypes, strict=True
            )
        )

    def encode(self, *source_ids):
        """Reads a source once, for all steps to come.

        Args:
            *source_ids: Int32 `(B, S)`, or nothing without an encoder.

        Returns:
            A tuple of tensors, batch first.
        """
        if self._encoder is None:
            return ()
        return tuple(
            keras.tree.flatten(self._encoder(source_ids[0], training=False))
        )

    def prefill(self, ids, last, caches, memory=()):
        """Reads prompts from position 0 on.

        Args:
            ids: Token ids, int32 `(B, T)`, padding at the end.
            last: Position of the last token of each row, int32 `(B,)`.
            caches: From `make_caches`.
            memory: From `encode`.

        Returns:
            The logits `(B, V)` after that token, and the new caches.
        """
        return self._run(self._prefill, ids, last, caches, memory)

    def step(self, ids, index, caches, memory=()):
        """Reads one token more in each row.

        Args:
            ids: Token ids, int32 `(B,)`.
            index: Position of each, int32 `(B,)`.
            caches: From an earlier call.
            memory: From `encode`.

        Returns:
            The logits `(B, V)` after that token, and the new caches.
        """
        ids = ops.expand_dims(ids, -1)
        return self._run(self._step, ids, index, caches, memory)

    def check_room(self, length, count) -> None:
        """Refuses prompts after which there are too few positions."""
        positions = _MOST_POSITIONS
        if self.max_length is not None:
            positions = self.max_length
        if length + count - 1 <= positions:
            return
        raise ValueError(
            f"The model has {positions} positions, and reads all "
            "tokens but the last. Pass a smaller `max_new_tokens` or shorter "
            "prompts, or build the model with a larger `max_length`. "
            f"Received: a prompt of {length} tokens, max_new_tokens={count}"
        )

    def _run(self, model, ids, positions, caches, memory):
        logits, *caches = model(
            [ids, positions, *caches, *memory], training=False
        )
        return logits[:, 0], tuple(caches)


def _inputs_of(model):
    """Returns the input that is written on, and a list of the others."""
    if not is_functional(model):
        raise ValueError(
            "Text can be generated by a built Functional model only: the "
            "calls inside a subclassed model cannot be followed. "
            f"Received: model={model}"
        )
    by_name = {x.name: x for x in model.inputs}
    if len(by_name) == 1:
        return model.inputs[0], []
    if tuple(sorted(by_name)) == _INPUTS:
        return by_name["target_ids"], [by_name["source_ids"]]
    raise ValueError(
        "A model that writes has one input, of token ids, or the two inputs "
        f"{_INPUTS}. Received: inputs {sorted(by_name)}"
    )


def _survey(model, target):
    """Runs the model as it is, to find what a decoder has to know."""
    survey = ModelSurvey(target)
    _run_again(model, model.inputs, survey)
    if not survey.caches:
        raise ValueError(
            "No layer of the model takes `self_attention_cache`: build it of "
            f"`DecoderBlock`s. Received: model={model.name!r} with layers "
            f"{[type(layer).__name__ for layer in model.layers]}"
        )
    return survey


def _rebuild(model, target, survey, is_prefill):
    """Returns the model as one step: from tokens and caches to the same.

    Args:
        model: The Functional model.
        target: Its input of token ids that is written on.
        survey: What was found in it.
        is_prefill: Whether it reads whole prompts from position 0 on, or one
            token at any position.

    Returns:
        A Functional model from `[ids, positions, *caches, *memory]` to
        `[logits, *caches]`, where logits are `(B, 1, V)`.
    """
    ids = keras.Input((None if is_prefill else 1,), dtype=target.dtype)
    positions = keras.Input((), dtype="int32")
    caches = [
        keras.Input((2, None, *shape), dtype=dtype)
        for shape, dtype in survey.caches
    ]
    memory = [keras.Input(x.shape[1:], dtype=x.dtype) for x in survey.memory]
    calls = CachedCalls(ids, positions, caches, memory, is_prefill)
    inputs = [ids if x is target else x for x in model.inputs]
    logits = _run_again(
        model, inputs, calls, [positions, *caches, *memory]
    ).outputs[0]
    if len(logits.shape) != 3 or logits.shape[1] != 1:
        raise ValueError(
            "The output of a model that writes must be logits (B, T, V), "
            "made at each position from that position of the last block "
            f"alone. Received: output.shape={model.outputs[0].shape} of "
            f"model={model.name!r}"
        )
    return keras.Model(
        [ids, positions, *caches, *memory], [logits, *calls.new_caches]
    )


def _run_again(model, inputs, call, more_inputs=()):
    """Calls the operations of a model, in order, by a function.

    Args:
        model: A Functional or Sequential model.
        inputs: KerasTensors in place of its inputs.
        call: Function of an operation and its arguments.
        more_inputs: KerasTensors that `call` brings in.

    Returns:
        A Functional model, whose first output is that of `model`.
    """
    # What is brought in counts as an input, so that the graph is closed, and
    # goes somewhere, as older releases of Keras demand of inputs.
    passed = [PassOn()(x) for x in more_inputs]
    base = keras.Model(
        [*model.inputs, *more_inputs], [model.outputs[0], *passed]
    )
    return keras.models.clone_model(
        base,
        input_tensors=[*inputs, *more_inputs],
        clone_function=lambda layer: layer,
        call_function=call,
    )


def _vocabulary_of(encoder):
    """Returns the number of ids that the embeddings of a model know."""
    sizes = [
        layer.input_dim
        for layer in encoder.layers
        if isinstance(
            layer, (keras.layers.Embedding, layers.ReversibleEmbedding)
        )
    ]
    return min(sizes, default=2**31)

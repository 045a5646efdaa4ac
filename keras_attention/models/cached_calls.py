"""What becomes of each operation of a model that is read step by step."""

from __future__ import annotations

import inspect

import keras
from keras import ops

from keras_attention import layers
from keras_attention.ops import masks

_POSITIONS = (layers.PositionEmbedding, layers.SinusoidalPositionEncoding)


class ModelSurvey:
    """Calls each operation as it is, and notes what a decoder has to know.

    Args:
        target: The KerasTensor of ids that the model writes on.

    Attributes:
        caches: Shape `(K, H)` and dtype of the cache of each block.
        memory: KerasTensors that blocks attend to beside their own
            sequence: caches of the encoder's output and its masks, in the
            order of the calls.
        pad_id: Id that stands for padding among the ids of the target.
        max_length: Number of positions with a vector, or None for any.
    """

    def __init__(self, target):
        self._target = _Followers(target)
        self.caches = []
        self.memory = []
        self.pad_id = 0
        self.max_length = None

    def __call__(self, operation, *args, **kwargs):
        """Calls an operation."""
        if self._target.include(args, kwargs):
            if isinstance(operation, layers.PaddingMask):
                self.pad_id = operation.pad_id
            if isinstance(operation, _POSITIONS):
                _refuse_positions(operation, args, kwargs)
            if isinstance(operation, layers.PositionEmbedding):
                lengths = (self.max_length, operation.sequence_length)
                self.max_length = min(n for n in lengths if n is not None)
            if is_cacheable(operation):
                self._note(operation, _arguments(operation, args, kwargs))
        return self._target.add(operation, args, kwargs)

    def _note(self, block, arguments):
        attention = block.attention
        shape = (attention.num_key_value_heads, attention.key_dim)
        self.caches.append((shape, attention.compute_dtype))
        encoded = arguments.get("encoder_sequence")
        if encoded is None:
            return
        mask = _encoder_mask(arguments)
        cache = _CrossCache(block)(encoded, mask)
        self.memory += [cache] if mask is None else [cache, mask]


class CachedCalls:
    """Calls the blocks of a model with caches, and all else as it is.

    Args:
        target: KerasTensor of ids, `(B, 1)`, or `(B, T)` in a prefill.
        positions: KerasTensor `(B,)`: where the ids stand or, in a prefill,
            where the last ones do.
        caches: KerasTensors, one for each block.
        memory: KerasTensors, as in `ModelSurvey`.
        is_prefill: Whether the ids begin at position 0.

    Attributes:
        new_caches: KerasTensors, one for each block that was called.
    """

    def __init__(self, target, positions, caches, memory, is_prefill):
        self._target = _Followers(target)
        self._index = 0 if is_prefill else positions
        self._last = positions if is_prefill else None
        self._caches = caches
        self._memory = iter(memory)
        self._wrapped = {}
        self.new_caches = []

    def __call__(self, operation, *args, **kwargs):
        """Calls an operation."""
        if not self._target.include(args, kwargs):
            return operation(*args, **kwargs)
        if is_cacheable(operation):
            return self._call_block(operation, args, kwargs)
        if isinstance(operation, _POSITIONS):
            kwargs = {**kwargs, "start_index": self._index}
        return self._target.add(operation, args, kwargs)

    def _call_block(self, block, args, kwargs):
        arguments = _arguments(block, args, kwargs)
        cache = self._caches[len(self.new_caches)]
        cross_cache = cross_mask = None
        if arguments.get("encoder_sequence") is not None:
            cross_cache = next(self._memory)
            if _encoder_mask(arguments) is not None:
                cross_mask = next(self._memory)
        if id(block) not in self._wrapped:
            self._wrapped[id(block)] = _CachedBlock(block, name=block.name)
        output, cache = self._wrapped[id(block)](
            arguments["decoder_sequence"],
            cache,
            index=self._index,
            cross_cache=cross_cache,
            cross_mask=cross_mask,
        )
        self.new_caches.append(cache)
        # All that follows the last block treats each position alone.
        if self._last is not None and cache is self._is_last():
            output = _TakePosition()(output, self._last)
        return self._target.mark(output)

    def _is_last(self):
        """The newest cache, if all blocks have been called."""
        complete = len(self.new_caches) == len(self._caches)
        return self.new_caches[-1] if complete else None


def is_cacheable(operation) -> bool:
    """Whether a layer is a decoder block that takes a cache."""
    return (
        isinstance(operation, keras.Layer)
        and "self_attention_cache"
        in inspect.signature(operation.call).parameters
    )


class _Followers:
    """The tensors that hang on a first one."""

    def __init__(self, first):
        # The tensors themselves: an id alone could be given a second time.
        self._tensors = {id(first): first}

    def include(self, args, kwargs):
        """Whether any of the arguments hangs on the first tensor."""
        flat = keras.tree.flatten([args, kwargs])
        return any(id(x) in self._tensors for x in flat)

    def add(self, operation, args, kwargs):
        """Calls an operation; what it returns follows its arguments."""
        output = operation(*args, **kwargs)
        follows = self.include(args, kwargs)
        return self.mark(output) if follows else output

    def mark(self, output):
        """Notes that tensors hang on the first one, and returns them."""
        flat = keras.tree.flatten(output)
        self._tensors.update({id(x): x for x in flat})
        return output


class _Helper(keras.Layer):
    """A layer without weights of its own, around a block if there is one.

    Its outputs carry no mask but what the block gives them.
    """

    def __init__(self, block=None, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.block = block
        self.built = True

    def compute_mask(self, inputs, previous_mask=None):
        return None


class PassOn(_Helper):
    """Returns its input."""

    def call(self, inputs):
        """Does nothing."""
        return inputs


class _CachedBlock(_Helper):
    """Calls a decoder block with its cache at a position.

    A layer of its own, since Keras takes every call of one layer to return as
    many tensors as the first.
    """

    def call(self, sequence, cache, index, cross_cache=None, cross_mask=None):
        options = {}
        if cross_cache is not None:
            options = {
                "cross_attention_cache": cross_cache,
                "encoder_padding_mask": cross_mask,
            }
        output, cache, *_ = self.block(
            sequence,
            self_attention_cache=cache,
            self_attention_cache_update_index=index,
            **options,
        )
        return output, cache

    def compute_output_spec(
        self, sequence, cache, index, cross_cache=None, cross_mask=None
    ):
        dtype = self.block.compute_dtype
        return (
            keras.KerasTensor(sequence.shape, dtype),
            keras.KerasTensor(cache.shape, cache.dtype),
        )


class _CrossCache(_Helper):
    """Projects what an encoder has read, once for all steps."""

    def call(self, sequence, mask=None):
        return self.block.compute_cross_cache(sequence, mask)

    def compute_output_spec(self, sequence, mask=None):
        attention = self.block.cross_attention
        batch_size, length, _ = sequence.shape
        shape = (attention.num_key_value_heads, attention.key_dim)
        return keras.KerasTensor(
            (batch_size, 2, length, *shape), attention.compute_dtype
        )


class _TakePosition(_Helper):
    """Takes one position `(B,)` of each row of `(B, T, D)`, `(B, 1, D)`."""

    def call(self, sequence, position):
        position = ops.reshape(position, (-1, 1, 1))
        return ops.take_along_axis(sequence, position, axis=1)

    def compute_output_spec(self, sequence, position):
        batch_size, _, width = sequence.shape
        return keras.KerasTensor((batch_size, 1, width), sequence.dtype)


def _arguments(block, args, kwargs):
    """Returns the arguments of a call by name, if a cache goes with them."""
    bound = inspect.signature(block.call).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    lost = [
        name
        for name in ("decoder_attention_mask", "encoder_attention_mask")
        if arguments.get(name) is not None
    ]
    if not arguments.get("use_causal_mask", True):
        lost.append("use_causal_mask")
    if lost:
        raise ValueError(
            f"The block {block.name!r} is called with {', '.join(lost)}, and "
            "cannot write step by step so: a position may attend to those "
            "before it, all of them but padding. "
            f"Received: {lost[0]}={arguments[lost[0]]}"
        )
    return arguments


def _refuse_positions(layer, args, kwargs):
    """Refuses a position layer that does not count by itself."""
    call = inspect.signature(layer.call)
    positions = call.bind(*args, **kwargs).arguments.get("positions")
    if positions is not None:
        raise ValueError(
            f"The layer {layer.name!r} is called with `positions`, which are "
            "not known for the steps to come. Leave them out: positions "
            f"count from 0 then. Received: positions={positions}"
        )


def _encoder_mask(arguments):
    """Returns the padding mask of the encoder's output, or None."""
    mask = arguments.get("encoder_padding_mask")
    if mask is None:
        mask = masks.get_implicit_mask(arguments["encoder_sequence"])
    return mask

"""Keys and values of earlier calls, kept for the calls to come.

A cache is one tensor `(B, 2, S, K, H)` of fixed size S: keys at index 0 of
axis 1, values at index 1. A call that stands at positions `i` to `i + T - 1`
writes its own keys there and attends to all up to them.

The classes here answer, for one call, which keys it attends to and what its
masks mean for these:

- `Inputs`: no cache, the keys are those of the inputs;
- `Stored`: the keys of a cache as they are, nothing is written;
- `Slots`: a cache that has a slot for each position;
- `Ring`: a cache for a sliding window, whose slots are used again.
"""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_attention.ops import cache_padding, in_place, indexing, masks
from keras_attention.ops.shapes import sizes_differ


def choose(query, cache, index, sliding_window=None):
    """Returns one of the classes above, after the checks of its arguments.

    Args:
        query: Tensor `(B, T, ...)`, whose lengths count.
        cache: Tensor `(B, 2, S, K, H)`, or None.
        index: Position of the first query: an integer or an integer tensor
            of shape `()`, or `(B,)` for one position a row. None to write
            nothing.
        sliding_window: As in `AttentionMask`.

    Returns:
        An object with the methods of `Inputs`.

    Raises:
        TypeError: The index is not made of integers.
        ValueError: An index without a cache, an index of another shape, or
            one at which the call would run over the end of the cache.
    """
    if cache is None:
        if index is not None:
            raise ValueError(
                "`cache_update_index` says where to write to a `cache`, and "
                "there is none. Pass `cache=layer.make_cache(batch_size, "
                f"max_length)`. Received: cache_update_index={index}"
            )
        return Inputs(query)
    if index is None:
        return Stored(query, cache)
    index = indexing.check_index(index, query.shape[0])
    size = cache.shape[2]
    # A cache whose size only the running graph knows is taken for a ring.
    is_short = size is not None and sliding_window and size < sliding_window
    if sliding_window is None or is_short:
        return Slots(query, cache, index)
    return Ring(query, cache, index, sliding_window)


def check_shape(cache, batch_size, heads, width) -> None:
    """Refuses a cache of another shape than `(B, 2, S, K, H)`."""
    shape = tuple(getattr(cache, "shape", ()))
    wanted = (batch_size, 2, None, heads, width)
    if len(shape) != 5 or any(map(sizes_differ, shape, wanted)):
        raise ValueError(
            "`cache` must be of shape (B, 2, S, K, H) with the batch size of "
            "the query and the key/value heads of the layer, "
            f"{wanted} here (None is any). `layer.make_cache(batch_size, "
            f"max_length)` makes one. Received: cache.shape={shape}"
        )


class Inputs:
    """No cache: the call attends to the keys of its inputs.

    Attributes:
        is_cached: Whether there is a cache.
        projects: Whether keys and values are projected from the inputs.
        writes: Whether these are written to the cache, as keys and values of
            the queries' own positions.
        key_length: Number of keys attended to, None where it is not known.
        mask_length: Number of positions that masks are about, None for any.

    Args:
        query: Tensor `(B, T, ...)`.
    """

    is_cached = False
    projects = True
    writes = False
    key_length: int | None = None
    mask_length: int | None = None

    def __init__(self, query):
        self._steps, self._static_steps = ops.shape(query)[1], query.shape[1]

    def query_positions(self):
        """Returns the positions of the queries, `(T,)` or `(B, T)`."""
        return ops.arange(self._steps, dtype="int32")

    def input_positions(self, length):
        """Returns the positions of the `length` keys of the inputs."""
        return ops.arange(length, dtype="int32")

    def key_positions(self, length):
        """Returns the positions of the `length` keys attended to."""
        return ops.arange(length, dtype="int32")

    def split(self, mask, name, inputs):
        """Returns a padding mask by position and one of the inputs alone."""
        return mask, None

    def join(self, key, value, own=None):
        """Returns the keys and values attended to, and the new cache.

        Args:
            key: Projected keys `(B, T, K, H)`.
            value: Projected values, likewise.
            own: As in `place`.
        """
        return key, value, None

    def place(self, mask, bias, own):
        """Returns mask and bias by the keys attended to.

        Args:
            mask: An `AttentionMask` by position.
            bias: Additive bias by position, or None.
            own: Boolean `(B, T)`, False where the call's own keys are
                padding, or None.
        """
        return mask, bias


class Stored(Inputs):
    """A cache that was computed once and is only read.

    Args:
        query: Tensor `(B, T, ...)`.
        cache: Tensor `(B, 2, S, K, H)`.
    """

    is_cached = True
    projects = False

    def __init__(self, query, cache):
        super().__init__(query)
        self._cache = cache
        self.key_length = self.mask_length = cache.shape[2]

    def check_inputs(self, key):
        """Refuses inputs that do not belong to the query."""

    def join(self, key, value, own=None):
        """Returns the cache, as it is."""
        return *_halves(self._cache), self._cache


class Slots(Stored):
    """A cache with a slot for each position, the slot s for position s.

    Args:
        query: Tensor `(B, T, ...)`.
        cache: Tensor `(B, 2, S, K, H)`.
        index: Integer, or int32 tensor `()` or `(B,)`.
    """

    projects = writes = True

    def __init__(self, query, cache, index):
        super().__init__(query, cache)
        self._index, self._size = index, ops.shape(cache)[2]
        self._first = (
            index if indexing.rank(index) == 0 else ops.expand_dims(index, 1)
        )
        # Lest a write that fails be quicker than the message that says why.
        self._checked = self._refuse_overrun()

    def query_positions(self):
        """Counts from the index on."""
        return indexing.count_from(self._index, self._steps)

    def input_positions(self, length):
        """Returns the positions of the queries: they are the same."""
        return self.query_positions()

    def check_inputs(self, key):
        """Refuses inputs of another length than the query."""
        if sizes_differ(self._static_steps, key.shape[1]):
            raise ValueError(
                "With `cache_update_index`, query, value and key are the same "
                "new positions, and so of the same length. For "
                "cross-attention pass the `cache` alone, from "
                "`layer.compute_cache(value)`. Received: query of length "
                f"{self._static_steps}, key.shape={tuple(key.shape)}"
            )

    def split(self, mask, name, inputs):
        """Tells apart masks of the call's own tokens and of the cache.

        The mask that Keras carries with the inputs is of the first kind. If
        both lengths are the same, so is the meaning.
        """
        if mask is None:
            return None, None
        if not cache_padding.is_of_inputs(mask, inputs, self._cache):
            return mask, None
        batch_size, length = inputs.shape[:2]
        return None, masks.check_padding(mask, name, (batch_size,), length)

    def own_part(self, key_mask):
        """Returns the call's own part `(B, T)` of a mask by position."""
        if key_mask is None:
            return None
        part = indexing.take(key_mask, self.query_positions())
        return ops.any(part, axis=-2)

    def join(self, key, value, own=None):
        """Writes the call's own keys, and attends to all slots."""
        entries = ops.stack([key, value], axis=1)
        cache = self._write(entries)
        return *_halves(cache), cache

    def place(self, mask, bias, own):
        """Hides slots after the call's own."""
        positions = self.key_positions(self._size)
        seen = ops.less(positions, self._first + self._steps)
        keys = masks.both(mask.key, _per_head(seen))
        if own is not None:
            entries = ops.reshape(own, (-1, 1, self._steps, 1, 1))
            nothing = ops.ones((1, 1, self._size, 1, 1), "bool")
            own = self._select(entries, nothing)[:, :, :, 0, 0]
            keys = masks.both(keys, own)
        full, offset = mask.full, 0
        # No key is later than an only query.
        causal = mask.causal and not _is(self._steps, 1)
        if causal and indexing.rank(self._index) == 1:
            rows = self.query_positions()[:, :, None]
            full = masks.both(full, (positions <= rows)[:, None])
            causal = False
        elif causal and not _is(self._index, 0):
            # A kernel is compiled once for all tensors, but for each integer.
            offset = ops.convert_to_tensor(self._index, "int32")
        placed = dataclasses.replace(
            mask,
            full=full,
            key=keys,
            causal=causal,
            window=None,
            offset=offset,
        )
        return placed, bias

    def _write(self, entries, count=None):
        """Returns the cache with `entries` in their slots.

        In place where they lie in a row, so that a step copies nothing.

        Args:
            entries: Tensor `(B, 2, T, K, H)`.
            count: As in `_select`.
        """
        start = self._start() if count is None else None
        if start is None or not in_place.is_possible():
            return self._select(entries, self._cache, count)
        return in_place.overwrite_rows(self._cache, start, entries)

    def _select(self, entries, cache, count=None):
        """Returns `cache` with `entries` in their slots, all made anew.

        Every slot selects what it holds: the last entry that falls on it,
        or else what was there.

        Args:
            entries: Tensor `(B, X, T, ...)`.
            cache: Tensor `(B, X, S, ...)`.
            count: How many of the entries to write, a length or `(B, 1)`.
                None for all.
        """
        count = self._steps if count is None else count
        slots = ops.arange(self._size, dtype="int32")
        last = self._first + count - 1
        source = count - 1 - ops.mod(last - slots, self._size)
        written = source >= 0
        if not _is(self._steps, 1):
            entries = indexing.take_slots(entries, ops.maximum(source, 0))
        shape = (1, 1, -1, 1, 1)
        if len(source.shape) == 2:
            shape = (-1, 1, self._size, 1, 1)
        return ops.where(ops.reshape(written, shape), entries, cache)

    def _start(self):
        """Returns the slot from which on entries lie in a row, or None."""
        return self._checked

    def _refuse_overrun(self):
        return indexing.refuse_beyond(
            self._index,
            self._steps,
            self._size,
            "The call runs over the end of `cache`, which has no slots for "
            "positions from S on. Make a longer one with "
            "`layer.make_cache(batch_size, max_length)`, or limit the steps.",
        )


class Ring(Slots):
    """A cache for a sliding window, where position p uses slot `p mod S`.

    Masks and biases are by position all the same, and so may be longer than
    the cache. The call attends to the `window - 1` positions before it, in
    order, and to its own.

    Args:
        query: Tensor `(B, T, ...)`.
        cache: Tensor `(B, 2, S, K, H)`, S at least `window`.
        index: Integer, or int32 tensor `()` or `(B,)`.
        window: As in `AttentionMask`.
    """

    def __init__(self, query, cache, index, window):
        super().__init__(query, cache, index)
        self._before = window - 1
        self.mask_length = self.key_length = None
        if self._static_steps is not None:
            self.key_length = self._before + self._static_steps

    def key_positions(self, length):
        """Counts from the first position in the window on."""
        return self._first - self._before + ops.arange(length, dtype="int32")

    def join(self, key, value, own=None):
        """Attends to the window before the call, and to its own keys."""
        entries = ops.stack([key, value], axis=1)
        slots = ops.mod(self.key_positions(self._before), self._size)
        earlier = indexing.take_slots(self._cache, slots)
        attended = ops.concatenate([earlier, entries], axis=2)
        count = None
        if own is not None:
            # Padding after a prompt takes no slot from a key in the window.
            ends = ops.arange(1, self._steps + 1, dtype="int32")
            count = ops.max(ops.where(own, ends, 0), axis=-1, keepdims=True)
        cache = self._write(entries, count)
        return *_halves(attended), cache

    def place(self, mask, bias, own):
        """Takes masks and bias at the positions in the window."""
        positions = self.key_positions(self._before + self._steps)
        keys = masks.both(
            self._taken(mask.key, positions), _per_head(positions >= 0)
        )
        if own is not None:
            ones = ops.ones_like(own[:, :1])
            ones = ops.repeat(ones, self._before, axis=1)
            own = ops.concatenate([ones, own], axis=1)
            keys = masks.both(keys, _per_head(own))
        placed = dataclasses.replace(
            mask,
            full=self._taken(mask.full, positions),
            key=keys,
            offset=self._before,
        )
        return placed, self._taken(bias, positions)

    def _taken(self, tensor, positions):
        """Returns a mask or bias at the positions attended to."""
        if tensor is None or tensor.shape[-1] == 1:
            return tensor
        indexing.refuse_beyond(
            self._index,
            self._steps,
            ops.shape(tensor)[-1],
            "With a sliding window, masks and biases are about positions, not "
            "slots. Their last axis must reach to the last position of the "
            "call.",
        )
        return indexing.take(tensor, positions)

    def _start(self):
        # Several may reach over the end, and begin again.
        one = _is(self._steps, 1)
        return ops.mod(self._checked, self._size) if one else None

    def _refuse_overrun(self):
        """A ring has no end, but a beginning."""
        return indexing.refuse_beyond(
            self._index, self._steps, 2**31 - 1, "Positions count from 0."
        )


def _halves(cache):
    """Returns the keys and the values of a cache, each `(B, S, K, H)`."""
    # Cut from the first axis, which copies nothing; for a batch of one, the
    # swap copies nothing either.
    pair = ops.swapaxes(cache, 0, 1)
    return pair[0], pair[1]


def _per_head(mask):
    """A mask `(S,)` or `(B, S)` with an axis for the heads."""
    if len(mask.shape) == 1:
        mask = ops.expand_dims(mask, 0)
    return ops.expand_dims(mask, 1)


def _is(length, value) -> bool:
    """Whether a length is known to be `value`."""
    return isinstance(length, int) and length == value

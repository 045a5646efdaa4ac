"""Where keys go in a cache, and which of them a call attends to."""

import numpy as np
import pytest
from keras import ops
from support.layer_contract import to_numpy

from keras_attention.ops import cache as cache_ops
from keras_attention.ops import masks

B, S, K, H = 2, 5, 3, 2


def numbered(*positions):
    """Heads `(B, T, K, H)` that hold the numbers of their positions."""
    row = np.array(positions, "float32")[None, :, None, None]
    return np.broadcast_to(row, (B, len(positions), K, H))


def held(cache):
    """What the slots of each row hold, `(B, S)`."""
    return to_numpy(cache)[:, 0, :, 0, 0].astype(int).tolist()


def written(index, *positions, window=None, own=None):
    keys = numbered(*positions)
    empty = ops.zeros((B, 2, S, K, H))
    slots = cache_ops.choose(keys, empty, index, window)
    return slots, slots.join(keys, -keys, own)


@pytest.mark.parametrize("index", [2, np.array([2, 2])])
def test_slots_are_positions(index):
    slots, (key, value, cache) = written(index, 8, 9)
    assert held(cache) == [[0, 0, 8, 9, 0]] * B
    np.testing.assert_array_equal(to_numpy(key), to_numpy(cache)[:, 0])
    np.testing.assert_array_equal(to_numpy(value), -to_numpy(key))
    mask, _ = slots.place(masks.AttentionMask(), None, None)
    seen = np.broadcast_to(to_numpy(mask.key), (B, 1, S))
    assert seen[:, 0].tolist() == [[1, 1, 1, 1, 0]] * B


def test_each_row_has_its_own_index():
    _, (_, _, cache) = written(np.array([0, 3]), 8, 9)
    assert held(cache) == [[8, 9, 0, 0, 0], [0, 0, 0, 8, 9]]


def test_a_ring_keeps_the_last_of_many():
    slots, (key, _, cache) = written(4, 4, 5, 6, 7, 8, 9, 10, window=3)
    assert held(cache) == [[10, 6, 7, 8, 9]] * B
    # Two positions before the call, still empty, then its own.
    assert to_numpy(key)[0, :, 0, 0].tolist() == [0, 0, 4, 5, 6, 7, 8, 9, 10]
    assert to_numpy(slots.key_positions(9)).tolist() == [*range(2, 11)]
    mask, _ = slots.place(masks.AttentionMask(window=3), None, None)
    assert (mask.offset, mask.window) == (2, 3)


def test_a_ring_begins_at_zero():
    with pytest.raises(ValueError, match="count from 0.*index=-1"):
        written(-1, 8, 9, window=3)


def test_padding_behind_takes_no_slot_of_a_ring():
    own = np.array([[1, 1, 1, 1, 0, 0], [1] * 6], bool)
    _, (_, _, cache) = written(0, *range(1, 7), window=3, own=own)
    assert held(cache) == [[1, 2, 3, 4, 0], [6, 2, 3, 4, 5]]


def test_a_ring_needs_room_for_its_window():
    empty = ops.zeros((B, 2, S, K, H))
    kinds = [
        type(cache_ops.choose(numbered(1), *arguments)).__name__
        for arguments in (
            (None, None),
            (empty, None),
            (empty, 0),
            (empty, 0, S),
            (empty, 0, S + 1),
        )
    ]
    assert kinds == ["Inputs", "Stored", "Slots", "Ring", "Slots"]

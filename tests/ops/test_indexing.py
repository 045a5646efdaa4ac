"""Positions are checked, and tensors are taken at them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.layer_contract import to_numpy

from keras_attention.ops import indexing


def test_takes_the_same_or_other_positions_for_each_row():
    tensor = np.arange(2 * 3 * 4).reshape((2, 3, 4))
    same = indexing.take(tensor, ops.convert_to_tensor([3, 0, 9, -1]))
    np.testing.assert_array_equal(same, tensor[..., [3, 0, 3, 0]])
    rows = ops.convert_to_tensor([[0, 1], [2, 3]])
    np.testing.assert_array_equal(
        indexing.take(tensor, rows),
        np.stack([tensor[0][:, :2], tensor[1][:, 2:]]),
    )
    slots = tensor.reshape((2, 1, 4, 3, 1))
    np.testing.assert_array_equal(
        indexing.take_slots(slots, rows),
        np.stack([slots[0][:, :2], slots[1][:, 2:]]),
    )


def test_counts_from_an_index():
    assert to_numpy(indexing.count_from(4, 3)).tolist() == [4, 5, 6]
    rows = indexing.count_from(ops.convert_to_tensor([4, 7]), 2)
    assert to_numpy(rows).tolist() == [[4, 5], [7, 8]]


@pytest.mark.parametrize("index", [3, np.int64(3), np.array(3), [3, 3]])
def test_takes_integers_of_any_kind(index):
    checked = indexing.check_index(index, 2)
    assert np.all(to_numpy(checked) == 3)


@pytest.mark.parametrize("index", [True, 0.5, np.ones(2)])
def test_refuses_what_is_no_integer(index):
    with pytest.raises(TypeError, match="must be an integer"):
        indexing.check_index(index, 2)


def test_an_end_is_kept_now_or_at_run_time():
    indexing.refuse_beyond(3, 2, 5, "Too far.")
    indexing.refuse_beyond(keras.KerasTensor((), "int32"), 9, 5, "Too far.")
    for index in (4, -1, ops.convert_to_tensor(4)):
        with pytest.raises(ValueError, match="Too far."):
            indexing.refuse_beyond(index, 2, 5, "Too far.")

    @tf.function
    def traced(index):
        indexing.refuse_beyond(index, 2, 5, "Too far.")
        return index

    traced(tf.constant(3))
    for index in (4, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Too far."):
            traced(tf.constant(index))

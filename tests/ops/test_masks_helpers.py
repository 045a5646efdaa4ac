"""Helpers that build masks, and what travels with a tensor."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention.ops import masks

IDS = np.array([[7, 4, 0], [9, 0, 0]])


@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
def test_helpers_take_arrays_and_tensors(convert):
    expected = [[True, True, False], [True, False, False]]
    padding = masks.padding_mask(convert(IDS))
    np.testing.assert_array_equal(padding, expected)
    lengths = masks.length_mask(convert(np.array([2, 1])), 3)
    np.testing.assert_array_equal(lengths, expected)
    joined = masks.combine_masks(
        masks.causal_mask(3), None, convert(np.array(expected)[:, None])
    )
    np.testing.assert_array_equal(
        joined, np.tri(3, dtype=bool) & np.array(expected)[:, None]
    )


def test_helpers_take_symbolic_tensors():
    ids = keras.KerasTensor((None, 3), "int32")
    lengths = keras.KerasTensor((None,), "int32")
    padding = masks.padding_mask(ids)
    assert (padding.shape, padding.dtype) == ((None, 3), "bool")
    mask = masks.length_mask(lengths, 3)
    assert (mask.shape, mask.dtype) == ((None, 3), "bool")
    assert masks.combine_masks(padding, None, mask).shape == (None, 3)


def test_helpers_know_lengths_at_run_time_only():
    spec = [tf.TensorSpec((None, None), "int32")]

    @tf.function(input_signature=spec)
    def traced(ids):
        length = tf.shape(ids)[1]
        return (
            masks.causal_mask(length, offset=1),
            masks.length_mask(tf.math.count_nonzero(ids, 1), length),
        )

    causal, lengths = traced(IDS)
    np.testing.assert_array_equal(causal, np.tri(3, k=1, dtype=bool))
    np.testing.assert_array_equal(lengths, IDS > 0)


def test_another_padding_id():
    np.testing.assert_array_equal(
        masks.padding_mask(IDS, pad_id=9), [[True] * 3, [False, True, True]]
    )


def test_nothing_to_combine_is_none():
    assert masks.combine_masks() is None
    assert masks.combine_masks(None, None) is None


def test_combining_refuses_an_additive_mask():
    with pytest.raises(TypeError, match="attention_bias"):
        masks.combine_masks(masks.causal_mask(2), np.array([0.0, -1e9]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_hidden_positions_become_zero(dtype):
    inputs = ops.cast(np.arange(1, 7).reshape(1, 3, 2), dtype)
    hidden = masks.hide(inputs, np.array([[True, False, True]]))
    assert hidden.dtype == inputs.dtype
    expected = [[[1, 2], [0, 0], [5, 6]]]
    np.testing.assert_array_equal(ops.cast(hidden, "int32"), expected)
    assert masks.hide(inputs, None) is inputs


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_hiding_lets_no_poison_through_in_either_direction(poison):
    inputs = tf.constant([[[1.0], [poison]]])
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        squared = masks.hide(inputs, np.array([[True, False]])) ** 2
    np.testing.assert_array_equal(squared, [[[1.0], [0.0]]])
    gradient = tape.gradient(squared, inputs)
    np.testing.assert_array_equal(gradient, [[[2.0], [0.0]]])


def test_an_implicit_mask_travels_with_a_tensor():
    tensor = ops.ones((2, 3, 4))
    assert masks.get_implicit_mask(tensor) is None
    masks.set_implicit_mask(tensor, "mask")
    assert masks.get_implicit_mask(tensor) == "mask"
    array = np.ones(3)
    masks.set_implicit_mask(array, "mask")
    assert masks.get_implicit_mask(array) is None

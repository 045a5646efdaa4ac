"""Moving tensors and masks between the two layouts, and back."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins, normal

from keras_attention.ops.axes import AttentionAxes

B, X, Y, Z, N, H = 2, 3, 4, 5, 6, 7
LENGTHS = {1: X, 2: Y, 3: Z}

EVERY_CHOICE = pytest.mark.parametrize(
    "chosen",
    [(1,), (2,), (3,), (1, 2), (2, 3), (1, 3), (3, 1), (1, 2, 3), (2, 1, 3)],
    ids=str,
)


def resolved(chosen):
    """The axes, their lengths, and those of the axes left free."""
    axes = AttentionAxes.resolve(chosen, rank=5)
    attended = [LENGTHS[a] for a in chosen]
    free = [LENGTHS[a] for a in LENGTHS if a not in chosen]
    return axes, attended, free


@EVERY_CHOICE
def test_heads_come_first_and_go_back(chosen):
    axes, attended, free = resolved(chosen)
    projected = normal((B, X, Y, Z, N, H))
    first = axes.heads_first(projected)
    order = (0, *axes.free, 4, *chosen, 5)
    expected = projected.transpose(order).reshape(
        B, *free, N, np.prod(attended), H
    )
    np.testing.assert_array_equal(first, expected)
    back = axes.heads_last(first, np.zeros((B, X, Y, Z, 1)))
    np.testing.assert_array_equal(back, projected)


@EVERY_CHOICE
def test_padding_follows_its_positions(chosen):
    axes, attended, free = resolved(chosen)
    mask = coins(B, X, Y, Z)
    flat = axes.flatten_padding(mask)
    expected = mask.transpose((0, *axes.free, *chosen))
    np.testing.assert_array_equal(
        flat, expected.reshape(B, *free, 1, np.prod(attended))
    )
    back = axes.input_padding(flat, np.zeros((B, X, Y, Z, 1)))
    np.testing.assert_array_equal(back, mask)


def test_masks_over_several_axes_end_in_two():
    axes = AttentionAxes.resolve((1, 2), rank=4)
    mask = coins(B, 1, X, Y, Z, X)
    np.testing.assert_array_equal(
        axes.flatten_mask(mask), mask.reshape(B, 1, X * Y, Z * X)
    )
    assert (
        axes.flatten_mask(None) is None and axes.flatten_padding(None) is None
    )


def test_scores_get_an_axis_for_each_attended_one():
    axes = AttentionAxes.resolve((1, 3), rank=5)
    query, key = np.zeros((B, X, Y, Z, 1)), np.zeros((B, 2, Y, 8, 1))
    scores = normal((B, Y, N, X * Z, 2 * 8))
    split = axes.split_scores(scores, query, key)
    np.testing.assert_array_equal(split, scores.reshape(B, Y, N, X, Z, 2, 8))
    assert axes.scores_shape(query.shape, key.shape, N) == split.shape


def test_a_position_is_visible_where_any_head_sees_it():
    axes = AttentionAxes.resolve(None, rank=3)
    visible = coins(B, N, X, true=0.2)
    np.testing.assert_array_equal(
        axes.input_padding(visible, np.zeros((B, X, 1))), visible.any(axis=1)
    )


def test_one_value_for_all_positions_stays_one():
    axes = AttentionAxes.resolve((1, 2), rank=4)
    one = np.array([True, False]).reshape(B, 1, 1)
    back = axes.input_padding(one, np.zeros((B, X, Y, 1)))
    np.testing.assert_array_equal(back, one)


@EVERY_CHOICE
def test_static_shape_is_that_of_the_kernel_layout(chosen):
    axes, _, _ = resolved(chosen)
    moved = axes.heads_first(np.zeros((B, X, Y, Z, N, H)))
    assert axes.static_shape((B, X, Y, Z, 9), N, H) == moved.shape


def test_unknown_lengths_stay_unknown():
    axes = AttentionAxes.resolve((1, 2), rank=4)
    assert axes.static_shape((None, 3, None, 9), N, H) == (None, N, None, H)
    mask = keras.KerasTensor((None, None, 3, 4, None), "bool")
    assert axes.flatten_mask(mask).shape == (None, None, None)
    padding = keras.KerasTensor((None, None, 3), "bool")
    assert axes.flatten_padding(padding).shape == (None, 1, None)


def test_lengths_known_at_run_time_only():
    axes = AttentionAxes.resolve((1, 3), rank=5)
    projected, padding = normal((B, X, Y, Z, N, H)), coins(B, X, Y, Z)
    full = coins(B, X, Z, Z, X)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, None, None, N, H)),
            tf.TensorSpec((None,) * 4, "bool"),
            tf.TensorSpec((None,) * 5, "bool"),
        ]
    )
    def traced(projected, padding, full):
        first = axes.heads_first(projected)
        flat = axes.flatten_padding(padding)
        inputs = projected[..., 0]
        return (
            axes.heads_last(first, inputs),
            axes.input_padding(flat, inputs),
            axes.flatten_mask(full),
        )

    results = traced(projected, padding, full)
    expected = projected, padding, full.reshape(B, X * Z, Z * X)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_negative_axes_count_from_the_end():
    assert AttentionAxes.resolve((-2, -4), rank=5).attended == (3, 1)
    assert AttentionAxes.resolve(None, rank=5).attended == (1, 2, 3)
    assert AttentionAxes.resolve((2,), rank=5).free == (1, 3)


@pytest.mark.parametrize("chosen", [(0,), (3,), (-1,), (1, 1), (1, -3), (9,)])
def test_axes_of_batch_features_or_twice_are_refused(chosen):
    with pytest.raises(ValueError) as error:
        AttentionAxes.resolve(chosen, rank=4)
    assert f"attention_axes={chosen}" in str(error.value)
    assert "rank 4" in str(error.value)


def test_a_rank_without_time_is_refused():
    with pytest.raises(ValueError, match="rank=2"):
        AttentionAxes.resolve(None, rank=2)


def test_a_mask_that_does_not_fit_is_left_for_the_check():
    axes = AttentionAxes.resolve((1, 2), rank=4)
    mask = ops.ones((X, Y), "bool")
    assert axes.flatten_mask(mask) is mask
    assert axes.flatten_padding(mask) is mask


def test_an_empty_batch_of_empty_sequences():
    axes = AttentionAxes.resolve((1, 2), rank=4)
    assert axes.flatten_padding(np.ones((0, X, 0), bool)).shape == (0, 1, 0)
    assert axes.heads_first(np.ones((0, X, 0, N, H))).shape == (0, N, 0, H)

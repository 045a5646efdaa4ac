"""The rules of masks: what is taken, what it means, what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins

from keras_attention import reference
from keras_attention.ops import masks

B, N, T, S, H = 2, 3, 4, 5, 6
QUERY, KEY = (B, N, T, H), (B, N, S, H)


def combined(query_shape=QUERY, key_shape=KEY, **options):
    """The joined mask as one boolean array of the shape of the scores."""
    mask = masks.combine(query_shape, key_shape, **options)
    length_q, length_k = query_shape[-2], key_shape[-2]
    shape = (*query_shape[:-2], length_q, length_k)
    visible = mask.dense(length_q, length_k)
    if visible is None:
        return np.ones(shape, bool)
    assert keras.backend.standardize_dtype(visible.dtype) == "bool"
    return np.broadcast_to(ops.convert_to_numpy(visible), shape)


# Values: True = may attend.


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
def test_booleans_and_integers_are_taken(dtype, convert):
    given = np.array([[True, False, True]])
    taken = masks.as_boolean(convert(given.astype(dtype)))
    np.testing.assert_array_equal(taken, given)


def test_lists_are_taken():
    np.testing.assert_array_equal(
        masks.as_boolean([[True, False]]), [[True, False]]
    )


def test_integers_other_than_zero_mean_visible():
    np.testing.assert_array_equal(
        masks.as_boolean(np.array([0, 1, 2, -1])), [False, True, True, True]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_seen_to_be_zero_or_one_are_taken(dtype):
    taken = masks.as_boolean(ops.cast([[0.0, 1.0]], dtype))
    np.testing.assert_array_equal(taken, [[False, True]])


BOTH_WAYS_OUT = r'(?s)`m`.*ops\.cast\(m, "bool"\).*`attention_bias`.*float32'


@pytest.mark.parametrize(
    "values",
    [[0.0, -1e9], [0.0, -np.inf], [1.0, 0.5], [1.0, np.nan]],
    ids=str,
)
def test_additive_values_are_refused(values):
    with pytest.raises(TypeError, match=BOTH_WAYS_OUT):
        masks.as_boolean(np.array(values, "float32"), "m")
    with pytest.raises(TypeError, match=BOTH_WAYS_OUT):
        masks.as_boolean(ops.convert_to_tensor(values, "float32"), "m")


def test_symbolic_floats_are_refused():
    with pytest.raises(TypeError, match=BOTH_WAYS_OUT):
        masks.as_boolean(keras.KerasTensor((2, 3), "float32"), "m")


def test_traced_floats_are_refused_even_if_zero_and_one():
    traced = tf.function(lambda mask: masks.as_boolean(mask, "m"))
    with pytest.raises(TypeError, match=BOTH_WAYS_OUT):
        traced(tf.ones((2, 3)))


def test_float_constants_are_seen_inside_a_trace():
    constant = np.array([[1.0, 0.0]], "float32")
    traced = tf.function(lambda: masks.as_boolean(constant, "m"))
    np.testing.assert_array_equal(traced(), [[True, False]])


@pytest.mark.parametrize(
    "mask", [np.array(["a"]), np.array([1j])], ids=["text", "complex"]
)
def test_other_values_are_refused(mask):
    with pytest.raises(TypeError, match="`m` must be a boolean or integer"):
        masks.as_boolean(mask, "m")


def test_symbolic_booleans_stay_symbolic():
    mask = masks.as_boolean(keras.KerasTensor((None, 3), "int32"))
    assert isinstance(mask, keras.KerasTensor)
    assert (mask.shape, mask.dtype) == ((None, 3), "bool")


# Shapes of `attention_mask`.


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((T, S), (None, None)),
        ((B, T, S), (slice(None), None)),
        ((B, 1, T, S), (slice(None),) * 2),
        ((B, N, T, S), (slice(None),) * 2),
        ((1, 1, T, S), (slice(None),) * 2),
    ],
    ids=str,
)
def test_full_masks_fall_on_their_axes(shape, axes):
    given = coins(*shape)
    expected = np.broadcast_to(given[axes], (B, N, T, S))
    np.testing.assert_array_equal(combined(attention_mask=given), expected)


def test_rank_two_is_query_by_key_even_where_all_sizes_agree():
    given = coins(2, 2, true=0.5, seed=8)
    assert (given != given.T).any()
    shape = (2, 2, 2, 6)
    for sample in combined(shape, shape, attention_mask=given):
        for head in sample:
            np.testing.assert_array_equal(head, given)


def test_rank_three_is_batch_query_key_even_where_all_sizes_agree():
    given = coins(2, 2, 2, true=0.5)
    shape = (2, 2, 2, 6)
    visible = combined(shape, shape, attention_mask=given)
    np.testing.assert_array_equal(visible[:, 0], given)
    np.testing.assert_array_equal(visible[:, 1], given)


def test_padding_is_batch_by_length_even_where_all_sizes_agree():
    given = np.array([[True, False], [True, True]])
    shape = (2, 2, 2, 6)
    visible = combined(shape, shape, key_mask=given)
    np.testing.assert_array_equal(visible[0], [[[True, False]] * 2] * 2)
    assert visible[1].all()


@pytest.mark.parametrize("shape", [(B, 1, 1, S), (1, 1, 1, S), (1, S)], ids=str)
def test_one_row_for_all_queries_never_becomes_a_full_mask(shape):
    given = coins(*shape)
    mask = masks.combine(QUERY, KEY, attention_mask=given)
    assert mask.full is None and mask.query is None
    assert T not in mask.key.shape
    rows = given.reshape(-1, 1, 1, S)
    np.testing.assert_array_equal(
        combined(attention_mask=given), np.broadcast_to(rows, (B, N, T, S))
    )


def test_one_column_for_all_keys_never_becomes_a_full_mask():
    given = coins(B, 1, T, 1)
    mask = masks.combine(QUERY, KEY, attention_mask=given)
    assert mask.full is None and mask.key is None
    np.testing.assert_array_equal(
        combined(attention_mask=given), np.broadcast_to(given, (B, N, T, S))
    )


def test_positions_and_padding_stay_apart():
    mask = masks.combine(
        QUERY,
        KEY,
        query_mask=coins(B, T),
        value_mask=coins(B, S),
        use_causal_mask=True,
        sliding_window=2,
    )
    assert mask.full is None
    assert tuple(mask.query.shape) == (B, 1, T)
    assert tuple(mask.key.shape) == (B, 1, S)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("attention_mask", (S, T)),
        ("attention_mask", (S,)),
        ("attention_mask", (N, T, S)),
        ("attention_mask", (B, S, T)),
        ("attention_mask", (B, N + 1, T, S)),
        ("attention_mask", (B, 1, N, T, S)),
        ("query_mask", (B, S)),
        ("query_mask", (T,)),
        ("value_mask", (B, T)),
        ("key_mask", (B, T)),
        ("key_mask", (N, S)),
        ("key_mask", (B, 1, 1, S)),
    ],
    ids=str,
)
def test_other_shapes_are_refused(name, shape):
    with pytest.raises(ValueError) as error:
        masks.combine(QUERY, KEY, **{name: np.ones(shape, bool)})
    message = str(error.value)
    assert f"{name}.shape={shape}" in message
    length = {"query_mask": T}.get(name, S)
    accepted = [(B, length)]
    if name == "attention_mask":
        accepted = [(T, S), (B, T, S), (B, N, T, S)]
    for dims in accepted:
        assert str(dims) in message


def test_unknown_sizes_are_taken_and_known_ones_still_checked():
    query, key = (None, N, None, H), (None, N, S, H)
    symbolic = keras.KerasTensor((None, None, S), "bool")
    assert masks.combine(query, key, attention_mask=symbolic).full is not None
    misfit = keras.KerasTensor((None, None, T), "bool")
    with pytest.raises(ValueError, match="attention_mask.shape"):
        masks.combine(query, key, attention_mask=misfit)


# Joining.


def test_all_masks_are_joined_by_and():
    options = {
        "attention_mask": coins(B, N, T, S, seed=1),
        "query_mask": coins(B, T, seed=2),
        "key_mask": coins(B, S, seed=3),
    }
    value_mask = coins(B, S, seed=4)
    visible = combined(
        **options, value_mask=value_mask, use_causal_mask=True, sliding_window=3
    )
    positions = reference.visible_pairs(T, S, True, 3)
    expected = (
        options["attention_mask"]
        & options["query_mask"][:, None, :, None]
        & (options["key_mask"] & value_mask)[:, None, None, :]
        & positions
    )
    assert expected.any() and not expected.all()
    np.testing.assert_array_equal(visible, expected)


def test_minus_infinity_in_a_bias_hides():
    bias = np.where(coins(B, 1, T, S), 0.5, -np.inf).astype("float32")
    mask = masks.combine(QUERY, KEY, attention_bias=bias)
    np.testing.assert_array_equal(mask.dense(T, S), np.isfinite(bias))
    later = masks.AttentionMask(causal=True).hidden_by(bias)
    np.testing.assert_array_equal(
        later.dense(T, S), np.isfinite(bias) & np.tri(T, S, dtype=bool)
    )


@pytest.mark.parametrize("bias", [np.ones((T, S), bool), np.ones((T, S), int)])
def test_a_mask_given_as_bias_is_refused(bias):
    with pytest.raises(TypeError, match="`attention_mask`"):
        masks.check_bias(bias, (B, N), T, S)


def test_a_bias_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"attention_bias.shape=\(5, 4\)"):
        masks.check_bias(np.zeros((S, T), "float32"), (B, N), T, S)


@pytest.mark.parametrize("window", [0, -1, 2.5, True, "3"])
def test_a_window_that_is_no_positive_integer_is_refused(window):
    with pytest.raises(ValueError, match=f"sliding_window={window}"):
        masks.combine(QUERY, KEY, sliding_window=window)


def test_nothing_hidden_is_none():
    mask = masks.combine(QUERY, KEY)
    assert mask.dense(T, S) is None
    assert mask.visible_queries() is None
    assert mask.visible_keys() is None


# Parts and rectangles.


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2])
def test_position_mask_equals_the_reference(causal, window, offset):
    np.testing.assert_array_equal(
        masks.position_mask(T, S, causal, window, offset),
        reference.visible_pairs(T, S, causal, window, offset),
    )


def test_a_rectangle_is_that_part_of_the_whole():
    mask = masks.combine(
        QUERY,
        KEY,
        attention_mask=coins(B, N, T, S),
        query_mask=coins(B, T),
        key_mask=coins(B, S),
        use_causal_mask=True,
        sliding_window=3,
        offset=1,
    )
    whole = mask.dense(T, S)
    np.testing.assert_array_equal(mask.block(1, 2, 2, 3), whole[..., 1:3, 2:5])
    np.testing.assert_array_equal(
        mask.block(1, 2, 2, 3, mask.cut(1, 2, 2, 3)), whole[..., 1:3, 2:5]
    )


def test_what_masks_hide_jointly_counts_as_hidden():
    full = np.ones((B, T, S), bool)
    full[:, :-1, 2] = False  # key 2 is seen by the last query alone
    full[:, 1, 1:] = False  # query 1 sees key 0 alone
    query_mask, key_mask = np.ones((B, T), bool), np.ones((B, S), bool)
    query_mask[0, -1] = False
    key_mask[1, 0] = False
    mask = masks.combine(
        QUERY,
        KEY,
        attention_mask=full,
        query_mask=query_mask,
        key_mask=key_mask,
    )
    visible = full & query_mask[:, :, None] & key_mask[:, None]
    np.testing.assert_array_equal(
        mask.visible_queries()[:, 0], visible.any(axis=2)
    )
    np.testing.assert_array_equal(
        mask.visible_keys()[:, 0], visible.any(axis=1)
    )
    assert not visible[0].any(0)[2] and not visible[1].any(1)[1]

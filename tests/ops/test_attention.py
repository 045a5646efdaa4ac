"""The door to attention: what it computes, keeps out and refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins, normal
from support.layer_contract import assert_close, to_numpy

from keras_attention import reference
from keras_attention.ops import AttentionMask, dot_product_attention

B, N, K, T, S, H, HV = 2, 6, 3, 4, 5, 8, 7
INPUTS = normal((B, N, T, H), (B, N, S, H), (B, N, S, HV))
GROUPED = normal((B, N, T, H), (B, K, S, H), (B, K, S, HV))


def assert_equals_reference(inputs, **options):
    results = dot_product_attention(
        *inputs, return_attention_scores=True, **options
    )
    expected = reference.dot_product_attention(*inputs, **options)
    for one, other in zip(results, expected, strict=True):
        assert one.shape == other.shape
        assert_close(one, other, "float32")
    alone = dot_product_attention(*inputs, **options)
    assert_close(alone, expected[0], "float32")


@pytest.mark.parametrize("inputs", [INPUTS, GROUPED], ids=["equal", "grouped"])
@pytest.mark.parametrize("mask_shape", [(T, S), (B, T, S), (B, N, T, S)])
def test_equals_the_reference_with_everything_at_once(inputs, mask_shape):
    assert_equals_reference(
        inputs,
        attention_mask=coins(*mask_shape),
        attention_bias=normal((B, N, T, S), seed=9),
        query_mask=coins(B, T, seed=6),
        key_mask=coins(B, S, seed=7),
        use_causal_mask=True,
        sliding_window=3,
        scale=0.7,
    )


@pytest.mark.parametrize(
    "lead", [(), (B,), (B, N), (B, 4, N), (B, 4, 2, N)], ids=str
)
def test_any_number_of_leading_axes(lead):
    inputs = normal((*lead, T, H), (*lead, S, H), (*lead, S, HV))
    assert_equals_reference(inputs, attention_mask=coins(T, S))
    if lead:
        assert_equals_reference(inputs, attention_mask=coins(B, T, S))
    if len(lead) > 2:
        assert_equals_reference(
            inputs,
            attention_mask=coins(*lead[:-1], T, S),
            key_mask=coins(*lead[:-1], 1, S, seed=9),
        )


def test_mixed_dtypes_give_the_widest():
    query, key, value = INPUTS
    context = dot_product_attention(
        ops.cast(query, "float16"), key, ops.cast(value, "bfloat16")
    )
    expected, _ = reference.dot_product_attention(*INPUTS)
    assert_close(context, expected, "float32")


def test_integers_become_floats():
    query, key, value = (np.round(x * 2).astype("int32") for x in INPUTS)
    context = dot_product_attention(query, key, value)
    expected, _ = reference.dot_product_attention(query, key, value)
    assert_close(context, expected, "float32")


def test_logits_beyond_float16_stay_finite():
    inputs = [ops.full((1, 2, 3, 64), 60.0, "float16") for _ in range(3)]
    assert 60 * 60 * 64 > float(np.finfo("float16").max)
    context, weights = dot_product_attention(
        *inputs,
        key_mask=np.array([[True, True, False]]),
        return_attention_scores=True,
    )
    assert_close(context, np.full((1, 2, 3, 64), 60.0), "float16")
    assert_close(
        weights, np.broadcast_to([0.5, 0.5, 0.0], (1, 2, 3, 3)), "float16"
    )


def test_half_precision_is_that_of_the_result_alone():
    inputs = [ops.cast(x, "bfloat16") for x in INPUTS]
    context = dot_product_attention(*inputs)
    exact = dot_product_attention(*INPUTS)
    np.testing.assert_array_equal(
        to_numpy(context), to_numpy(ops.cast(exact, "bfloat16"))
    )


# Tokens.


@pytest.mark.parametrize("kind", ["key_mask", "attention_mask", "bias"])
def test_hidden_keys_change_nothing_and_visible_ones_do(kind):
    query, key, value = (x.copy() for x in INPUTS)
    visible = np.ones((B, S), bool)
    visible[0, 3] = False
    options = {
        "key_mask": {"key_mask": visible},
        "attention_mask": {"attention_mask": visible[:, None, None]},
        "bias": {
            "attention_bias": np.where(
                visible[:, None, None], 0.0, -np.inf
            ).astype("float32")
        },
    }[kind]
    before = to_numpy(dot_product_attention(query, key, value, **options))
    key[:, :, 3] += 2.0
    value[:, :, 3] += 2.0
    after = to_numpy(dot_product_attention(query, key, value, **options))
    np.testing.assert_array_equal(before[0], after[0])
    assert np.abs(before[1] - after[1]).max(axis=-1).min() > 0.01


def masks_that_hide(column, row):
    """Every way to hide one key and one query, by name."""
    keys, queries = np.ones((B, S), bool), np.ones((B, T), bool)
    keys[:, column] = queries[:, row] = False
    full = queries[:, :, None] & keys[:, None]
    jointly = full.copy()
    jointly[:, row, column] = True
    return {
        "padding": {"key_mask": keys, "query_mask": queries},
        "full": {"attention_mask": full},
        "row and padding": {
            "attention_mask": keys[:, None, None],
            "query_mask": queries,
        },
        "jointly": {"attention_mask": jointly, "query_mask": queries},
        "bias": {
            "attention_bias": np.where(full, 0, -np.inf).astype("float32")
        },
        "made ready": {
            "attention_mask": AttentionMask(
                query=ops.convert_to_tensor(queries[:, None]),
                key=ops.convert_to_tensor(keys[:, None]),
            )
        },
    }


@pytest.mark.parametrize("options", masks_that_hide(2, 1).values(), ids=str)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_poison_at_padding_reaches_no_output_and_no_gradient(
    options, poison, dropout
):
    clean = [x.copy() for x in INPUTS]
    poisoned = [x.copy() for x in INPUTS]
    clean[0][:, :, 1] = clean[1][:, :, 2] = clean[2][:, :, 2] = 0
    for x, at in zip(poisoned, (1, 2, 2), strict=True):
        x[:, :, at] = poison

    def run(inputs):
        inputs = [tf.constant(x) for x in inputs]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = dot_product_attention(
                *inputs,
                **options,
                dropout=dropout,
                seed=1,
                return_attention_scores=True,
            )
        return *results, *tape.gradient(results[0], inputs)

    for one, other in zip(run(poisoned), run(clean), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


def test_each_key_head_is_hidden_by_its_own_queries():
    query, key, value = (x.copy() for x in GROUPED)
    mask = np.ones((B, N, T, S), bool)
    mask[:, : N // K, :, 1] = False
    clean = dot_product_attention(query, key, value, mask)
    key[:, 0, 1] = value[:, 0, 1] = np.nan
    np.testing.assert_array_equal(
        dot_product_attention(query, key, value, mask), clean
    )


def test_a_ready_mask_and_a_bias_that_hides_a_row():
    bias = np.zeros((T, S), "float32")
    bias[1] = -np.inf
    context, weights = dot_product_attention(
        *INPUTS, AttentionMask(causal=True), bias, return_attention_scores=True
    )
    expected = reference.dot_product_attention(
        *INPUTS, attention_bias=bias, use_causal_mask=True
    )
    assert_close(context, expected[0], "float32")
    assert_close(weights, expected[1], "float32")


# Traced and symbolic.


def test_every_length_known_at_run_time_only():
    spec = [
        tf.TensorSpec((None, N, None, H)),
        tf.TensorSpec((None, K, None, H)),
        tf.TensorSpec((None, None), "bool"),
        tf.TensorSpec((None, None, None), "bool"),
    ]

    @tf.function(input_signature=spec)
    def traced(query, key, key_mask, mask):
        return dot_product_attention(
            query, key, key, mask, key_mask=key_mask, use_causal_mask=True
        )

    query, key, _ = GROUPED
    key_mask, mask = coins(B, S), coins(B, T, S)
    expected, _ = reference.dot_product_attention(
        query, key, key, mask, key_mask=key_mask, use_causal_mask=True
    )
    assert_close(traced(query, key, key_mask, mask), expected, "float32")


def test_batch_known_at_run_time_only_at_rank_three():
    @tf.function(
        input_signature=[tf.TensorSpec((None, T, H)), tf.TensorSpec((B, S, H))]
    )
    def traced(query, key):
        return dot_product_attention(query, key, key)

    query, key = normal((B, T, H), (B, S, H))
    expected, _ = reference.dot_product_attention(query, key, key)
    assert_close(traced(query, key), expected, "float32")


def test_symbolic_tensors():
    query = keras.KerasTensor((None, N, T, H))
    key = keras.KerasTensor((None, K, S, H))
    value = keras.KerasTensor((None, K, S, HV))
    context, weights = dot_product_attention(
        query,
        key,
        value,
        keras.KerasTensor((None, T, S), "bool"),
        keras.KerasTensor((None, 1, T, S), "float32"),
        key_mask=keras.KerasTensor((None, S), "bool"),
        return_attention_scores=True,
    )
    assert context.shape == (None, N, T, HV)
    assert weights.shape == (None, N, T, S)


def test_dropout_without_a_seed_inside_a_trace():
    traced = tf.function(lambda q: dot_product_attention(q, q, q, dropout=0.5))
    query = tf.constant(INPUTS[0])
    assert np.abs(traced(query) - traced(query)).max() > 0.01


# Refused.


@pytest.mark.parametrize(
    "shapes, words",
    [
        (((T, H), (B, S, H), (B, S, H)), "same rank"),
        (((H,), (H,), (H,)), "at least 2"),
        (((B, T, H), (B, S, H + 1), (B, S, H)), "head width"),
        (((B, T, H), (B, S, H), (B, S + 1, H)), "same length S"),
        (((B, T, H), (3, S, H), (3, S, H)), "same batch size"),
        (((B, T, H), (B, S, H), (3, S, H)), "same batch size"),
        (((3, N, T, H), (B, N, S, H), (B, N, S, H)), "same batch size"),
        (((B, N, T, H), (B, K, S, H), (B, N, S, H)), "number of heads"),
        (((B, N, T, H), (B, 4, S, H), (B, 4, S, H)), "multiple"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(shapes, words):
    with pytest.raises(ValueError, match=words) as error:
        dot_product_attention(*(np.zeros(shape, "float32") for shape in shapes))
    for name, shape in zip(("query", "key", "value"), shapes, strict=True):
        assert f"{name}.shape={shape}" in str(error.value)


def test_scores_of_the_kernel_that_makes_none_are_refused():
    with pytest.raises(ValueError, match="flash_attention=True"):
        dot_product_attention(
            *INPUTS, flash_attention=True, return_attention_scores=True
        )


@pytest.mark.parametrize("name", ["attention_mask", "query_mask", "key_mask"])
def test_additive_masks_are_refused_by_name(name):
    shape = {"attention_mask": (T, S), "query_mask": (B, T)}.get(name, (B, S))
    mask = np.where(coins(*shape), 0.0, -1e9)
    with pytest.raises(TypeError, match=f"`{name}` must be boolean"):
        dot_product_attention(*INPUTS, **{name: mask})

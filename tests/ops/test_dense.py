"""The kernel that writes the scores out, against the NumPy reference."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins, normal

from keras_attention import reference
from keras_attention.ops import dense, masks

B, N, K, T, S, H, HV = 2, 6, 3, 4, 5, 8, 7
QUERY, KEY, VALUE = normal((B, N, T, H), (B, N, S, H), (B, N, S, HV))
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def everything_hidden():
    """A mask for T queries of which the second may see nothing."""
    full = np.ones((T, S), bool)
    full[1] = False
    return masks.AttentionMask(full=ops.convert_to_tensor(full[None, None]))


@pytest.mark.parametrize("scale", [0.5, 1 / np.sqrt(H)])
def test_equals_the_reference(scale):
    full, bias = coins(B, N, T, S), normal((T, S))
    mask = masks.AttentionMask(full=ops.convert_to_tensor(full), causal=True)
    context, weights = dense.attend(
        QUERY, KEY, VALUE, mask, bias=bias, scale=scale
    )
    expected = reference.dot_product_attention(
        QUERY,
        KEY,
        VALUE,
        attention_mask=full,
        attention_bias=bias,
        use_causal_mask=True,
        scale=scale,
    )
    np.testing.assert_allclose(context, expected[0], **TOLERANCE)
    np.testing.assert_allclose(weights, expected[1], **TOLERANCE)


@pytest.mark.parametrize("groups", [1, K])
def test_fewer_key_heads_equal_the_same_heads_repeated(groups):
    key, value = KEY[:, :groups], VALUE[:, :groups]
    full = ops.convert_to_tensor(coins(B, N, T, S))
    mask = masks.AttentionMask(full=full)
    grouped = dense.attend(QUERY, key, value, mask, scale=0.3)
    repeated = dense.attend(
        QUERY,
        np.repeat(key, N // groups, axis=1),
        np.repeat(value, N // groups, axis=1),
        mask,
        scale=0.3,
    )
    for one, other in zip(grouped, repeated, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, **TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_row_that_sees_nothing_is_zero_with_finite_gradients(dtype, dropout):
    inputs = [ops.cast(x, dtype) for x in (QUERY, KEY, VALUE)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context, weights = dense.attend(
            *inputs, everything_hidden(), scale=1.0, dropout=dropout, seed=1
        )
    assert not ops.any(context[..., 1, :]) and not ops.any(weights[..., 1, :])
    assert ops.all(ops.any(context[..., 0, :], axis=-1))
    gradients = tape.gradient(context, inputs)
    for gradient in gradients:
        assert ops.all(ops.isfinite(gradient)) and ops.any(gradient)
    assert not ops.any(gradients[0][..., 1, :])


@pytest.mark.parametrize("large", [1e4, 1e30, 3e38])
def test_scores_near_the_end_of_the_range_stay_finite(large):
    scores = np.array([[large, -large, 0.0], [-large, -large, -large]])
    hidden = np.array([[True, True, True], [True, True, False]])
    weights = dense.weigh(
        scores.astype("float32"),
        masks.AttentionMask(full=ops.convert_to_tensor(hidden)),
    )
    np.testing.assert_array_equal(weights, [[1, 0, 0], [0.5, 0.5, 0]])


def test_a_bias_of_minus_infinity_neither_counts_nor_poisons():
    bias = np.zeros((T, S), "float32")
    bias[:, 0] = bias[2] = -np.inf
    mask = masks.AttentionMask().hidden_by(bias)
    scores = tf.constant(normal((T, S)))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = dense.weigh(scores, mask, bias)
    np.testing.assert_allclose(
        weights, reference.softmax(scores + bias), **TOLERANCE
    )
    assert not ops.any(weights[2]) and not ops.any(weights[:, 0])
    assert ops.all(ops.isfinite(tape.gradient(weights, scores)))


def test_dropout_keeps_the_mean_and_the_weights_that_are_returned():
    query, key = np.zeros((1, 1, 50, H)), np.zeros((1, 1, 40, H))
    value = np.ones((1, 1, 40, 2))
    context, weights = dense.attend(
        *(ops.cast(x, "float32") for x in (query, key, value)),
        masks.AttentionMask(),
        scale=1.0,
        dropout=0.3,
        seed=3,
    )
    np.testing.assert_allclose(
        weights, np.full((1, 1, 50, 40), 1 / 40), **TOLERANCE
    )
    assert np.std(context) > 0.05
    # 2,000 weights, each kept with probability 0.7.
    assert abs(np.mean(context) - 1) < 4 * np.sqrt(0.3 / 0.7 / 2000)


def test_dropout_repeats_with_an_integer_and_moves_on_with_a_generator():
    def run(seed):
        return dense.attend(
            QUERY,
            KEY,
            VALUE,
            masks.AttentionMask(),
            scale=1.0,
            dropout=0.5,
            seed=seed,
        )[0]

    np.testing.assert_array_equal(run(4), run(4))
    generator = keras.random.SeedGenerator(4)
    first = run(generator)
    assert np.abs(first - run(generator)).max() > 0.1
    np.testing.assert_array_equal(first, run(keras.random.SeedGenerator(4)))


def test_a_single_key_takes_all_the_weight_without_a_warning():
    scores = tf.constant([[3.0], [-4.0], [5.0]])
    hidden = masks.AttentionMask(full=ops.array([[True], [True], [False]]))
    with warnings.catch_warnings(), tf.GradientTape(persistent=True) as tape:
        warnings.simplefilter("error")
        tape.watch(scores)
        weights = dense.weigh(scores, masks.AttentionMask())
        masked = dense.weigh(scores, hidden)
    np.testing.assert_array_equal(weights, [[1.0]] * 3)
    np.testing.assert_array_equal(masked, [[1.0], [1.0], [0.0]])
    for result in (weights, masked):
        np.testing.assert_array_equal(
            tape.gradient(result, scores), np.zeros((3, 1))
        )

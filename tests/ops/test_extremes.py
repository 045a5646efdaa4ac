"""Rates and biases at the ends of what there is, on every path."""

import numpy as np
import pytest
import tensorflow as tf
from support.arrays import normal

from keras_attention import reference
from keras_attention.ops import AttentionMask
from keras_attention.ops import dot_product_attention as attend
from keras_attention.ops.additive import additive_attention

N, T, S, H, HV = 2, 37, 41, 8, 6
LOWEST = {kind: np.finfo(kind).min for kind in ("float32", "float64")}


def dense(*inputs, **options):
    return attend(*inputs, **options, flash_attention=False)


def blockwise(*inputs, **options):
    return attend(*inputs, **options, flash_attention=True)


def by_length(*inputs, **options):
    """The lengths are known at run time alone."""
    specs = [tf.TensorSpec((*x.shape[:-2], None, x.shape[-1])) for x in inputs]
    run = tf.function(lambda *x: attend(*x, **options), input_signature=specs)
    return run(*inputs)


paths = pytest.mark.parametrize("path", [dense, blockwise, by_length])


def tensors():
    shapes = (N, T, H), (N, S, H), (N, S, HV)
    return [tf.constant(normal(shape), "float32") for shape in shapes]


def gradients(path, inputs, bias, **options):
    """Returns the gradients of the inputs and the bias."""
    watched = [tf.constant(x) for x in (*inputs, bias)]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        context = path(*watched[:3], attention_bias=watched[3], **options)
        loss = tf.reduce_sum(context**2)
    return tape.gradient(loss, watched)


@paths
@pytest.mark.parametrize("offset", [-1e4, -1e9, LOWEST["float32"]])
def test_a_large_bias_that_rows_share_leaves_gradients_right(path, offset):
    inputs = [normal((1, 600, 16)).astype("float32") for _ in range(3)]
    bias = np.zeros((1, 600), "float32")
    bias[:, :5] = offset
    found = gradients(path, inputs, bias, use_causal_mask=True)
    # Beside some, float32 has no room for the scores themselves.
    oracle = "float32" if offset == -1e9 else "float64"
    exact = [x.astype(oracle) for x in inputs]
    expected = gradients(dense, exact, bias, use_causal_mask=True)
    for one, other in zip(found, expected, strict=True):
        error = np.linalg.norm(one - tf.cast(other, "float32"))
        assert error < (1e-2 if offset == -1e4 else 1e-5) * np.linalg.norm(
            other
        )


@paths
def test_all_is_dropped_at_a_rate_of_one(path):
    inputs = tensors()
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = path(*inputs, dropout=1.0, seed=5)
    np.testing.assert_array_equal(context, np.zeros((N, T, HV)))
    found = tape.gradient(context, inputs, unconnected_gradients="zero")
    for x, gradient in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(gradient, tf.zeros_like(x))


@paths
@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_rates_that_are_none_are_refused(path, rate):
    with pytest.raises(ValueError, match=rf"from 0 to 1.*dropout={rate}"):
        path(*tensors(), dropout=rate)


def test_additive_attention_refuses_them_too():
    query, key, value = tensors()
    with pytest.raises(ValueError, match=r"from 0 to 1.*dropout=1\.5"):
        additive_attention(
            query, key, value, tf.ones(H), AttentionMask(), dropout=1.5
        )


@paths
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_the_lowest_bias_are_averages(path, kind, causal):
    inputs = tensors()
    bias = np.zeros((T, S), kind)
    bias[5], bias[:, :2] = LOWEST[kind], LOWEST[kind]
    found = path(*inputs, attention_bias=bias, use_causal_mask=causal)
    expected, _ = reference.dot_product_attention(
        *inputs, attention_bias=bias, use_causal_mask=causal
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


@paths
def test_infinity_at_a_hidden_key_is_hidden(path):
    inputs = tensors()
    bias, seen = np.zeros((T, S), "float32"), np.ones((1, S), bool)
    bias[:, 3], seen[:, 3] = np.inf, False
    found = path(*inputs, attention_bias=bias, key_mask=seen)
    expected = path(*inputs, key_mask=seen)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@paths
def test_infinity_at_a_key_that_is_seen_leaves_that_key_alone(path):
    inputs = tensors()
    bias = np.zeros((T, S), "float32")
    bias[:, 3] = np.inf
    found = path(*inputs, attention_bias=bias)
    expected, _ = reference.dot_product_attention(*inputs, attention_bias=bias)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    only = np.broadcast_to(inputs[2][:, 3:4], found.shape)
    np.testing.assert_allclose(found, only, atol=1e-6)

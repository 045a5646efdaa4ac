"""Derivatives of every kind, and settings that are tensors."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.arrays import normal

from keras_attention.ops import AttentionMask, attention
from keras_attention.ops import dot_product_attention as attend
from keras_attention.ops.additive import additive_attention

B, N, T, S, H, HV = 2, 3, 7, 9, 4, 5
SHAPES = (B, N, T, H), (B, N, S, H), (B, N, S, HV)
KEYS = np.arange(S) < [[7], [9]]


def tensors(dtype="float32", less=0):
    shapes = [(*lead, length - less, size) for *lead, length, size in SHAPES]
    return [tf.constant(normal(shape), dtype) for shape in shapes]


def bias(lead, less=0):
    return tf.constant(normal((*lead, T - less, S - less)), "float32")


def unknown_lengths(function, lead):
    """Traces a function, of T and S and of the batch not known."""
    specs = [tf.TensorSpec((None, N, None, size)) for *_, size in SHAPES]
    shape = [1 if n == 1 else None for n in lead]
    specs.append(tf.TensorSpec((*shape, None, None)))
    return tf.function(function, input_signature=specs)


def second_derivatives(*inputs, **options):
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            query, key, value, bias = inputs
            context = attend(query, key, value, attention_bias=bias, **options)
            loss = tf.reduce_sum(context**3)
        found = inner.gradient(loss, inputs)
        total = tf.add_n([tf.reduce_sum(x**2) for x in found])
    return outer.gradient(total, inputs)


@pytest.mark.parametrize("lead", [(1, N), (B, 1), (B, N), (1, 1)])
def test_second_derivatives_with_any_bias(lead, monkeypatch):
    # One graph, since tracing takes seconds, but of both its branches.
    monkeypatch.setattr(attention, "dense_scores", lambda by_position: 30)
    by_length = unknown_lengths(second_derivatives, lead)
    flash = functools.partial(second_derivatives, flash_attention=True)
    functions = [second_derivatives, by_length, flash]
    if lead == (1, N):
        functions.append(unknown_lengths(flash, lead))
    for less in (0, 3):
        inputs = [*tensors(less=less), bias(lead, less)]
        exact = [tf.cast(x, "float64") for x in inputs]
        expected = second_derivatives(*exact, flash_attention=False)
        for function in functions:
            found = function(*inputs)
            for one, other in zip(found, expected, strict=True):
                bound = 1e-5 * np.abs(other).max()
                np.testing.assert_allclose(one, other, rtol=0, atol=bound)


def forward(flash, inputs, place, tangent):
    """Returns the derivative of the context along one input's tangent."""
    with tf.autodiff.ForwardAccumulator(inputs[place], tangent) as along:
        *arrays, bias = inputs
        context = attend(
            *arrays,
            attention_bias=bias,
            key_mask=KEYS,
            use_causal_mask=True,
            flash_attention=flash,
        )
    return along.jvp(context)


@pytest.mark.parametrize("place", range(4))
def test_forward_mode(place):
    inputs = [*tensors(), bias((1, N))]
    tangent = tf.constant(normal(inputs[place].shape), "float32")
    expected = forward(False, inputs, place, tangent)
    assert np.abs(expected).max() > 0.1
    found = forward(True, inputs, place, tangent)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_forward_mode_in_a_function_says_what_to_pass():
    inputs = [*tensors(), bias((1, N))]
    run = tf.function(forward, autograph=False)
    np.testing.assert_allclose(
        run(False, inputs, 0, inputs[0]),
        forward(False, inputs, 0, inputs[0]),
        atol=1e-5,
    )
    with pytest.raises(LookupError, match="flash_attention=False"):
        run(True, inputs, 0, inputs[0])


@pytest.mark.parametrize("flash", [False, True, None])
@pytest.mark.parametrize("shape", [(), (N, 1, 1)])
def test_the_scale_may_be_a_tensor(flash, shape):
    inputs = tensors()
    scale = tf.constant(normal(shape), "float32")

    def run(scale):
        with tf.GradientTape() as tape:
            tape.watch(scale)
            context = attend(*inputs, scale=scale, flash_attention=flash)
        return context, tape.gradient(context, scale)

    query, key, value = (x.numpy().astype("float64") for x in inputs)

    def expected(scale):
        scores = np.exp(scale * query @ key.swapaxes(-1, -2))
        return scores / scores.sum(-1, keepdims=True) @ value

    number, step = scale.numpy().astype("float64"), 1e-6
    slope = (expected(number + step) - expected(number - step)) / (2 * step)
    slope = slope.sum((0, 2, 3), keepdims=True)[0] if shape else slope.sum()
    for function in (run, tf.function(run)):
        context, gradient = function(scale)
        np.testing.assert_allclose(context, expected(scale), atol=1e-5)
        np.testing.assert_allclose(gradient, slope, atol=1e-4)


@pytest.mark.parametrize("flash", [False, True, None])
def test_a_seed_that_is_a_tensor_is_refused(flash):
    inputs, seed = tensors(), tf.constant(3)
    with pytest.raises(TypeError, match="integer.*SeedGenerator.*Received"):
        attend(*inputs, dropout=0.5, seed=seed, flash_attention=flash)
    with pytest.raises(TypeError, match="integer.*SeedGenerator.*Received"):
        additive_attention(
            *(x[:, 0] for x in inputs),
            tf.ones(H),
            AttentionMask(),
            dropout=0.5,
            seed=seed,
        )
    first, again = (
        attend(*inputs, dropout=0.5, seed=3, flash_attention=flash)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    generator = keras.random.SeedGenerator(3)
    first, again = (
        attend(*inputs, dropout=0.5, seed=generator, flash_attention=flash)
        for _ in range(2)
    )
    assert np.abs(first - again).max() > 0.01


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("t, s, hv", [(0, S, HV), (T, 0, HV), (T, S, 0)])
def test_lengths_of_zero_in_linear_memory(t, s, hv, dtype):
    shapes = (B, N, t, H), (B, N, s, H), (B, N, s, hv), (1, N, t, s)
    inputs = [tf.cast(normal(shape), dtype) for shape in shapes]

    def run(*inputs, flash=True):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            query, key, value, bias = inputs
            context = attend(
                query, key, value, attention_bias=bias, flash_attention=flash
            )
        return [context, *tape.gradient(context, inputs)]

    specs = [(B, N, None, H), (B, N, None, H), (B, N, None, hv)]
    specs = [tf.TensorSpec(x, dtype) for x in (*specs, (1, N, None, None))]
    dense = run(*inputs, flash=False)
    for function in (run, tf.function(run, input_signature=specs)):
        for one, other in zip(function(*inputs), dense, strict=True):
            assert one.dtype == other.dtype == dtype
            assert not np.any(tf.cast(other, "float32"))
            np.testing.assert_array_equal(one, other)


def test_no_heads_are_refused():
    inputs = [tf.zeros(shape) for shape in ((B, 0, T, H), *[(B, 0, S, H)] * 2)]
    with pytest.raises(ValueError, match=r"at least one head.*\(2, 0, 7, 4\)"):
        attend(*inputs)


@pytest.mark.parametrize("flash", [False, True])
def test_a_bias_per_head_says_its_batch(flash):
    inputs, bias = tensors(), normal((N, T, S))
    with pytest.raises(ValueError, match=r"\(1, N, T, S\) = \(1, 3, 7, 9\)"):
        attend(*inputs, attention_bias=bias, flash_attention=flash)

"""Inputs of many axes: each entry gives what it gives alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.arrays import coins, normal
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import (
    AdditiveAttention,
    Attention,
    MultiHeadAttention,
)
from keras_attention.ops import dot_product_attention

T, S, H, HV = 4, 5, 6, 7
N, K = 4, 2
# Axes before the heads, for inputs of five, six, seven and eight axes.
LEADS = [(3, 2), (3, 1, 2), (3, 2, 2, 5), (2, 3, 1, 2, 3)]
# For the context, and for the gradients; that of a bias is a long sum.
BOUNDS = (1e-5, 1e-4, 1e-4, 1e-4, 5e-4)


def inputs_of(lead, heads=K):
    shapes = (*lead, N, T, H), (*lead, heads, S, H), (*lead, heads, S, HV)
    return normal(*shapes)


def alternating(*lead):
    """Every second of some sizes, and ones in place of the others."""
    return tuple(n if i % 2 == 0 else 1 for i, n in enumerate(lead))


def options_of(kind, lead):
    """A mask and a bias that share entries in one way or another."""
    whole, first = (*lead, N), (lead[0], *[1] * len(lead))
    mask, bias = {
        "whole": (whole, whole),
        "by batch": (first, first),
        "by head": ((*[1] * len(lead), N), (*[1] * len(lead), N)),
        "alternating": (alternating(*whole), (1, *alternating(*whole[1:]))),
        "two axes": ((), ()),
    }[kind]
    bias = normal((*bias, T, S), seed=9)
    bias[..., 1] = -np.inf
    return {
        "attention_mask": coins(*mask, T, S),
        "attention_bias": bias,
        "key_mask": coins(lead[0], S, seed=7),
        "query_mask": coins(*lead, 1, T, seed=8),
        "use_causal_mask": True,
    }


def with_gradients(inputs, options, **others):
    """The context and the gradients of the inputs and of the bias."""
    *tensors, bias = (tf.constant(x) for x in (*inputs, options.pop("bias")))

    with tf.GradientTape() as tape:
        tape.watch((*tensors, bias))
        context = dot_product_attention(
            *tensors, attention_bias=bias, **options, **others
        )
        total = tf.reduce_sum(context**2)
    gradients = tape.gradient(total, (*tensors, bias))
    return [to_numpy(x) for x in (context, *gradients)]


def one_by_one(inputs, options):
    """The same in float64, all axes before the heads made one."""
    lead = inputs[0].shape[:-3]
    count = int(np.prod(lead))

    def flat(array, *whole):
        array = np.broadcast_to(array, (*lead, *whole))
        return array.reshape(count, *whole)

    def pairs(array):
        missing = len(lead) + 3 - array.ndim
        return flat(array.reshape(*[1] * missing, *array.shape), N, T, S)

    queries = np.broadcast_to(options["query_mask"], (*lead, 1, T))
    keys = options["key_mask"].reshape(lead[0], *[1] * (len(lead) - 1), S)
    found = with_gradients(
        [x.reshape(count, *x.shape[-3:]).astype("float64") for x in inputs],
        {
            "attention_mask": pairs(options["attention_mask"]),
            "bias": pairs(options["attention_bias"]).astype("float64"),
            "query_mask": queries.reshape(count, T),
            "key_mask": flat(keys, S),
            "use_causal_mask": True,
        },
        flash_attention=False,
    )
    *found, of_bias = found
    bias = options["attention_bias"]
    of_bias = of_bias.reshape(*lead, N, T, S)
    of_bias = of_bias.sum(axis=tuple(range(of_bias.ndim - bias.ndim)))
    ones = tuple(i for i, n in enumerate(bias.shape) if n == 1)
    of_bias = of_bias.sum(axis=ones, keepdims=True)
    shapes = [(*lead, N, T, HV), *(x.shape for x in inputs)]
    found = [x.reshape(s) for x, s in zip(found, shapes, strict=True)]
    return [*found, of_bias]


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize(
    "kind", ["whole", "by batch", "by head", "alternating", "two axes"]
)
def test_every_entry_is_as_it_is_alone(kind, lead):
    inputs, options = inputs_of(lead), options_of(kind, lead)
    expected = one_by_one(inputs, options)
    bias = options.pop("attention_bias")
    for flash in (False, True):
        found = with_gradients(
            inputs, {**options, "bias": bias}, flash_attention=flash
        )
        for one, other, bound in zip(found, expected, BOUNDS, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


def test_dropout_of_many_axes_repeats():
    inputs = inputs_of((3, 2, 2, 5), N)
    for flash in (False, True):
        one, other = (
            dot_product_attention(
                *inputs, dropout=0.5, seed=4, flash_attention=flash
            )
            for _ in range(2)
        )
        np.testing.assert_array_equal(one, other)
        assert abs(one - dot_product_attention(*inputs)).numpy().max() > 0.1


def test_sizes_known_only_at_run_time():
    lead = (3, 2, 5)
    inputs, options = inputs_of(lead), options_of("alternating", lead)
    # Of a mask too, of which nobody knows yet where it is one.
    given = [*inputs, options["attention_mask"], options["attention_bias"]]
    specs = [
        tf.TensorSpec((*[None] * 3, *x.shape[3:-2], None, x.shape[-1]))
        for x in inputs
    ]
    specs += [tf.TensorSpec([None] * 6, x.dtype) for x in given[3:]]
    key_mask = options["key_mask"]

    @tf.function(input_signature=specs)
    def traced(query, key, value, mask, bias):
        return [
            dot_product_attention(
                query,
                key,
                value,
                mask,
                bias,
                key_mask=key_mask,
                return_attention_scores=scores,
                flash_attention=not scores or None,
            )
            for scores in (True, False)
        ]

    expected = reference.dot_product_attention(
        *given, key_mask=options["key_mask"]
    )
    results = tf.nest.flatten(traced(*given))
    for one, other in zip(results, (*expected, expected[0]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_mask_for_the_batch_is_not_repeated_for_other_axes():
    lead, length = (2, 3, 5), 16
    query = normal((*lead, N, length, H))
    mask = coins(lead[0], 1, 1, 1, length, length)

    @tf.function
    def traced(mask):
        return dot_product_attention(query, query, query, mask)

    graph = traced.get_concrete_function(mask).graph
    largest = max(
        out.shape.num_elements()
        for op in graph.get_operations()
        for out in op.outputs
        if out.dtype == tf.bool
    )
    assert largest == mask.size


def test_symbolic_tensors_of_many_axes():
    lead = (None, None, 3)
    query = keras.KerasTensor((*lead, N, T, H))
    key = keras.KerasTensor((*lead, K, S, H))
    value = keras.KerasTensor((*lead, K, S, HV))
    context, weights = dot_product_attention(
        query,
        key,
        value,
        keras.KerasTensor((None, None, 1, N, T, S), "bool"),
        return_attention_scores=True,
    )
    assert context.shape == (*lead, N, T, HV)
    assert weights.shape == (*lead, N, T, S)


@pytest.mark.parametrize("rank", [5, 6, 7])
def test_layers_take_many_axes(rank):
    lead = LEADS[rank - 4][: rank - 2]
    query, value = normal((*lead, T, H), (*lead, S, H))
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (query, value)]
    for layer in (
        Attention(use_scale=True),
        Attention(score_mode="concat"),
        AdditiveAttention(),
        AdditiveAttention(units=3),
    ):
        results = layer(
            [query, value],
            mask=[None, np.ones(value.shape[:-1], bool)],
            return_attention_scores=True,
        )
        alone = layer(flat, return_attention_scores=True)
        for one, other in zip(results, alone, strict=True):
            assert one.shape == (*lead, *other.shape[1:])
            np.testing.assert_allclose(
                to_numpy(one).reshape(other.shape), other, atol=1e-5
            )
    layer, other = (MultiHeadAttention(2, 3, attention_axes=-2) for _ in "ab")
    one = layer(query, value)
    other.build(*(x.shape for x in flat))
    other.set_weights(layer.get_weights())
    alone = other(*flat)
    np.testing.assert_allclose(
        to_numpy(one).reshape(alone.shape), alone, atol=1e-5
    )

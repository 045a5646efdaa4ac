"""A batch computed in halves gives what it gives as a whole."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from support.arrays import coins, normal

from keras_attention.ops import (
    dot_product_attention,
    processor,
    side_by_side,
)

N, K, T, S, H, HV = 4, 2, 33, 40, 6, 5


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch):
    monkeypatch.setattr(processor, "multiplies_with_onednn", lambda: False)


def inputs(batch):
    return normal(
        (batch, N, T, H), (batch, K, S, H), (batch, K, S, HV), (1, N, T, S)
    )


def masks_of(batch, kind):
    return {
        "none": {},
        "padding": {
            "query_mask": coins(batch, T),
            "key_mask": coins(batch, S),
        },
        "one for all": {"attention_mask": coins(1, N, T, S)},
        "whole": {"attention_mask": coins(batch, 1, T, S)},
        "two axes": {"attention_mask": coins(T, S)},
        "causal": {"use_causal_mask": True},
    }[kind]


def with_gradients(tensors, masks, dtype="float32"):
    *inputs, bias = (tf.cast(x, dtype) for x in tensors)
    with tf.GradientTape() as tape:
        tape.watch((*inputs, bias))
        context, weights = dot_product_attention(
            *inputs,
            attention_bias=bias,
            return_attention_scores=True,
            **masks,
        )
        total = tf.reduce_sum(tf.cast(context, "float32") ** 2)
    return context, weights, *tape.gradient(total, (*inputs, bias))


@pytest.mark.parametrize(
    "kind", ["none", "padding", "one for all", "whole", "two axes", "causal"]
)
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("known", [True, False])
def test_halves_equal_the_whole(kind, batch, known):
    tensors, masks = inputs(batch), masks_of(batch, kind)
    expected = with_gradients(tensors, masks)
    arrays = {k: x for k, x in masks.items() if isinstance(x, np.ndarray)}

    def run(*given):
        given, parts = given[:4], dict(zip(arrays, given[4:], strict=True))
        return with_gradients(given, {**masks, **parts})

    given = [tf.constant(x) for x in (*tensors, *arrays.values())]
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in given]
    if not known:
        specs = [
            tf.TensorSpec((None, *x.shape[1:]), x.dtype)
            if x.shape[0] in (batch, 1)
            else x
            for x in specs
        ]
    run = tf.function(run, input_signature=specs, autograph=False)
    for one, other in zip(run(*given), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def operations(function, *specs):
    graph = tf.function(function).get_concrete_function(*specs).graph
    return [operation.type for operation in graph.get_operations()]


def test_a_graph_has_both_halves():
    spec = tf.TensorSpec((None, N, T, H))

    def attend(x):
        return dot_product_attention(x, x, x)

    assert operations(attend, spec).count("BatchMatMulV2") == 4
    with mock.patch.object(side_by_side, "_is_possible", lambda _: False):
        assert operations(attend, spec).count("BatchMatMulV2") == 2


@pytest.mark.parametrize(
    "shape, options",
    [
        ((1, N, T, H), {}),
        ((3, N, 4, H), {}),
        ((3, T, H), {}),
        ((3, N, T, H), {"dropout": 0.5, "seed": 1}),
    ],
    ids=["one", "short", "no heads", "dropout"],
)
def test_what_stays_whole(shape, options):
    def attend(x):
        return dot_product_attention(x, x, x, **options)

    found = operations(attend, tf.TensorSpec(shape))
    assert found.count("BatchMatMulV2") == 2


def test_a_known_batch_stays_known():
    @tf.function
    def attend(x):
        context = dot_product_attention(x, x, x)
        assert context.shape == x.shape
        return context

    attend(tf.ones((3, N, T, H)))


def test_an_empty_batch_stays_empty():
    @tf.function(input_signature=[tf.TensorSpec((None, N, T, H))])
    def attend(x):
        return dot_product_attention(x, x, x)

    assert attend(tf.ones((0, N, T, H))).shape == (0, N, T, H)


@pytest.mark.parametrize("training", [False, True])
def test_lengths_not_known_before_are_halved_too(training):
    """One graph for all lengths equals the call with everything known."""
    query, key, value, _ = inputs(5)
    key, value = (np.repeat(x, N // K, axis=1) for x in (key, value))
    specs = [tf.TensorSpec((None, N, None, n)) for n in (H, H, HV)]

    def attend(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch((query, key, value))
            context = dot_product_attention(query, key, value)
        if not training:
            return (context,)
        return context, *tape.gradient(context, (query, key, value))

    unknown = tf.function(attend, input_signature=specs, autograph=False)
    tensors = [tf.constant(x) for x in (query, key, value)]
    for one, other in zip(unknown(*tensors), attend(*tensors), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)

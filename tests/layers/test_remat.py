"""Layers computed a second time for their gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins, normal

from keras_attention.layers import (
    DecoderBlock,
    EncoderBlock,
    MultiHeadAttention,
)

B, T, D = 2, 6, 8
X = tf.constant(normal((B, T, D)))
WEIGHTS = normal((B, T, D), seed=4)
MASK = coins(B, T).copy()
MASK[:, 0] = True
SUBJECTS = {
    "dense": lambda dropout: MultiHeadAttention(
        2, 4, dropout=dropout, seed=3, flash_attention=False
    ),
    "blockwise": lambda dropout: MultiHeadAttention(
        2, 4, dropout=dropout, seed=3, flash_attention=True
    ),
    "block": lambda dropout: EncoderBlock(2, 16, dropout=dropout, seed=3),
}
subjects = pytest.mark.parametrize("name", SUBJECTS)
in_graph = pytest.mark.parametrize("graph", [False, True])


def training_call(layer):
    """Returns what calls a layer on one tensor, and builds the layer."""

    def call(x):
        inputs = [x] if isinstance(layer, EncoderBlock) else [x, x]
        return layer(*inputs, training=True)

    call(X)
    return call


def seeds_of(layer):
    return [v for v in layer.variables if v.name == "seed_generator_state"]


def step(call, layer, graph=False):
    """Returns the loss and all gradients, from the same seeds each time."""
    for seed in seeds_of(layer):
        seed.assign([3, 0])

    def differentiate():
        with tf.GradientTape() as tape:
            tape.watch(X)
            loss = tf.reduce_sum(call(X) * WEIGHTS)
        weights = [w.value for w in layer.trainable_weights]
        return loss, *tape.gradient(loss, [X, *weights])

    return (tf.function(differentiate) if graph else differentiate)()


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@subjects
@in_graph
def test_gradients_of_a_second_run_without_dropout(name, graph):
    layer = SUBJECTS[name](0.0)
    call = training_call(layer)
    expected = step(call, layer, graph)
    assert_equal(step(keras.remat(call), layer, graph), expected)


@subjects
def test_gradients_in_a_scope_without_dropout(name):
    layer = SUBJECTS[name](0.0)
    expected = step(training_call(layer), layer)
    with keras.RematScope(mode="full"):
        scoped = SUBJECTS[name](0.0)
        call = training_call(scoped)
    scoped.set_weights(layer.get_weights())
    assert_equal(step(call, scoped), expected)


def with_seeds_of_before(call, layer):
    """The way out of `docs/differences.md`."""

    def call_once(x):
        before = [ops.copy(seed) for seed in seeds_of(layer)]

        def run(x):
            for seed, value in zip(seeds_of(layer), before, strict=True):
                seed.assign(value)
            return call(x)

        return keras.remat(run)(x)

    return call_once


@subjects
@in_graph
def test_a_second_run_drops_the_same_from_the_same_seeds_alone(name, graph):
    layer = SUBJECTS[name](0.5)
    call = training_call(layer)
    expected = step(call, layer, graph)
    states = [ops.convert_to_numpy(seed) for seed in seeds_of(layer)]
    found = step(with_seeds_of_before(call, layer), layer, graph)
    assert_equal(found, expected)
    for seed, state in zip(seeds_of(layer), states, strict=True):
        np.testing.assert_array_equal(seed, state)
    # As with Keras's own dropout: the right loss, gradients of another.
    loss, *gradients = step(keras.remat(call), layer, graph)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
    assert np.abs(gradients[0] - expected[1]).max() > 0.1


@in_graph
def test_a_mask_passed_by_hand_is_there_in_both_runs(graph):
    layer = DecoderBlock(2, 16)

    def call(x):
        return layer(x, x[:, ::-1], encoder_padding_mask=MASK)

    call(X)
    expected = step(call, layer, graph)
    assert_equal(step(keras.remat(call), layer, graph), expected)
    unmasked = step(lambda x: layer(x, x[:, ::-1]), layer, graph)
    assert np.abs(unmasked[1] - expected[1]).max() > 0.01

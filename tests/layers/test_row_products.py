"""Dense layers that multiply rows as one matrix, and derivatives of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.arrays import normal

from keras_attention import layers
from keras_attention.layers import row_products

B, T, D, COUNT = 3, 6, 8, 5


def on_itself(layer):
    return lambda x: layer(x, x)


SUBJECTS = {
    "heads": lambda: on_itself(layers.MultiHeadAttention(2, 4)),
    "flash": lambda: on_itself(
        layers.MultiHeadAttention(2, 4, flash_attention=True)
    ),
    "grouped": lambda: on_itself(layers.GroupedQueryAttention(4, 4, 2)),
    "encoder": lambda: layers.EncoderBlock(2, 16),
    "decoder": lambda: layers.DecoderBlock(2, 16),
    "feed_forward": lambda: layers.FeedForward(16),
}
subjects = pytest.mark.parametrize("name", SUBJECTS)


@subjects
@pytest.mark.parametrize("batch", [B, 1])
def test_derivatives_by_vectorization(name, batch):
    call = SUBJECTS[name]()
    x = tf.constant(normal((batch, T, D)), "float32")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        outputs = call(x)
        one = outputs[:, 2, 3]
    expected = tape.gradient(one, x)
    # By sample: each output depends on its own sample alone.
    found = tape.batch_jacobian(outputs, x)[:, 2, 3]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    whole = tape.jacobian(one, x)
    for row, (gradients, own) in enumerate(zip(whole, expected, strict=True)):
        np.testing.assert_allclose(gradients[row], own, atol=1e-5)


@subjects
@pytest.mark.parametrize("batch", [B, 1])
def test_vectorized_map(name, batch):
    call = SUBJECTS[name]()
    many = tf.constant(normal((COUNT, batch, T, D)), "float32")
    expected = [call(x) for x in many]
    found = tf.vectorized_map(call, many)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def products_with_matrices(graph):
    """Returns the products of a graph whose right side alone is a matrix."""
    ranks = [
        [x.shape.rank for x in operation.inputs[:2]]
        for operation in graph.get_operations()
        if operation.type in ("MatMul", "BatchMatMulV2", "BatchMatMulV3")
    ]
    assert ranks
    return [(left, right) for left, right in ranks if left > right]


@subjects
def test_no_product_has_a_matrix_on_one_side_alone(name):
    call = SUBJECTS[name]()
    x = tf.constant(normal((1, T, D)), "float32")
    call(x)

    @tf.function
    def differentiate(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(call(x))
        return tape.gradient(loss, x)

    graph = differentiate.get_concrete_function(x).graph
    assert products_with_matrices(graph) == []


@pytest.mark.parametrize(
    "equation, output, shape",
    [
        ("ABx,xyz->AByz", (None, 2, 4), (B, T, D)),
        ("ABxy,xyz->ABz", (None, 7), (B, T, 2, 4)),
    ],
)
def test_equals_keras(equation, output, shape):
    options = {"output_shape": output, "bias_axes": equation[-1]}
    ours = row_products.EinsumDense(equation, activation="tanh", **options)
    theirs = keras.layers.EinsumDense(equation, activation="tanh", **options)
    x = normal(shape).astype("float32")
    ours(x), theirs(x)
    weights = [normal(w.shape) for w in theirs.weights]
    ours.set_weights(weights), theirs.set_weights(weights)
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-5)

import numpy as np
import pytest

from keras_attention import reference


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_by_hand():
    # x0 * x1^2: the slopes are x1^2 = 9 and 2 * x0 * x1 = 12.
    gradient = reference.numeric_gradient(lambda x: x[0] * x[1] ** 2, [2, 3])
    np.testing.assert_allclose(gradient, [9, 12], atol=1e-7)


def test_a_scalar():
    gradient = reference.numeric_gradient(lambda x: x, 5)
    np.testing.assert_allclose(gradient, 1, atol=1e-7)


def test_the_array_stays_as_it_is(rng):
    array = rng.normal(size=(2, 3))
    array.setflags(write=False)
    before = array.copy()
    gradient = reference.numeric_gradient(np.sum, array)
    np.testing.assert_array_equal(array, before)
    np.testing.assert_allclose(gradient, np.ones((2, 3)), atol=1e-7)


def test_attention_against_its_derivative(rng):
    query, key = rng.normal(size=(3, 6)), rng.normal(size=(5, 6))
    value, upstream = rng.normal(size=(5, 7)), rng.normal(size=(3, 7))

    def loss(query=query, value=value):
        context, _ = reference.attend_one(query, key, value)
        return np.sum(upstream * context)

    # context = P V, P = softmax(Q K^T / sqrt(H)); with G the upstream
    # gradient, dV = P^T G, dP = G V^T, dQ = P (dP - sum(dP P)) K / sqrt(H).
    _, weights = reference.attend_one(query, key, value)
    by_weight = upstream @ value.T
    mean = np.sum(by_weight * weights, axis=-1, keepdims=True)
    by_query = weights * (by_weight - mean) @ key / np.sqrt(6)
    np.testing.assert_allclose(
        reference.numeric_gradient(lambda v: loss(value=v), value),
        weights.T @ upstream,
        atol=1e-7,
    )
    np.testing.assert_allclose(
        reference.numeric_gradient(lambda q: loss(query=q), query),
        by_query,
        atol=1e-7,
    )

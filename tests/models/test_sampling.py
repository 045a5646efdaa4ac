"""Drawing tokens from logits made by hand."""

import numpy as np
import pytest
from keras import ops

from keras_attention.models.sampling import sample, uniform

PROBABILITIES = np.array([0.15, 0.4, 0.05, 0.3, 0.1], "float32")
COUNT = 4000


def draws(uniforms=None, **options):
    """Returns the share of each token among many draws."""
    if uniforms is None:
        uniforms = (np.arange(COUNT, dtype="float32") + 0.5) / COUNT
    logits = np.tile(np.log(PROBABILITIES), (len(uniforms), 1))
    tokens = ops.convert_to_numpy(sample(logits, uniforms, **options))
    return np.bincount(tokens, minlength=5) / len(tokens)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5}, PROBABILITIES**2),
        ({"temperature": 0.0}, [0, 1, 0, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_k": 2}, [0, 0.4, 0, 0.3, 0]),
        ({"top_k": 9}, PROBABILITIES),
        ({"top_p": 1e-6}, [0, 1, 0, 0, 0]),
        ({"top_p": 1e-60}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.69}, [0, 0.4, 0, 0.3, 0]),
        ({"top_p": 0.71}, [0.15, 0.4, 0, 0.3, 0]),
        # Among the two likeliest, the first has 4/7 of the probability.
        ({"top_k": 2, "top_p": 0.5}, [0, 1, 0, 0, 0]),
    ],
)
def test_shares_are_the_probabilities(options, weights):
    expected = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(draws(**options), expected, atol=1e-3)


def test_the_ends_of_the_interval_draw_possible_tokens():
    largest = np.nextafter(np.float32(1), np.float32(0)) - np.float32(2**-24)
    for number in (0.0, largest):
        share = draws(np.full(3, number, "float32"), top_p=0.71)
        assert share[[0, 1, 3]].sum() == 1
    logits = np.array([[-np.inf, 0, -np.inf]], "float32")
    for number in (0.0, largest):
        assert int(sample(logits, np.array([number], "float32"))[0]) == 1


def test_ties_do_not_let_more_than_k_in():
    logits = np.zeros((COUNT, 6), "float32")
    uniforms = (np.arange(COUNT, dtype="float32") + 0.5) / COUNT
    tokens = ops.convert_to_numpy(sample(logits, uniforms, top_k=3))
    assert len(set(tokens)) == 3


def test_each_row_has_its_own_temperature_and_top_p():
    logits = np.tile(np.log(PROBABILITIES), (3, 1))
    tokens = sample(
        logits,
        np.array([0.99, 0.99, 0.99], "float32"),
        temperature=np.array([0.0, 1.0, 1.0], "float32"),
        top_p=np.array([1.0, 1.0, 0.5], "float32"),
    )
    # By probability, the order is 1, 3, 0, 4, 2.
    assert ops.convert_to_numpy(tokens).tolist() == [1, 2, 3]


def test_numbers_are_uniform_and_independent():
    seeds = np.stack([np.arange(COUNT) % 64, np.arange(COUNT) // 64], 1)
    first = ops.convert_to_numpy(uniform(seeds, 0))
    later = ops.convert_to_numpy(uniform(seeds, 1))
    assert 0 <= first.min() and first.max() < 1
    counts, _ = np.histogram(first, 16, (0, 1))
    # Chi-square with 15 degrees of freedom: 37.7 is passed once in 1000.
    assert ((counts - COUNT / 16) ** 2 / (COUNT / 16)).sum() < 37.7
    for other in (later, np.roll(first, 1), np.roll(first, 64)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.06


def test_a_number_hangs_on_seed_and_step_alone():
    alone = ops.convert_to_numpy(uniform(np.array([[-5, 2]]), 7))
    beside = ops.convert_to_numpy(uniform(np.array([[1, 2], [-5, 2]]), 7))
    assert alone[0] == beside[1] != beside[0]

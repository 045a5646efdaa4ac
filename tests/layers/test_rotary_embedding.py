"""Rotations are right to the dtype, on whatever axes."""

import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.arrays import normal
from support.layer_contract import assert_close, to_numpy

from keras_attention import reference
from keras_attention.layers import RotaryEmbedding

B, T, N, H = 2, 5, 3, 6
HEADS = normal((B, T, N, H))


def expected(inputs, positions, **options):
    rotated = reference.rotate(inputs.swapaxes(1, 2), positions, **options)
    return rotated.swapaxes(1, 2)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_equals_the_reference(pairing, policy):
    options = {"max_wavelength": 50, "scaling_factor": 2.5, "pairing": pairing}
    layer = RotaryEmbedding(**options, dtype=policy)
    dtype = layer.compute_dtype
    inputs = ops.cast(HEADS, dtype)
    assert_close(
        layer(inputs, start_index=3),
        expected(to_numpy(inputs), np.arange(3, 3 + T), **options),
        dtype,
    )


def test_a_quarter_turn_by_hand():
    # Wavelengths of 4 and 40 positions: angles of 90 and 9 degrees.
    layer = RotaryEmbedding(100, scaling_factor=2 / np.pi)
    rotated = layer(np.array([[[1.0, 0.0, 0.0, 2.0]]]), positions=[1])
    slow = np.pi / 2 / 10
    np.testing.assert_allclose(
        rotated[0, 0], [0, -2 * np.sin(slow), 1, 2 * np.cos(slow)], atol=1e-6
    )
    layer = RotaryEmbedding(
        100, scaling_factor=2 / np.pi, pairing="interleaved"
    )
    rotated = layer(np.array([[[1.0, 0.0, 0.0, 2.0]]]), positions=[1])
    np.testing.assert_allclose(
        rotated[0, 0], [0, 1, -2 * np.sin(slow), 2 * np.cos(slow)], atol=1e-6
    )


@pytest.mark.parametrize("sequence_axis, feature_axis", [(2, -1), (3, 1)])
def test_any_axes(sequence_axis, feature_axis):
    order = {(2, -1): (0, 2, 1, 3), (3, 1): (0, 3, 2, 1)}
    axes = order[sequence_axis, feature_axis]
    layer = RotaryEmbedding(
        sequence_axis=sequence_axis, feature_axis=feature_axis
    )
    positions = np.array([[4, 5, 6, 7, 8], [0, 1, 0, 3, 9]])
    for given in (positions, positions[0]):
        rotated = layer(HEADS.transpose(axes), positions=given)
        by_head = given[:, None] if given.ndim == 2 else given
        np.testing.assert_allclose(
            rotated, expected(HEADS, by_head).transpose(axes), atol=1e-5
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_neighbours_stay_apart_in_half_precision(dtype):
    layer = RotaryEmbedding(dtype=dtype)
    ones = ops.ones((1, 2, 1, 64), dtype)
    rows = to_numpy(layer(ones, start_index=256))[0, :, 0]
    assert np.abs(rows[0] - rows[1]).max() > 0.5
    exact = reference.rotate(np.ones((2, 64)), [256, 257])
    np.testing.assert_allclose(
        rows, exact, atol=layer_contract.TOLERANCE[dtype]
    )


def test_products_depend_on_the_distance_alone():
    layer = RotaryEmbedding()
    query, key = normal((1, 1, 1, 64), (1, 1, 1, 64))

    def product(at, other):
        one = layer(query, start_index=at)
        return float(ops.sum(one * layer(key, start_index=other)))

    np.testing.assert_allclose(
        product(30_007, 30_002), product(5, 0), atol=1e-4
    )


def test_symbolic_equals_eager_and_config_comes_back():
    options = {
        "max_wavelength": 50,
        "scaling_factor": 2.0,
        "pairing": "interleaved",
        "sequence_axis": 2,
        "feature_axis": -1,
    }
    layer = RotaryEmbedding(**options)
    layer_contract.assert_symbolic_equals_eager(layer, HEADS)
    layer_contract.assert_round_trip(layer, **options)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"pairing": "whole"}, "pairing"),
        ({"scaling_factor": 0}, "scaling_factor"),
        ({"sequence_axis": 3}, "two axes"),
        ({"feature_axis": 4}, "two axes"),
        ({"sequence_axis": 1, "feature_axis": 2}, "even"),
    ],
)
def test_refuses_what_does_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        RotaryEmbedding(**options)(HEADS)

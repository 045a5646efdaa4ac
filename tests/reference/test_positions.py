"""Rotations, slopes and norms of the reference, by hand."""

import numpy as np
import pytest

from keras_attention import reference


def test_rotations_by_hand():
    # A head of 4 at position 2 turns by 2 and by 2 / 100 radians.
    cosines, sines = np.cos([2, 0.02]), np.sin([2, 0.02])
    half = reference.rotate([[1, 0, 0, 1]], [2])
    np.testing.assert_allclose(
        half[0], [cosines[0], -sines[1], sines[0], cosines[1]]
    )
    interleaved = reference.rotate([[1, 0, 0, 1]], [2], pairing="interleaved")
    np.testing.assert_allclose(
        interleaved[0], [cosines[0], sines[0], -sines[1], cosines[1]]
    )


def test_rotations_keep_lengths_and_start_from_nothing():
    x = np.random.default_rng(0).normal(size=(3, 5, 8))
    rotated = reference.rotate(x, np.arange(5))
    np.testing.assert_allclose(rotated[:, 0], x[:, 0])
    np.testing.assert_allclose(
        np.linalg.norm(rotated, axis=-1), np.linalg.norm(x, axis=-1)
    )


@pytest.mark.parametrize(
    "num_heads, slopes",
    [
        (1, [2**-8]),
        (4, [2**-2, 2**-4, 2**-6, 2**-8]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    ],
)
def test_slopes_by_hand(num_heads, slopes):
    np.testing.assert_array_equal(reference.alibi_slopes(num_heads), slopes)


def test_bias_and_norm_by_hand():
    bias = reference.alibi_bias(2, [3], [1, 3, 5])
    np.testing.assert_array_equal(
        bias, [[[-(2**-3), 0, -(2**-3)]], [[-(2**-7), 0, -(2**-7)]]]
    )
    np.testing.assert_allclose(
        reference.rms_norm([[3, 4, 0, 0]], [1, 1, 1, 2], epsilon=0),
        [[1.2, 1.6, 0, 0]],
    )

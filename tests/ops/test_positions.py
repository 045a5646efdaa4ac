"""Positions as numbers, right to the last bit that a dtype has."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention import reference
from keras_attention.ops import positions
from keras_attention.ops.positions import sinusoidal_positions


@pytest.mark.parametrize("length, depth", [(7, 8), (5, 7), (3, 1), (1, 2)])
@pytest.mark.parametrize("start", [0, 13])
@pytest.mark.parametrize("wavelength", [10000, 50.0])
def test_equals_the_reference(length, depth, start, wavelength):
    table = sinusoidal_positions(length, depth, wavelength, start)
    assert table.shape == (length, depth)
    expected = reference.sinusoidal_positions(length, depth, wavelength, start)
    np.testing.assert_allclose(table, expected, atol=1e-5)


@pytest.mark.parametrize("start", [1_000, 8_000, 30_000])
def test_positions_far_from_the_start_are_as_exact(start):
    table = sinusoidal_positions(2_000, 64, start_index=start)
    expected = reference.sinusoidal_positions(2_000, 64, start_index=start)
    np.testing.assert_allclose(table, expected, atol=1e-5)


@pytest.mark.parametrize("dtype, atol", [("bfloat16", 4e-3), ("float16", 5e-4)])
def test_neighbours_stay_distinct_in_half_precision(dtype, atol):
    # In bfloat16 itself the number 257 does not exist.
    table = sinusoidal_positions(2, 64, start_index=256, dtype=dtype)
    assert keras.backend.standardize_dtype(table.dtype) == dtype
    table = ops.convert_to_numpy(ops.cast(table, "float32"))
    assert np.abs(table[0] - table[1]).max() > 0.5
    expected = reference.sinusoidal_positions(2, 64, start_index=256)
    np.testing.assert_allclose(table, expected, atol=atol)


def test_default_dtype_is_that_of_keras():
    assert sinusoidal_positions(2, 4).dtype == "float32"
    keras.config.set_floatx("float16")
    try:
        assert sinusoidal_positions(2, 4).dtype == "float16"
    finally:
        keras.config.set_floatx("float32")


def test_length_and_start_known_at_run_time_only():
    spec = tf.TensorSpec((), "int32")

    @tf.function(input_signature=[spec, spec])
    def traced(length, start):
        return sinusoidal_positions(length, 6, start_index=start)

    np.testing.assert_allclose(
        traced(3, 4),
        reference.sinusoidal_positions(3, 6, start_index=4),
        atol=1e-5,
    )


def test_angles_of_any_frequencies():
    at = np.array([[0.0, 3.0], [500.0, 40_000.0]], "float32")
    frequencies = np.array([1.0, 0.25, 1e-4, 3.0])
    angles = positions.angles_of(at, frequencies)
    exact = at[..., None].astype("float64") * frequencies
    np.testing.assert_allclose(ops.sin(angles), np.sin(exact), atol=3e-5)
    np.testing.assert_allclose(ops.cos(angles), np.cos(exact), atol=3e-5)

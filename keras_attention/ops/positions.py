"""Positions as numbers, computed in float32 and cast last."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops


def sinusoidal_positions(
    length, depth, max_wavelength=10000, start_index=0, dtype=None
):
    """Returns the table of sines and cosines that marks positions.

    Column `2i` holds `sin(t / max_wavelength ** (2i / depth))` and column
    `2i + 1` the cosine of the same angle.

    Args:
        length: Number of positions, T. An integer or a scalar tensor.
        depth: Width of the table, D. An odd width ends on a sine.
        max_wavelength: Longest wavelength, in units of `2 * pi` positions.
        start_index: Position of the first row, when decoding step by step.
        dtype: Dtype of the result. Defaults to `keras.config.floatx()`.

    Returns:
        A tensor `(T, D)`.

    Example:

    >>> ops.convert_to_numpy(sinusoidal_positions(1, 4)).tolist()
    [[0.0, 1.0, 0.0, 1.0]]

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    positions = ops.cast(
        ops.arange(length, dtype="int32") + ops.cast(start_index, "int32"),
        "float32",
    )
    columns = np.arange(0, depth, 2)
    angles = angles_of(positions, float(max_wavelength) ** (-columns / depth))
    table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    table = ops.reshape(table, (-1, 2 * len(columns)))[:, :depth]
    return ops.cast(table, dtype or keras.config.floatx())


def angles_of(positions, frequencies):
    """Returns `positions * frequencies`, whole turns taken off.

    The plain product in float32 is off by 1e-3 at an angle of 10,000. Here
    each frequency is split in two: the first part has so few bits that its
    product with any position below 65,536 is exact, and what remains is
    small.

    Args:
        positions: Float32 tensor `(..., T)` of whole numbers.
        frequencies: NumPy float64 array `(F,)`, radians a position.

    Returns:
        A float32 tensor `(..., T, F)`.

    Example:

    >>> angle = angles_of(ops.array([30_000.0]), np.array([1.0]))[0, 0]
    >>> round(float(ops.sin(angle)), 4), round(float(np.sin(30_000.0)), 4)
    (-0.8027, -0.8027)
    """
    turns = frequencies / (2 * np.pi)
    mantissa, exponent = np.frexp(turns)
    coarse = np.ldexp(np.round(mantissa * 256) / 256, exponent)
    positions = ops.expand_dims(positions, -1)
    whole = positions * ops.cast(coarse, "float32")
    rest = positions * ops.cast(turns - coarse, "float32")
    return (whole - ops.floor(whole) + rest) * (2 * np.pi)

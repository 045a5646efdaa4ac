"""Positions as numbers, computed in float32 and cast last."""

from __future__ import annotations

import math

import keras
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
    pairs = ops.arange((depth + 1) // 2, dtype="float32")
    frequencies = ops.exp(pairs * (-2.0 * math.log(max_wavelength) / depth))
    angles = ops.expand_dims(positions, 1) * ops.expand_dims(frequencies, 0)
    table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    table = ops.reshape(table, (-1, 2 * pairs.shape[0]))[:, :depth]
    return ops.cast(table, dtype or keras.config.floatx())

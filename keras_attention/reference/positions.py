"""Positions: sines to add, rotations and slopes."""

import math

import numpy as np

from keras_attention.reference.arrays import float64


def sinusoidal_positions(
    length, depth, max_wavelength=10000, start_index=0
) -> np.ndarray:
    """Sine at even columns, cosine at odd ones (Vaswani et al., 2017).

    Columns 2i and 2i + 1 turn by `max_wavelength ** (-2i / depth)` a position.
    An odd depth ends on a sine.

    Args:
        length: How many positions.
        depth: How many columns.
        max_wavelength: Longest wavelength, in units of 2 pi positions.
        start_index: The first position.

    Returns:
        `(length, depth)`, row 0 for position `start_index`.

    Example: with depth 4 the second pair turns 10000 ** (1/2) = 100 times
    more slowly than the first.
    >>> print(sinusoidal_positions(2, 4).round(4))
    [[0.     1.     0.     1.    ]
     [0.8415 0.5403 0.01   1.    ]]
    """
    position = np.arange(start_index, start_index + length)[:, None]
    speed = float(max_wavelength) ** (-np.arange(0, depth, 2) / depth)
    table = np.empty((length, depth))
    table[:, 0::2] = np.sin(position * speed)
    table[:, 1::2] = np.cos(position * speed)[:, : depth // 2]
    return table


def rotate(
    inputs, positions, max_wavelength=10000, scaling_factor=1, pairing="half"
) -> np.ndarray:
    """Turns pairs of features by an angle for each position (Su et al., 2021).

    Pair j turns by `max_wavelength ** (-2j / H)` a position.

    Args:
        inputs: `(..., T, H)`.
        positions: `(T,)`, or whatever broadcasts to `(..., T)`.
        max_wavelength: Longest wavelength, in units of 2 pi positions.
        scaling_factor: Positions are divided by it.
        pairing: "half" pairs features j and j + H / 2, "interleaved" features
            2j and 2j + 1.

    Returns:
        `(..., T, H)`.

    Example: a quarter turn takes (3, 4) to (-4, 3).
    >>> print(rotate([[3, 4]], [1], scaling_factor=2 / np.pi).round(6))
    [[-4.  3.]]
    """
    inputs = float64(inputs)
    width = inputs.shape[-1]
    speed = float(max_wavelength) ** (-np.arange(0, width, 2) / width)
    angle = float64(positions)[..., None] / scaling_factor * speed
    turn = np.cos(angle) + 1j * np.sin(angle)
    if pairing == "half":
        real, imaginary = np.split(inputs, 2, axis=-1)
    else:
        real, imaginary = inputs[..., 0::2], inputs[..., 1::2]
    turned = (real + 1j * imaginary) * turn
    if pairing == "half":
        return np.concatenate([turned.real, turned.imag], axis=-1)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(inputs.shape)


def alibi_slopes(num_heads) -> np.ndarray:
    """One slope for each head (Press et al., 2022).

    Args:
        num_heads: N. For a power of two, the slopes go from `2 ** (-8 / N)`
            to `2 ** -8`; for another N, those of the power below are filled
            up with every other one of the power above.

    Returns:
        `(N,)`.

    Example:
    >>> print(alibi_slopes(8)[:3], alibi_slopes(3))
    [0.5   0.25  0.125] [0.0625     0.00390625 0.25      ]
    """
    if math.log2(num_heads).is_integer():
        return 2.0 ** (-8 / num_heads * np.arange(1, num_heads + 1))
    below = 2 ** math.floor(math.log2(num_heads))
    more = alibi_slopes(2 * below)[::2][: num_heads - below]
    return np.concatenate([alibi_slopes(below), more])


def alibi_bias(num_heads, query_positions, key_positions) -> np.ndarray:
    """`-slope * distance`, to be added to the scores (Press et al., 2022).

    Args:
        num_heads: N.
        query_positions: `(T,)`.
        key_positions: `(S,)`.

    Returns:
        `(N, T, S)`.

    Example:
    >>> print(alibi_bias(1, [1], [0, 1, 3]) * 2**8)
    [[[-1. -0. -2.]]]
    """
    distance = float64(query_positions)[:, None] - float64(key_positions)
    return -alibi_slopes(num_heads)[:, None, None] * np.abs(distance)


def rms_norm(inputs, scale, epsilon=1e-6) -> np.ndarray:
    """Divides by the root mean square (Zhang and Sennrich, 2019).

    Args:
        inputs: `(..., H)`.
        scale: `(H,)`.
        epsilon: Added to the mean square, against division by zero.

    Returns:
        `(..., H)`.

    Example: the mean square of 1 and 7 is 25.
    >>> print(rms_norm([1, 7], scale=[1, 10], epsilon=0))
    [ 0.2 14. ]
    """
    inputs = float64(inputs)
    mean_square = np.mean(inputs**2, axis=-1, keepdims=True)
    return inputs / np.sqrt(mean_square + epsilon) * float64(scale)

"""Positions as numbers, computed in float32 and cast last."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_attention.ops.inputs import check_inputs
from keras_attention.ops.shapes import sizes_differ


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
        start_index: Position of the first row, when decoding step by step:
            an integer or a scalar tensor, or a tensor `(B,)` with one for
            each sequence.
        dtype: Dtype of the result. Defaults to `keras.config.floatx()`.

    Returns:
        A tensor `(T, D)`, or `(B, T, D)` where B positions are given.

    Example:

    >>> ops.convert_to_numpy(sinusoidal_positions(1, 4)).tolist()
    [[0.0, 1.0, 0.0, 1.0]]

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    positions = ops.expand_dims(
        ops.cast(start_index, "int32"), -1
    ) + ops.arange(length, dtype="int32")
    return sinusoids_of(positions, depth, max_wavelength, dtype)


def sinusoids_of(positions, depth, max_wavelength=10000, dtype=None):
    """Returns the sines and cosines that mark positions of any order.

    Args:
        positions: Integer tensor `(T,)` or `(B, T)`.
        depth: As in `sinusoidal_positions`, like all that follow.
        max_wavelength: Longest wavelength.
        dtype: Dtype of the result.

    Returns:
        A tensor `(T, D)` or `(B, T, D)`.

    Example:

    >>> ops.convert_to_numpy(sinusoids_of(np.array([0]), 4)).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    positions = ops.cast(positions, "float32")
    columns = np.arange(0, depth, 2)
    angles = angles_of(positions, float(max_wavelength) ** (-columns / depth))
    table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    shape = (*ops.shape(positions), 2 * len(columns))
    table = ops.reshape(table, shape)[..., :depth]
    return ops.cast(table, dtype or keras.config.floatx())


def check(positions, inputs_shape, sequence_axis=-2) -> None:
    """Refuses positions that do not go with inputs.

    Args:
        positions: Integer tensor `(T,)` or `(B, T)`, or None for those that
            are counted.
        inputs_shape: Static shape of the inputs, `(B, ..., T, D)`.
        sequence_axis: The axis of T.

    Raises:
        TypeError: The positions are no integers.
        ValueError: They are of another shape.

    Example:

    >>> check(np.array([4, 5, 6]), (2, 3, 8))
    """
    if positions is None:
        return
    check_inputs(positions=positions)
    if not hasattr(positions, "dtype"):
        positions = np.asarray(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if not dtype.startswith(("int", "uint")):
        raise TypeError(
            "`positions` must be integers, one for each step. Received: "
            f"positions.dtype={dtype}"
        )
    shape = tuple(positions.shape)
    batch_size, length = inputs_shape[0], inputs_shape[sequence_axis]
    wanted = (batch_size, length)[-len(shape) :] if shape else ()
    if len(shape) not in (1, 2) or any(
        sizes_differ(got, want) and (axis, got) != (-2, 1)
        for axis, got, want in zip(
            range(-len(shape), 0), shape, wanted, strict=True
        )
    ):
        raise ValueError(
            "`positions` must have the shape (T,) or (B, T), one for each "
            f"step. Received: positions.shape={shape}, "
            f"inputs.shape={tuple(inputs_shape)}"
        )


def by_axis(table, rank):
    """Returns a table `(T, D)` or `(B, T, D)` ready to add to `(B, ..., T, D)`.

    Args:
        table: The tensor, with a row for each position.
        rank: Rank of the inputs.
    """
    while 2 < len(table.shape) < rank:
        table = ops.expand_dims(table, 1)
    return table


def rotate(
    inputs,
    positions,
    max_wavelength=10000,
    scaling_factor=1.0,
    pairing="half",
    sequence_axis=1,
    feature_axis=-1,
):
    """Rotates pairs of features by an angle for each position.

    Pair j turns by `positions * max_wavelength ** (-2j / H)`, so that the
    product of two rotated vectors depends on the distance of their positions
    alone. Angles and rotation are computed in float32 and cast last.

    Args:
        inputs: Tensor whose axes are in any order, such as `(B, T, N, H)`.
        positions: Integer tensor `(T,)`, or `(B, T)` where B is axis 0.
        max_wavelength: Longest wavelength, in units of `2 * pi` positions.
        scaling_factor: Positions are divided by it.
        pairing: "half" pairs feature j with `j + H / 2`, "interleaved"
            feature 2j with `2j + 1`.
        sequence_axis: The axis of T.
        feature_axis: The axis of H, which is even.

    Returns:
        A tensor shaped and typed like `inputs`.

    Example: a quarter turn.

    >>> turned = rotate(np.array([[[3.0, 4.0]]]), [1], scaling_factor=2 / np.pi)
    >>> ops.convert_to_numpy(turned).round(6).tolist()
    [[[-4.0, 3.0]]]

    Reference:
        [RoFormer](https://arxiv.org/abs/2104.09864)
    """
    inputs = ops.convert_to_tensor(inputs)
    rank, width = len(inputs.shape), inputs.shape[feature_axis]
    sequence_axis, feature_axis = sequence_axis % rank, feature_axis % rank
    exponents = -np.arange(0, width, 2) / width
    angles = angles_of(
        ops.cast(positions, "float32"),
        float(max_wavelength) ** exponents / scaling_factor,
    )
    if feature_axis < sequence_axis:
        angles = ops.swapaxes(angles, -1, -2)
    shape = [1] * rank
    shape[sequence_axis], shape[feature_axis] = -1, width // 2
    if len(angles.shape) == 3:
        shape[0] = ops.shape(angles)[0]
    angles = ops.reshape(angles, shape)
    wide = keras.backend.result_type(inputs.dtype, "float32")
    cosine = ops.cast(ops.cos(angles), wide)
    sine = ops.cast(ops.sin(angles), wide)
    first, second = _pairs(ops.cast(inputs, wide), pairing, feature_axis)
    turned = (
        first * cosine - second * sine,
        second * cosine + first * sine,
    )
    if pairing == "half":
        turned = ops.concatenate(turned, axis=feature_axis)
    else:
        turned = ops.stack(turned, axis=feature_axis + 1)
        turned = ops.reshape(turned, ops.shape(inputs))
    return ops.cast(turned, inputs.dtype)


def alibi_slopes(num_heads, alibi_bias_max=8) -> np.ndarray:
    """Returns the slope of each head, `(N,)`, steepest first.

    For a power of two, a geometric series that starts at its ratio and ends
    at `2 ** -alibi_bias_max`. For any other N, the series of the power of two
    below, then every other one of the series of the power above.

    Example:

    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]

    Reference:
        [Train Short, Test Long](https://arxiv.org/abs/2108.12409)
    """
    below = 2 ** int(np.log2(num_heads))
    series = 2.0 ** (-alibi_bias_max / below * np.arange(1, below + 1))
    above = 2.0 ** (-alibi_bias_max / below / 2 * np.arange(1, 2 * below, 2))
    return np.concatenate([series, above[: num_heads - below]])


def alibi_bias(
    num_heads, query_positions, key_positions, alibi_bias_max=8, dtype="float32"
):
    """Returns `-slope * distance` for each head, query and key.

    The same for every row of the batch, unless positions are given by row.

    Args:
        num_heads: Number of query heads, N.
        query_positions: Integer tensor `(T,)` or `(B, T)`.
        key_positions: Integer tensor `(S,)` or `(B, S)`.
        alibi_bias_max: As in `alibi_slopes`.
        dtype: Dtype of the result.

    Returns:
        A tensor `(N, T, S)`, or `(B, N, T, S)`.

    Example:

    >>> bias = alibi_bias(1, ops.arange(1), ops.arange(3))
    >>> ops.convert_to_numpy(-256 * bias).tolist()
    [[[0.0, 1.0, 2.0]]]
    """
    query_positions, key_positions = (
        ops.cast(x, "int32") for x in (query_positions, key_positions)
    )
    distance = ops.abs(
        ops.expand_dims(query_positions, -1)
        - ops.expand_dims(key_positions, -2)
    )
    distance = ops.cast(ops.expand_dims(distance, -3), dtype)
    slopes = ops.cast(alibi_slopes(num_heads, alibi_bias_max), dtype)
    return -distance * ops.reshape(slopes, (num_heads, 1, 1))


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


def _pairs(inputs, pairing, axis):
    """Returns the first and the second of each pair of features."""
    if pairing == "half":
        return ops.split(inputs, 2, axis=axis)
    lead = (slice(None),) * axis
    every_other = slice(0, None, 2), slice(1, None, 2)
    return [inputs[(*lead, part)] for part in every_other]

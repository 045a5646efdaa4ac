"""Which shapes go together, and which rates there are."""

from __future__ import annotations

import math

import keras


def check(query_shape, key_shape, value_shape) -> None:
    """Refuses shapes that no attention fits.

    Args:
        query_shape: `(..., N, T, H)`.
        key_shape: `(..., K, S, H)`.
        value_shape: `(..., K, S, Hv)`.

    Raises:
        ValueError: Ranks, widths, lengths or head counts do not match.
    """
    shapes = {
        "query": tuple(query_shape),
        "key": tuple(key_shape),
        "value": tuple(value_shape),
    }
    received = ", ".join(f"{k}.shape={v}" for k, v in shapes.items())
    query, key, value = shapes.values()
    if not len(query) == len(key) == len(value) or len(query) < 2:
        raise ValueError(
            "`query`, `key` and `value` must have the same rank, at least 2: "
            f"(..., T, H), (..., S, H) and (..., S, Hv). Received: {received}"
        )
    if sizes_differ(query[-1], key[-1]):
        raise ValueError(
            "The last axes of `query` and `key` (the head width H) must be "
            f"equal: their products are the scores. Received: {received}"
        )
    if sizes_differ(key[-2], value[-2]):
        raise ValueError(
            "`key` and `value` must have the same length S: each key belongs "
            f"to one value. Received: {received}"
        )
    lead = slice(0, 1 if len(query) == 3 else -3)
    for other in (key, value):
        if any(map(sizes_differ, query[lead], other[lead])):
            raise ValueError(
                "`query`, `key` and `value` must have the same batch size (and "
                f"other axes before the heads). Received: {received}"
            )
    if len(query) < 4:
        return
    if sizes_differ(key[-3], value[-3]):
        raise ValueError(
            "`key` and `value` must have the same number of heads at axis "
            f"-3. Received: {received}"
        )
    if 0 in (query[-3], key[-3]):
        raise ValueError(
            "There must be at least one head, at axis -3 of `query`, `key` "
            f"and `value`. Received: {received}"
        )
    if None not in (query[-3], key[-3]) and query[-3] % key[-3]:
        raise ValueError(
            f"The number of query heads ({query[-3]}) must be a multiple of "
            f"the number of key and value heads ({key[-3]}). "
            f"Received: {received}"
        )


def join_lead(*shapes) -> list[tuple]:
    """Returns shapes whose leading axes of size 1 have grown to the others'.

    Args:
        *shapes: Shapes `(..., length, width)`. Those of several ranks, which
            nothing can join, come back as they are.

    Example:

    >>> join_lead((1, 3, 8), (None, 5, 8), (4, 5, 6))
    [(4, 3, 8), (None, 5, 8), (4, 5, 6)]
    """
    joined = [list(shape) for shape in shapes]
    if len({len(shape) for shape in joined}) == 1:
        for axis in range(len(joined[0]) - 2):
            sizes = [shape[axis] for shape in joined if shape[axis] != 1]
            size = next((x for x in sizes if x is not None), None)
            for shape in joined if sizes else ():
                shape[axis] = size if shape[axis] == 1 else shape[axis]
    return [tuple(shape) for shape in joined]


def check_dropout(rate, seed=None):
    """Refuses a rate of dropout outside [0, 1], and what is no seed.

    Raises:
        ValueError: The rate is outside.
        TypeError: The seed is no integer and no `keras.random.SeedGenerator`.
    """
    if not 0 <= rate <= 1:
        raise ValueError(
            "`dropout` is the share of the attention weights to drop, a "
            f"number from 0 to 1. Received: dropout={rate!r}"
        )
    if not isinstance(seed, (int, keras.random.SeedGenerator, type(None))):
        raise TypeError(
            "`seed` must be an integer, which drops the same each time, or a "
            "`keras.random.SeedGenerator`, which counts on in a variable. For "
            f"a tensor, make a generator and assign its `state`. Received: "
            f"seed={seed!r}"
        )


def sizes_differ(first, second) -> bool:
    """Whether two static sizes, None where unknown, cannot be the same."""
    return None not in (first, second) and first != second


def product(sizes):
    """Returns the product of sizes, None where one of them is unknown."""
    # Not `None in sizes`: that compares traced sizes with `==`.
    unknown = any(size is None for size in sizes)
    return None if unknown else math.prod(sizes)

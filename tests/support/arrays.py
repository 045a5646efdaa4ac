"""Random numbers for tests, the same in each run."""

import ml_dtypes
import numpy as np


def normal(*shapes, seed=3):
    """Returns one float32 array a shape.

    Rounded to bfloat16, so that float16 and bfloat16 hold the very same
    numbers, and the float64 oracle can be given what the layer was given.
    """
    rng = np.random.default_rng(seed)
    arrays = [
        rng.normal(size=shape).astype(ml_dtypes.bfloat16).astype("float32")
        for shape in shapes
    ]
    return arrays[0] if len(arrays) == 1 else arrays


def coins(*shape, true=0.7, seed=5):
    """Returns a boolean array, each entry True with probability `true`."""
    return np.random.default_rng(seed).random(shape) < true

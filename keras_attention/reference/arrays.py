"""What the rest of the reference does to arrays time and again."""

import numpy as np


def float64(array) -> np.ndarray:
    """Any array, list or tensor as a float64 array."""
    return np.asarray(array, np.float64)


def boolean(mask) -> np.ndarray:
    """A mask as booleans, True = may attend."""
    mask = np.asarray(mask)
    if mask.dtype.kind not in "bui" and not np.isin(mask, (0, 1)).all():
        raise TypeError(
            "A mask must be boolean, True = may attend. Pass values to add to "
            "the scores as `attention_bias`. "
            f"Received: mask.dtype={mask.dtype}"
        )
    return mask.astype(bool)


def zero_unless(keep, vectors) -> np.ndarray:
    """Vectors `(..., L, H)`, zero wherever keep `(..., L)` is False."""
    return np.where(keep[..., None], vectors, 0)


def insert_axes(array, rank, before) -> np.ndarray:
    """Raises the rank by axes of size 1 before the last `before` axes."""
    missing = rank - array.ndim
    split = array.ndim - before
    return array.reshape(
        array.shape[:split] + (1,) * missing + array.shape[split:]
    )

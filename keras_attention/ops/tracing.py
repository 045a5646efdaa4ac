"""Which numbers are known while a graph is built."""

from __future__ import annotations

import warnings

import numpy as np
from keras import KerasTensor, ops


def known(value):
    """Returns a value as a NumPy array, or None while it is traced.

    Args:
        value: Number, array or tensor.
    """
    if isinstance(value, KerasTensor):
        return None
    try:
        with warnings.catch_warnings():
            # NumPy deprecates how traced tensors refuse to be arrays.
            warnings.simplefilter("ignore", DeprecationWarning)
            return np.asarray(ops.convert_to_numpy(value))
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None

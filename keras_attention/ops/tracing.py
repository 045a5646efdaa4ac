"""What is known while a graph is built."""

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


def compiles_with_xla() -> bool:
    """Returns whether the graph now built is to be compiled by XLA."""
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        # TensorFlow has no public name for this. Where there is none at all,
        # the answer is the safe one.
        context = getattr(graph, "_get_control_flow_context", None)
        if context is None:
            return True
        if getattr(context(), "IsXLAContext", bool)():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False

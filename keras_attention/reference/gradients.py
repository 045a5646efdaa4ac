"""Gradients by measurement, to hold computed ones against."""

import numpy as np


def numeric_gradient(function, array, epsilon=1e-6) -> np.ndarray:
    """The gradient of a scalar function, by central differences.

    Args:
        function: Takes an array, returns a scalar.
        array: Where the gradient is taken.
        epsilon: How far to step to either side.

    Returns:
        Shaped as the array, float64.

    Example: the slope of x * x is 2 * x.
    >>> print(numeric_gradient(lambda x: np.sum(x * x), [1, -3]).round(6))
    [ 2. -6.]
    """
    array = np.array(array, np.float64)
    gradient = np.empty_like(array)
    for i in np.ndindex(array.shape):
        here = array[i]
        array[i] = here + epsilon
        above = float(function(array))
        array[i] = here - epsilon
        below = float(function(array))
        array[i] = here
        gradient[i] = (above - below) / (2 * epsilon)
    return gradient

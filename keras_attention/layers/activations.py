"""Activations that Keras has no name for."""

from __future__ import annotations

import keras


@keras.saving.register_keras_serializable(package="keras_attention")
def gelu_approximate(x):
    """Applies GELU by the hyperbolic tangent, as BERT and GPT-2 do.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the same shape and dtype.

    Example:

    >>> round(float(gelu_approximate(keras.ops.array(1.0))), 4)
    0.8412

    Reference:
        [Gaussian Error Linear Units](https://arxiv.org/abs/1606.08415)
    """
    return keras.activations.gelu(x, approximate=True)

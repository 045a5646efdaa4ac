"""Keras's dense layers, multiplying the rows of all samples as one matrix.

A product of two matrices is the faster one where samples are short. It is also
the right one: a tensor of four axes by a matrix comes out wrong of TensorFlow
with oneDNN, where the second axis is one, and it is such products that
`jacobian` and `vectorized_map` make of those of three axes.
"""

from __future__ import annotations

import math

import keras
from keras import ops


class _RowProduct:
    """What both layers do in place of their own product."""

    def call(self, inputs, training=None):
        """Multiplies, adds the bias and activates."""
        x = _multiply(inputs, self.kernel, self._contracted())
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    def quantize(self, mode=None, type_check=True, **kwargs):
        """Quantizes as the layer of Keras does."""
        # That one refuses subclasses, which might multiply in other ways.
        super().quantize(mode, type_check=False, **kwargs)


class Dense(_RowProduct, keras.layers.Dense):
    """A `keras.layers.Dense` of any number of leading axes."""

    def _contracted(self):
        return 1


class EinsumDense(_RowProduct, keras.layers.EinsumDense):
    """A `keras.layers.EinsumDense` from the last axes to others."""

    def _contracted(self):
        inputs, output = self.equation.split("->")
        inputs = inputs.split(",")[0]
        return sum(letter not in output for letter in inputs)


def _multiply(inputs, kernel, contracted):
    """Returns the product over the last axes of `inputs` with `kernel`.

    Args:
        inputs: Tensor of any leading axes, then those to contract.
        kernel: Tensor of the axes to contract, then those of the result.
        contracted: Number of axes to contract.
    """
    shape = tuple(kernel.shape)
    rows, columns = math.prod(shape[:contracted]), math.prod(shape[contracted:])
    lead = ops.shape(inputs)[:-contracted]
    x = ops.matmul(
        ops.reshape(inputs, (-1, rows)), ops.reshape(kernel, (rows, columns))
    )
    return ops.reshape(x, (*lead, *shape[contracted:]))

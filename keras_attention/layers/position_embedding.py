"""Learned vectors that mark positions."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import positions as position_ops
from keras_attention.ops.inputs import check_inputs
from keras_attention.ops.tracing import known


@keras.saving.register_keras_serializable(package="keras_attention")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position to a sequence.

    Args:
        sequence_length: Number of positions there are vectors for: the
            longest sequence that can be marked.
        initializer: Initializer of the vectors.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor `(..., T, D)`, such as `(B, T, D)`.
        start_index: Position of the first step, for decoding step by step:
            an integer or a scalar tensor, or a tensor `(B,)` with one for
            each sequence of inputs `(B, T, D)`.
        positions: Integer positions `(T,)` or `(B, T)`, in any order, which
            then replace those that are counted from `start_index`.

    Returns:
        A tensor shaped like the inputs, in the compute dtype. It carries
        the mask of the inputs.

    Raises:
        ValueError: The sequence reaches beyond `sequence_length`. Where its
            length, `start_index` or `positions` are known only to the running
            graph, the backend raises its own error.

    Example:

    >>> layer = PositionEmbedding(sequence_length=10)
    >>> tuple(layer(keras.ops.ones((2, 3, 8))).shape)
    (2, 3, 8)

    Reference:
        [Convolutional Sequence to Sequence
        Learning](https://arxiv.org/abs/1705.03122)
    """

    def __init__(self, sequence_length, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.sequence_length = arguments.positive_integer(
            "sequence_length", sequence_length
        )
        self.initializer = keras.initializers.get(initializer)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape):
        """Makes the vectors.

        Args:
            input_shape: Shape `(..., T, D)` of the inputs.
        """
        self.input_spec = keras.layers.InputSpec(
            min_ndim=2, axes={-1: input_shape[-1]}
        )
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.sequence_length, input_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, inputs, start_index=0, positions=None):
        """Adds the vectors from `start_index` on, or those of `positions`."""
        self._check(inputs, start_index, positions)
        *_, length, width = ops.shape(inputs)
        table = ops.convert_to_tensor(self.embeddings)
        if positions is not None:
            rows = ops.take(table, ops.cast(positions, "int32"), axis=0)
            rows = position_ops.by_axis(rows, len(inputs.shape))
        elif len(getattr(start_index, "shape", ())) == 1:
            first = ops.expand_dims(ops.cast(start_index, "int32"), -1)
            positions = first + ops.arange(length, dtype="int32")
            rows = ops.take(table, positions, axis=0)
        else:
            # A gather would clip beyond the end on some backends.
            rows = ops.slice(table, (start_index, 0), (length, width))
        return ops.cast(inputs, self.compute_dtype) + rows

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        self._check_range(input_shape[-2], 0)
        return tuple(input_shape)

    def compute_output_spec(self, inputs, start_index=0, positions=None):
        """Returns the symbolic output, after the check that `call` makes."""
        self._check(inputs, start_index, positions)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "sequence_length": self.sequence_length,
            "initializer": keras.initializers.serialize(self.initializer),
        }
        return {**super().get_config(), **config}

    def _check(self, inputs, start_index, positions):
        """Refuses positions without a vector, as far as they are known."""
        check_inputs(inputs=inputs)
        if positions is None:
            self._check_range(inputs.shape[-2], start_index)
            return
        position_ops.check(positions, inputs.shape)
        values = known(positions)
        if values is not None and values.size:
            first, last = values.min(), values.max()
            if first < 0 or last >= self.sequence_length:
                raise ValueError(
                    f"Positions {first} to {last} were asked for, but there "
                    f"are vectors for 0 to {self.sequence_length - 1} only. "
                    "Received: "
                    f"sequence_length={self.sequence_length}"
                )

    def _check_range(self, length, start_index):
        """Refuses counted positions without a vector."""
        known = isinstance(start_index, (int, np.integer))
        start = int(start_index) if known else 0
        stop = start + (length or 0)
        if start < 0 or stop > self.sequence_length:
            raise ValueError(
                f"Positions {start} to {stop - 1} were asked for, but there "
                f"are vectors for 0 to {self.sequence_length - 1} only. Pass "
                "a larger `sequence_length` (`max_length` of a model), or "
                "shorter inputs. Received: "
                f"sequence_length={self.sequence_length}, inputs of length "
                f"{length}, start_index={start_index}"
            )

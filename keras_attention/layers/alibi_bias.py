"""Positions as a bias on the scores that grows with the distance."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments
from keras_attention.ops import positions
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class AlibiBias(keras.layers.Layer):
    """Makes the additive bias `-slope * distance` for each head.

    Each head fades distant keys at a slope of its own. There is nothing to
    learn, and attention goes on working at lengths not seen in training.

    The bias is a float32 tensor of `4 * N * T * S` bytes, shared by the
    batch: 128 MiB for 8 heads at T = S = 2048. A step of generation, T = 1,
    takes no more than its scores.

    Args:
        num_heads: Number of query heads, N.
        alibi_bias_max: The gentlest slope is `2 ** -alibi_bias_max`, where N
            is a power of two.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query_positions: Integer positions `(T,)` or `(B, T)`.
        key_positions: Integer positions `(S,)` or `(B, S)`.

    Returns:
        The bias `(N, T, S)`, or `(B, N, T, S)` where positions are given by
        row; pass it as `attention_bias`, the former with an axis more. In
        float32 at least: in half precision, distances would not stay apart.

    Raises:
        ValueError: An argument is out of range.

    Example:

    >>> bias = AlibiBias(num_heads=2)(keras.ops.arange(3), keras.ops.arange(5))
    >>> tuple(bias.shape)
    (2, 3, 5)

    Reference:
        [Train Short, Test Long](https://arxiv.org/abs/2108.12409)
    """

    def __init__(self, num_heads, alibi_bias_max=8, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.alibi_bias_max = arguments.positive_number(
            "alibi_bias_max", alibi_bias_max
        )
        self.built = True

    def call(self, query_positions, key_positions):
        """Weighs the distances of all pairs by the slopes."""
        self._check(query_positions, key_positions)
        return positions.alibi_bias(
            self.num_heads,
            query_positions,
            key_positions,
            alibi_bias_max=self.alibi_bias_max,
            dtype=self._bias_dtype,
        )

    def compute_output_shape(self, query_positions_shape, key_positions_shape):
        """Returns the shape of the bias."""
        *batch, length = query_positions_shape
        *key_batch, key_length = key_positions_shape
        return (*(batch or key_batch), self.num_heads, length, key_length)

    def compute_output_spec(self, query_positions, key_positions):
        """Returns the symbolic bias."""
        self._check(query_positions, key_positions)
        shape = self.compute_output_shape(
            query_positions.shape, key_positions.shape
        )
        return keras.KerasTensor(shape, dtype=self._bias_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "num_heads": self.num_heads,
            "alibi_bias_max": self.alibi_bias_max,
        }
        return {**super().get_config(), **config}

    def _check(self, query_positions, key_positions):
        check_inputs(
            query_positions=query_positions, key_positions=key_positions
        )

    @property
    def _bias_dtype(self):
        return keras.backend.result_type(self.compute_dtype, "float32")

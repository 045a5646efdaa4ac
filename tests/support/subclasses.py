"""Attention layers as users derive them, by the hook of each."""

import keras
import numpy as np
from keras import ops

from keras_attention import layers
from keras_attention.ops import causal_mask


@keras.saving.register_keras_serializable("test_subclasses")
class LocalitySelfAttention(layers.MultiHeadAttention):
    """No patch attends to itself, and the temperature is learned.

    From "Vision Transformer for Small-Size Datasets", arXiv:2112.13492.
    """

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.temperature = self.add_weight(
            name="temperature",
            initializer=keras.initializers.Constant(self.key_dim**0.5),
        )

    def compute_attention(self, query, key, value, mask, **options):
        size = ops.shape(query)[-2]
        others = ops.logical_not(ops.eye(size, dtype="bool"))
        return super().compute_attention(
            query,
            key,
            value,
            mask.restricted_to(others),
            **{**options, "scale": 1 / self.temperature},
        )


@keras.saving.register_keras_serializable("test_subclasses")
class SigmoidAttention(layers.MultiHeadAttention):
    """Weighs each key by itself, without the kernels of the package."""

    def compute_attention(self, query, key, value, mask, **options):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
        weights = ops.sigmoid(scores / self.key_dim**0.5)
        visible = mask.dense(query.shape[-2], key.shape[-2])
        if visible is not None:
            weights = ops.where(visible, weights, 0.0)
        return ops.matmul(weights, value), weights


@keras.saving.register_keras_serializable("test_subclasses")
class SharpAttention(layers.Attention):
    """Dot products, cubed."""

    def compute_attention(self, query, key, value, mask, **options):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) ** 3
        visible = mask.dense(query.shape[-2], key.shape[-2])
        if visible is not None:
            scores = ops.where(visible, scores, np.finfo("float32").min)
        weights = ops.softmax(scores)
        return ops.matmul(weights, value), weights


@keras.saving.register_keras_serializable("test_subclasses")
class AlwaysCausal(layers.ScaledDotProductAttention):
    """Causal, however it is called, at twice the scale."""

    def compute_attention(self, query, key, value, mask, **options):
        past = causal_mask(query.shape[-2], key.shape[-2])
        scale = 2 * query.shape[-1] ** -0.5
        return super().compute_attention(
            query,
            key,
            value,
            mask.restricted_to(past),
            **{**options, "scale": scale},
        )

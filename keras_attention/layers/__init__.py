"""Serializable attention layers and what goes with them in a model."""

from keras_attention.layers.additive_attention import AdditiveAttention
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.multiplicative_attention import (
    MultiplicativeAttention,
)
from keras_attention.layers.scaled_dot_product_attention import (
    ScaledDotProductAttention,
)

__all__ = [
    "AdditiveAttention",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "ScaledDotProductAttention",
]

"""Serializable attention layers and what goes with them in a model."""

from keras_attention.layers.multi_head_attention import MultiHeadAttention

__all__ = ["MultiHeadAttention"]

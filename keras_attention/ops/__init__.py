"""Pure functions on tensors, with no state and nothing above them."""

from keras_attention.ops.attention import dot_product_attention
from keras_attention.ops.masks import (
    AttentionMask,
    causal_mask,
    combine_masks,
    length_mask,
    padding_mask,
)
from keras_attention.ops.memory import estimate_memory
from keras_attention.ops.positions import sinusoidal_positions

__all__ = [
    "AttentionMask",
    "causal_mask",
    "combine_masks",
    "dot_product_attention",
    "estimate_memory",
    "length_mask",
    "padding_mask",
    "sinusoidal_positions",
]

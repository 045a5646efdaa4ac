"""Serializable attention layers and what goes with them in a model."""

from keras_attention.layers import activations as activations
from keras_attention.layers import weights as weights
from keras_attention.layers.additive_attention import AdditiveAttention
from keras_attention.layers.alibi_bias import AlibiBias
from keras_attention.layers.attention import Attention
from keras_attention.layers.decoder_block import DecoderBlock
from keras_attention.layers.encoder_block import EncoderBlock
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.grouped_query_attention import (
    GroupedQueryAttention,
)
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.multiplicative_attention import (
    MultiplicativeAttention,
)
from keras_attention.layers.padding_mask import PaddingMask
from keras_attention.layers.patch_embedding import PatchEmbedding
from keras_attention.layers.position_embedding import PositionEmbedding
from keras_attention.layers.reversible_embedding import ReversibleEmbedding
from keras_attention.layers.rotary_embedding import RotaryEmbedding
from keras_attention.layers.scaled_dot_product_attention import (
    ScaledDotProductAttention,
)
from keras_attention.layers.sequence_pooling import SequencePooling
from keras_attention.layers.sinusoidal_position_encoding import (
    SinusoidalPositionEncoding,
)

# The name that Keras exports its layer by.
GroupQueryAttention = GroupedQueryAttention

__all__ = [
    "AdditiveAttention",
    "AlibiBias",
    "Attention",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "GroupedQueryAttention",
    "MultiHeadAttention",
    "MultiplicativeAttention",
    "PaddingMask",
    "PatchEmbedding",
    "PositionEmbedding",
    "ReversibleEmbedding",
    "RotaryEmbedding",
    "ScaledDotProductAttention",
    "SequencePooling",
    "SinusoidalPositionEncoding",
]

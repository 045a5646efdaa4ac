"""Attention in plain NumPy, float64, written to be read.

A sequence asks questions, the *queries*, of another sequence. That one holds
*keys*, by which an answer is found, and *values*, the answers. Attention is
four steps:

1. similarity: the dot product of each query with each key;
2. scale: divide by the square root of the head width, lest the scores of
   wide heads grow until the softmax picks a single key;
3. softmax: turn the scores of a query into weights that sum to one;
4. weighted sum: average the values with these weights.

`attention.attend_one` is these four steps for one sequence: start there.
`attention` repeats it over batches and heads, `scores` takes other scores
than the scaled dot product, `positions` tells where queries and keys stand,
`layers` puts projections and residual connections around it. Nothing here is
made to be fast: every kernel and layer of the package is tested against it.

Letters in shapes: B batch, T query length, S key length, D model width,
N heads, K key/value heads, H head width, Hv head width of the values.
In every mask True (or 1) means "may attend".
"""

from keras_attention.reference.attention import (
    attend_one,
    dot_product_attention,
    softmax,
    visible_pairs,
)
from keras_attention.reference.gradients import numeric_gradient
from keras_attention.reference.layers import (
    DecoderWeights,
    EncoderWeights,
    decoder_block,
    encoder_block,
    feed_forward,
    gelu,
    layer_norm,
    multi_head_attention,
    relu,
    sigmoid,
)
from keras_attention.reference.positions import (
    alibi_bias,
    alibi_slopes,
    rms_norm,
    rotate,
    sinusoidal_positions,
)
from keras_attention.reference.scores import (
    additive_scores,
    attention_from_scores,
    multiplicative_scores,
)

__all__ = [
    "DecoderWeights",
    "EncoderWeights",
    "additive_scores",
    "alibi_bias",
    "alibi_slopes",
    "attend_one",
    "attention_from_scores",
    "decoder_block",
    "dot_product_attention",
    "encoder_block",
    "feed_forward",
    "gelu",
    "layer_norm",
    "multi_head_attention",
    "multiplicative_scores",
    "numeric_gradient",
    "relu",
    "rms_norm",
    "rotate",
    "sigmoid",
    "sinusoidal_positions",
    "softmax",
    "visible_pairs",
]

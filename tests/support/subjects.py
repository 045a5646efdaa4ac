"""Everything that attends, each beside its float64 definition.

A subject is built at a policy, holds the same numbers at every policy (all
are rounded to bfloat16), and takes the same options: `query_mask` `(B, T)`,
`key_mask` `(B, S)`, `attention_mask` `(T, S)`, `use_causal_mask`.
"""

import keras
import numpy as np
from keras import ops

from keras_attention import reference
from keras_attention.layers import (
    AdditiveAttention,
    EncoderBlock,
    MultiHeadAttention,
    MultiplicativeAttention,
    ScaledDotProductAttention,
)
from keras_attention.ops import dot_product_attention

from .arrays import normal

B, T, S, N, H, HV, D = 2, 4, 5, 3, 6, 7, 12


class Subject:
    """What is tested. A subclass says how to call it and what is right."""

    shapes = (B, N, T, H), (B, N, S, H), (B, N, S, HV)

    def __init__(self, policy="float64", dropout=0.0):
        self.dtype = keras.dtype_policies.get(policy).compute_dtype
        self.inputs = draw(self.shapes, scale=0.5, seed=10)
        self.layer = self.make(dtype=policy, dropout=dropout)
        self.weights = []
        if self.layer is not None:
            self.layer.build(*self.shapes)
            shapes = [w.shape for w in self.layer.trainable_weights]
            self.weights = draw(shapes, scale=0.25, seed=20)
            for variable, weight in zip(
                self.layer.trainable_weights, self.weights, strict=True
            ):
                variable.assign(weight)

    def make(self, **options):
        """Returns the layer, or None where there is only a function."""
        return None

    def call(self, inputs, return_attention_scores=False, **options):
        """Runs on tensors of the compute dtype."""
        return self.layer(
            *inputs, return_attention_scores=return_attention_scores, **options
        )

    def oracle(self, inputs, weights, **options):
        """Returns the output and the scores in float64."""
        raise NotImplementedError

    def cast_inputs(self):
        return [ops.cast(x, self.dtype) for x in self.inputs]


class Function(Subject):
    def call(self, inputs, **options):
        return dot_product_attention(*inputs, **options)

    def oracle(self, inputs, weights, **options):
        return reference.dot_product_attention(*inputs, **options)


class Scaled(Function):
    call = Subject.call

    def make(self, **options):
        return ScaledDotProductAttention(**options)


class Luong(Subject):
    def make(self, **options):
        return MultiplicativeAttention("general", **options)

    def oracle(self, inputs, weights, **options):
        query, key, value = inputs
        scores = reference.multiplicative_scores(query, key, *weights)
        return reference.attention_from_scores(scores, value, seen(**options))


class Bahdanau(Subject):
    def make(self, **options):
        return AdditiveAttention(units=8, **options)

    def oracle(self, inputs, weights, **options):
        query, key, value = inputs
        query_kernel, key_kernel, vector = self.by_width(weights)
        scores = reference.additive_scores(
            query @ query_kernel, key @ key_kernel, vector
        )
        return reference.attention_from_scores(scores, value, seen(**options))

    def by_width(self, weights):
        """Query and key kernel, then the vector, however they are kept."""
        vector = [w for w in weights if w.ndim == 1]
        return [w for w in weights if w.ndim == 2] + vector


class MultiHead(Subject):
    shapes = (B, T, D), (B, S, 8), (B, S, 10)

    def make(self, **options):
        return MultiHeadAttention(N, H, value_dim=HV, **options)

    def oracle(self, inputs, weights, **options):
        return reference.multi_head_attention(
            *inputs, weights=weights, **options
        )


class Grouped(MultiHead):
    def make(self, **options):
        return MultiHeadAttention(
            4, H, use_gate=True, num_key_value_heads=2, **options
        )

    def oracle(self, inputs, weights, **options):
        return super().oracle(inputs, weights, use_gate=True, **options)


class Encoder(Subject):
    shapes = ((B, S, D),)

    def make(self, **options):
        return EncoderBlock(N, 16, **options)

    def call(self, inputs, key_mask=None, query_mask=None, **options):
        return super().call(inputs, padding_mask=key_mask, **options)

    def oracle(
        self, inputs, weights, key_mask=None, query_mask=None, **options
    ):
        # In the order of the sub-layers: attention, norm, network, norm.
        parts = weights[:8], weights[8:10], weights[10:14], weights[14:]
        visible = np.ones((B, S), bool) if key_mask is None else key_mask
        return reference.encoder_block(
            np.where(visible[..., None], inputs[0], 0),
            reference.EncoderWeights(*parts),
            padding_mask=key_mask,
            **options,
        )


def draw(shapes, scale, seed):
    return [scale * normal(s, seed=seed + i) for i, s in enumerate(shapes)]


def seen(
    query_mask=None, key_mask=None, attention_mask=None, use_causal_mask=False
):
    """The options as one boolean array (B, 1, T, S)."""
    visible = np.ones((B, 1, T, S), bool)
    visible &= reference.visible_pairs(T, S, use_causal_mask)
    if query_mask is not None:
        visible &= query_mask[:, None, :, None]
    if key_mask is not None:
        visible &= key_mask[:, None, None]
    if attention_mask is not None:
        visible &= attention_mask
    return visible


SUBJECTS = {
    "dot_product_attention": Function,
    "ScaledDotProductAttention": Scaled,
    "MultiplicativeAttention": Luong,
    "AdditiveAttention": Bahdanau,
    "MultiHeadAttention": MultiHead,
    "MultiHeadAttention, grouped and gated": Grouped,
    "EncoderBlock": Encoder,
}

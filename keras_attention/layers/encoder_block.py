"""A transformer encoder block."""

from __future__ import annotations

import keras

from keras_attention.layers import injection
from keras_attention.layers.transformer_block import (
    TransformerBlock,
    padding_of,
)
from keras_attention.ops import masks
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class EncoderBlock(TransformerBlock):
    """Self-attention, then a feed-forward network, each with a residual.

    The sums are normalised (post-norm) or, with `normalize_first`, the input
    of each part is (pre-norm). What stands at padded positions reaches no
    other one, NaN included, forward or backward.

    Args:
        num_heads: Number of attention heads, N, of width `D // N` each. May
            be None if `attention` is given.
        intermediate_dim: Width inside the feed-forward network.
        dropout: Rate at which attention weights, and the outputs of both
            parts, are dropped in training.
        activation: Activation inside the feed-forward network.
        layer_norm_epsilon: Added to the variance in layer normalisation.
        normalize_first: Whether to normalise before each part, not after.
        attention: An attention layer to use instead of
            `MultiHeadAttention(num_heads, D // num_heads)`. It is called
            like that one, with `(query, value)` and those of its arguments
            that it takes, and keeps its own dropout.
        use_bias: Whether the dense projections have biases.
        kernel_initializer: Initializer of the projection kernels.
        bias_initializer: Initializer of the projection biases.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Attributes:
        attention: The attention layer: the one given, or else, once built,
            the `MultiHeadAttention`.

    Call arguments:
        inputs: Tensor `(B, T, D)`.
        padding_mask: Boolean `(B, T)`, True for tokens, False for padding.
            Defaults to the mask that Keras carries with `inputs`.
        attention_mask: Boolean `(T, T)`, `(B, T, T)`, `(B, 1, T, T)` or
            `(B, N, T, T)`, True where a query may attend. Rank 2 is always
            `(T, T)`.
        attention_bias: Additive bias of the shapes of `attention_mask`,
            added to the scaled scores.
        use_causal_mask: Whether position t sees only positions up to t.
        return_attention_scores: Whether to return the scores as well.
        training: Whether dropout is active.
        mask: Keras's name for `padding_mask`, which wins if both are given.

    Returns:
        The output `(B, T, D)`, or with `return_attention_scores` the tuple
        of it and the scores `(B, N, T, T)`. Both in the compute dtype. The
        output carries the padding mask.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range, the heads do not divide the
            width, shapes do not fit, or the injected attention layer does
            not take an argument that is in use.

    Example:

    >>> block = EncoderBlock(num_heads=2, intermediate_dim=32)
    >>> output, scores = block(
    ...     keras.ops.ones((3, 5, 8)), return_attention_scores=True)
    >>> tuple(output.shape), tuple(scores.shape)
    ((3, 5, 8), (3, 2, 5, 5))

    Reference:
        - [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
        - [On Layer Normalization in the Transformer
          Architecture](https://arxiv.org/abs/2002.04745) for
          `normalize_first`
    """

    def build(self, input_shape):
        """Makes the sub-layers and their weights.

        Args:
            input_shape: Shape `(B, T, D)` of the inputs.
        """
        self.attention = self._attention_for(input_shape)
        self.input_spec = keras.layers.InputSpec(
            ndim=3, axes={-1: input_shape[-1]}
        )
        injection.build(self.attention, input_shape, input_shape)
        self._attention_dropout = self._make_dropout("attention_dropout", 1)
        self.attention_norm = self._make_norm("attention_norm", input_shape)
        self.feed_forward = self._make_feed_forward(input_shape, 2)
        self.feed_forward_norm = self._make_norm(
            "feed_forward_norm", input_shape
        )

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        """Attends from each position to all, then transforms each alone."""
        check_inputs(inputs=inputs)
        padding = padding_of(inputs, padding_mask, mask=mask)
        x = self._hidden(inputs, padding)
        attended, scores = self._attend(
            self._before(self.attention_norm, x),
            return_attention_scores,
            query_mask=padding,
            value_mask=padding,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
            training=training,
        )
        x = x + self._attention_dropout(attended, training=training)
        x = self._transform(self._after(self.attention_norm, x), training)
        masks.set_implicit_mask(x, padding)
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        return tuple(input_shape)

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        check_inputs(inputs=inputs)
        padding = padding_of(inputs, padding_mask, mask=mask)
        attended = injection.output_spec(
            self._attention_for(inputs.shape),
            inputs,
            inputs,
            query_mask=padding,
            value_mask=padding,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        masks.set_implicit_mask(output, padding)
        return (output, attended[1]) if return_attention_scores else output

    def _attend(self, x, return_attention_scores, **options):
        """Returns the attended sequence, and the scores or None."""
        outputs = injection.call(
            self.attention,
            x,
            x,
            return_attention_scores=return_attention_scores,
            **options,
        )
        return outputs if return_attention_scores else (outputs, None)

    def _attention_for(self, input_shape):
        """Returns the attention layer there is, or the default one."""
        if self.attention is not None:
            return self.attention
        return self._make_attention(input_shape, "attention", 0)

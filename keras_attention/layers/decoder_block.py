"""A transformer decoder block."""

from __future__ import annotations

import keras

from keras_attention.layers import attention_parts, injection
from keras_attention.layers.transformer_block import (
    TransformerBlock,
    padding_of,
)
from keras_attention.ops import cache_padding, masks
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class DecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention, then a feed-forward network.

    Each part has a residual. The sums are normalised (post-norm) or, with
    `normalize_first`, the input of each part is (pre-norm). There is
    cross-attention if the block is built with an `encoder_sequence` or is
    given a layer for it. What stands at padded positions reaches no other
    one, NaN included, forward or backward.

    To decode step by step, pass `self_attention_cache`, from `make_cache` or
    the call before, and what `compute_cross_cache` returned for the encoder.

    Args:
        num_heads: Number of attention heads, N, of width `D // N` each. May
            be None if all attention layers are given.
        intermediate_dim: Width inside the feed-forward network.
        dropout: Rate at which attention weights, and the outputs of all
            parts, are dropped in training.
        activation: Activation inside the feed-forward network.
        layer_norm_epsilon: Added to the variance in layer normalisation.
        normalize_first: Whether to normalise before each part, not after.
        attention: An attention layer to use for self-attention instead of
            `MultiHeadAttention(num_heads, D // num_heads)`. It is called
            like that one, with `(query, value)` and those of its arguments
            that it takes, and keeps its own dropout.
        use_bias: Whether the dense projections have biases.
        kernel_initializer: Initializer of the projection kernels.
        bias_initializer: Initializer of the projection biases.
        seed: Integer that seeds the dropout.
        cross_attention: Like `attention`, for cross-attention.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Attributes:
        attention: The layer of self-attention, made when built if not given.
        cross_attention: Likewise, or None without cross-attention.

    Call arguments:
        decoder_sequence: Tensor `(B, T, D)`.
        encoder_sequence: Tensor `(B, S, De)`, or None with its cache.
        decoder_padding_mask: Boolean `(B, T)`, True for tokens, False for
            padding, or boolean over the positions of the cache. Defaults to
            the mask that Keras carries with `decoder_sequence`.
        decoder_attention_mask: Boolean `(T, T)`, `(B, T, T)`, ..., True where
            a query may attend. The last axis is that of the cache, if any.
        encoder_padding_mask: Boolean `(B, S)`. Defaults to the mask that
            Keras carries with `encoder_sequence`.
        encoder_attention_mask: Boolean `(T, S)`, `(B, T, S)`, ...
        self_attention_cache: Keys and values of earlier positions,
            `(B, 2, max_length, K, H)`.
        self_attention_cache_update_index: Position of the first of the
            decoder's steps, an integer or an integer tensor, `()` or `(B,)`.
        cross_attention_cache: Those of the encoder, `(B, 2, S, K, H)`.
        cross_attention_cache_update_index: 0 to compute that cache from
            `encoder_sequence`, None to use it as it is.
        return_attention_scores: Whether to return the scores as well.
        training: Whether dropout is active.
        use_causal_mask: Whether position t sees only positions up to t.
        mask: Keras's name for `decoder_padding_mask` `(B, T)`, which wins.

    Returns:
        The output `(B, T, D)`. Or a tuple of it and, in this order, what
        there is of: with `return_attention_scores` the scores of
        self-attention `(B, N, T, T)` and of cross-attention `(B, N, T, S)`;
        for each cache given, the new one. All in the compute dtype. The
        output carries the padding mask of the decoder.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range, the heads do not divide the
            width, shapes do not fit, an encoder's sequence comes to a block
            built without or is missing in one built with, or an injected
            attention layer does not take an argument that is in use.

    Example:

    >>> block = DecoderBlock(num_heads=2, intermediate_dim=32)
    >>> decoder, encoder = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 6))
    >>> tuple(block(decoder, encoder).shape)
    (3, 5, 8)

    One step, the first of at most 9:

    >>> output, self_cache, cross_cache = block(
    ...     decoder[:, :1],
    ...     self_attention_cache=block.make_cache(3, 9),
    ...     self_attention_cache_update_index=0,
    ...     cross_attention_cache=block.compute_cross_cache(encoder))
    >>> tuple(output.shape), tuple(self_cache.shape), tuple(cross_cache.shape)
    ((3, 1, 8), (3, 2, 9, 2, 4), (3, 2, 7, 2, 4))

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout=0.0,
        activation="relu",
        layer_norm_epsilon=1e-5,
        normalize_first=False,
        attention=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        seed=None,
        cross_attention=None,
        **kwargs,
    ):
        if attention is not None and cross_attention is attention:
            raise ValueError(
                "`attention` and `cross_attention` must be two layers, each "
                f"with weights of its own. Received: {attention!r} as both"
            )
        super().__init__(
            num_heads,
            intermediate_dim,
            dropout=dropout,
            activation=activation,
            layer_norm_epsilon=layer_norm_epsilon,
            normalize_first=normalize_first,
            attention=attention,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            seed=seed,
            **kwargs,
        )
        self._makes_cross_attention = cross_attention is None
        if cross_attention is not None:
            injection.check("cross_attention", cross_attention)
        self.cross_attention = cross_attention

    def build(self, decoder_sequence_shape, encoder_sequence_shape=None):
        """Makes the sub-layers and their weights.

        Args:
            decoder_sequence_shape: Shape `(B, T, D)`.
            encoder_sequence_shape: Shape `(B, S, De)`, or None for a block
                without cross-attention.
        """
        shape = decoder_sequence_shape
        self.attention, cross_attention = self._attention_layers(
            shape, encoder_sequence_shape is not None
        )
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: shape[-1]})
        injection.build(self.attention, shape, shape)
        self._attention_dropout = self._make_dropout("attention_dropout", 1)
        self.attention_norm = self._make_norm("attention_norm", shape)
        self.cross_attention = cross_attention
        if cross_attention is not None:
            if encoder_sequence_shape is None:
                raise ValueError(
                    "A block with `cross_attention` must be built with the "
                    "shape of `encoder_sequence`: call it with one first."
                )
            injection.build(cross_attention, shape, encoder_sequence_shape)
            self._cross_attention_dropout = self._make_dropout(
                "cross_attention_dropout", 4
            )
            self.cross_attention_norm = self._make_norm(
                "cross_attention_norm", shape
            )
        self.feed_forward = self._make_feed_forward(shape, 2)
        self.feed_forward_norm = self._make_norm("feed_forward_norm", shape)

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        self_attention_cache=None,
        self_attention_cache_update_index=None,
        cross_attention_cache=None,
        cross_attention_cache_update_index=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=True,
        mask=None,
    ):
        """Attends to earlier positions, to the encoder, then transforms."""
        check_inputs(inputs=decoder_sequence, encoder=encoder_sequence)
        padding, options = self._self_options(
            decoder_sequence,
            (decoder_padding_mask, mask),
            attention_mask=decoder_attention_mask,
            cache=self_attention_cache,
            cache_update_index=self_attention_cache_update_index,
            return_attention_scores=return_attention_scores,
            use_causal_mask=use_causal_mask,
            training=training,
        )
        x = self._hidden(decoder_sequence, padding)
        x, *extras = self._attend("attention", x, None, options)
        attention_parts.check_encoder(
            self.cross_attention,
            encoder_sequence,
            cross_attention_cache,
            cross_attention_cache_update_index,
        )
        if self.cross_attention is not None:
            options = self._cross_options(
                encoder_sequence,
                encoder_padding_mask,
                query_mask=padding,
                attention_mask=encoder_attention_mask,
                cache=cross_attention_cache,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if encoder_sequence is not None:
                encoder_sequence = self._hidden(
                    encoder_sequence, options["value_mask"]
                )
            if cross_attention_cache_update_index is not None:
                options["cache"] = self.cross_attention.compute_cache(
                    encoder_sequence, value_mask=options["value_mask"]
                )
            x, *more = self._attend(
                "cross_attention", x, encoder_sequence, options
            )
            extras = [*extras, *more]
        x = self._transform(x, training)
        masks.set_implicit_mask(x, padding)
        return attention_parts.results(x, extras)

    def make_cache(self, batch_size, max_length):
        """Returns an empty cache, like `MultiHeadAttention.make_cache`."""
        self._check_built()
        return self.attention.make_cache(batch_size, max_length)

    def compute_cross_cache(self, encoder_sequence, encoder_padding_mask=None):
        """Projects the encoder's keys and values once, for all steps.

        Args:
            encoder_sequence: Tensor `(B, S, De)`.
            encoder_padding_mask: Boolean `(B, S)`, also due at each step.
                Defaults to the mask that Keras carries.

        Returns:
            A tensor `(B, 2, S, K, H)`, to pass as `cross_attention_cache`.
        """
        self._check_built()
        if self.cross_attention is None:
            raise ValueError(
                "The block was built without `encoder_sequence` and has no "
                "cross-attention."
            )
        return self.cross_attention.compute_cache(
            encoder_sequence, value_mask=encoder_padding_mask
        )

    def compute_output_shape(
        self, decoder_sequence_shape, encoder_sequence_shape=None
    ):
        """Returns the shape of the output, which is the decoder's."""
        return tuple(decoder_sequence_shape)

    def compute_output_spec(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        self_attention_cache=None,
        self_attention_cache_update_index=None,
        cross_attention_cache=None,
        cross_attention_cache_update_index=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=True,
        mask=None,
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        check_inputs(inputs=decoder_sequence, encoder=encoder_sequence)
        attention, cross_attention = self._attention_layers(
            decoder_sequence.shape, encoder_sequence is not None
        )
        padding, options = self._self_options(
            decoder_sequence,
            (decoder_padding_mask, mask),
            attention_mask=decoder_attention_mask,
            cache=self_attention_cache,
            cache_update_index=self_attention_cache_update_index,
            return_attention_scores=return_attention_scores,
            use_causal_mask=use_causal_mask,
        )
        x = keras.KerasTensor(decoder_sequence.shape, dtype=self.compute_dtype)
        specs = injection.output_spec(attention, x, x, **options)
        _, *extras = attention_parts.parts(specs, options)
        attention_parts.check_encoder(
            cross_attention,
            encoder_sequence,
            cross_attention_cache,
            cross_attention_cache_update_index,
        )
        if cross_attention is not None:
            options = self._cross_options(
                encoder_sequence,
                encoder_padding_mask,
                query_mask=padding,
                attention_mask=encoder_attention_mask,
                cache=cross_attention_cache,
                return_attention_scores=return_attention_scores,
            )
            specs = injection.output_spec(
                cross_attention, x, encoder_sequence, **options
            )
            _, *more = attention_parts.parts(specs, options)
            extras = [*extras, *more]
        masks.set_implicit_mask(x, padding)
        return attention_parts.results(x, extras)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        cross_attention = None
        if not self._makes_cross_attention:
            cross_attention = injection.serialize(self.cross_attention)
        return {**super().get_config(), "cross_attention": cross_attention}

    def _attention_layers(self, shape, has_encoder):
        """Returns the attention layers there are, or else the default ones."""
        attention, cross_attention = self.attention, self.cross_attention
        if attention is None:
            attention = self._make_attention(shape, "attention", 0)
        if cross_attention is None and has_encoder and not self.built:
            cross_attention = self._make_attention(shape, "cross_attention", 3)
        return attention, cross_attention

    def _self_options(self, inputs, padding_masks, cache, **options):
        """Returns the padding `(B, T)`, and arguments of self-attention."""
        padding, over_cache = cache_padding.split_padding(
            inputs, padding_masks, cache, options["cache_update_index"]
        )
        if cache is None:
            over_cache = padding
        return padding, {
            **options,
            "query_mask": padding,
            "value_mask": over_cache,
            "cache": cache,
        }

    def _cross_options(self, encoder_sequence, padding_mask, cache, **options):
        """Returns arguments of cross-attention."""
        if encoder_sequence is not None:
            padding_mask = padding_of(
                encoder_sequence, padding_mask, "encoder_padding_mask"
            )
        return {**options, "value_mask": padding_mask, "cache": cache}

    def _attend(self, name, x, value, options):
        """Returns the sequence after a part, its scores and its cache.

        Args:
            name: Name of the attribute that holds the attention layer.
            x: Tensor `(B, T, D)`.
            value: Tensor `(B, S, De)`, or None for self-attention or where
                there is a cache in its place.
            options: Arguments of the attention layer.
        """
        norm = getattr(self, f"{name}_norm")
        dropout = getattr(self, f"_{name}_dropout")
        query = self._before(norm, x)
        value = query if name == "attention" else value
        outputs = injection.call(getattr(self, name), query, value, **options)
        attended, scores, cache = attention_parts.parts(outputs, options)
        x = x + dropout(attended, training=options["training"])
        return self._after(norm, x), scores, cache

    def _check_built(self):
        if not self.built:
            raise ValueError(
                "The block has no weights yet: call it, or `build("
                "decoder_sequence_shape, encoder_sequence_shape)`, before "
                "you ask it for a cache."
            )

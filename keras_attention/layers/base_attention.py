"""What the attention layers called with `(query, key, value)` share."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.layers.keras_overrides import KerasOverrides
from keras_attention.layers.mask_argument import MaskArgument
from keras_attention.ops import attention, masks, shapes
from keras_attention.ops.inputs import check_inputs


class BaseAttention(KerasOverrides, MaskArgument, keras.layers.Layer):
    """Masks, dropout and shapes; a subclass says how it attends.

    Args:
        dropout: Rate at which attention weights are dropped in training.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.
    """

    sliding_window: int | None = None
    # Whether a query that is padding gets scores, though never a context.
    scores_padding = False
    _replaces: type = keras.layers.Attention

    def __init__(self, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        # A bias has to stay as it is: in float16, -1e9 would become minus
        # infinity.
        self.autocast = False
        self.dropout = arguments.rate("dropout", dropout)
        self.seed = seed
        self._dropout_layer = None
        if self.dropout:
            self._dropout_layer = keras.layers.Dropout(
                self.dropout, seed=seed, dtype=self.dtype_policy
            )

    def build(self, query_shape, key_shape, value_shape):
        """Checks the shapes; there may be no weights to make.

        Args:
            query_shape: Shape `(..., T, H)` of the query.
            key_shape: Shape `(..., S, H)` of the key.
            value_shape: Shape `(..., S, Hv)` of the value.
        """
        self._check_shapes(query_shape, key_shape, value_shape)

    def call(
        self,
        query,
        key,
        value,
        query_mask=None,
        key_mask=None,
        value_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        """Attends from each query to the values."""
        check_inputs(query=query, key=key, value=value)
        self._check_shapes(query.shape, key.shape, value.shape)
        query, key, value = (
            ops.cast(x, self.compute_dtype) for x in (query, key, value)
        )
        mask, bias = self._combine_masks(
            query,
            key,
            query_mask=query_mask,
            key_mask=key_mask,
            value_mask=value_mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
        )
        # Hidden before any weight meets them, so that NaN there reaches
        # neither the output nor the gradients.
        padding = None
        if self.scores_padding:
            padding, mask = mask.query, dataclasses.replace(mask, query=None)
            query = masks.hide(query, padding)
        visible_keys = attention.for_heads_of(key, mask.visible_keys())
        context, scores = self.compute_attention(
            masks.hide(query, mask.visible_queries()),
            masks.hide(key, visible_keys),
            masks.hide(value, visible_keys),
            mask,
            attention_bias=bias,
            training=training,
            return_attention_scores=return_attention_scores,
        )
        context = masks.hide(context, padding)
        masks.set_implicit_mask(context, masks.as_boolean(query_mask))
        return (context, scores) if return_attention_scores else context

    def compute_output_shape(self, query_shape, key_shape, value_shape):
        """Returns the shape of the context, scores left aside."""
        self._check_shapes(query_shape, key_shape, value_shape)
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self,
        query,
        key,
        value,
        query_mask=None,
        key_mask=None,
        value_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        check_inputs(query=query, key=key, value=value)
        shape = self.compute_output_shape(query.shape, key.shape, value.shape)
        self._combine_masks(
            query,
            key,
            query_mask=query_mask,
            key_mask=key_mask,
            value_mask=value_mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
        )
        context = keras.KerasTensor(shape, dtype=self.compute_dtype)
        masks.set_implicit_mask(context, masks.as_boolean(query_mask))
        if not return_attention_scores:
            return context
        scores_shape = (*query.shape[:-1], key.shape[-2])
        return context, keras.KerasTensor(scores_shape, self.compute_dtype)

    def compute_attention(
        self,
        query,
        key,
        value,
        mask,
        attention_bias=None,
        training=None,
        return_attention_scores=False,
    ):
        """Returns the context of each query, and the scores.

        Subclasses override this method to attend in another way.

        Args:
            query: Tensor `(..., T, H)`, zero at hidden positions.
            key: Tensor `(..., S, H)`, likewise.
            value: Tensor `(..., S, Hv)`, likewise.
            mask: A `keras_attention.ops.AttentionMask` of all masks and of
                what the bias hides.
            attention_bias: Additive bias that broadcasts to `(..., T, S)`,
                or None.
            training: Whether dropout is active.
            return_attention_scores: Whether the scores are wanted.

        Returns:
            A tuple of the context `(..., T, Hv)` and the scores
            `(..., T, S)`, which may be None where they are not wanted.
        """
        raise NotImplementedError

    def _dropout_options(self, training):
        """Returns the options of a kernel that drop weights."""
        generator = self._dropout_layer and self._dropout_layer.seed_generator
        return {"dropout": self.dropout if training else 0.0, "seed": generator}

    def _check_shapes(self, query_shape, key_shape, value_shape):
        shapes.check(query_shape, key_shape, value_shape)

    def _combine_masks(self, query, key, *, attention_bias, **options):
        """Returns the `AttentionMask`, and the bias ready to broadcast."""
        bias = masks.check_bias(
            attention_bias,
            tuple(query.shape[:-2]),
            query.shape[-2],
            key.shape[-2],
        )
        mask = masks.combine(
            query.shape,
            key.shape,
            attention_bias=bias,
            sliding_window=self.sliding_window,
            **options,
        )
        return mask, bias

"""Scaled dot-product attention as a layer, without projections."""

from __future__ import annotations

import keras

from keras_attention.layers.base_attention import BaseAttention
from keras_attention.ops import attention, masks


@keras.saving.register_keras_serializable(package="keras_attention")
class ScaledDotProductAttention(BaseAttention):
    """Attends to values by the product of query and key.

    The arguments come in the order of the paper and of `keras.ops`,
    `(query, key, value)`; `MultiHeadAttention` takes `(query, value, key)`
    like Keras's layer. There are no weights.

    A query that may attend to nothing gets a context of zeros. What stands
    at padded or hidden positions never reaches another one, NaN included.
    The output carries the mask of the query.

    Args:
        dropout: Rate at which attention weights are dropped in training.
        scale: Number the scores are multiplied by. Defaults to
            `1 / sqrt(H)`.
        sliding_window: Query t sees only keys s with
            `abs(t - s) < sliding_window`. None for no limit.
        flash_attention: None to choose the kernel, True for the one of
            linear memory or an error that says why not, False for dense.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(..., T, H)`, such as `(B, T, H)` or `(B, N, T, H)`.
        key: Tensor `(..., S, H)`. At rank 4 and above it may have fewer
            heads than the query, as long as their number divides N.
        value: Tensor `(..., S, Hv)`.
        query_mask: Boolean `(B, T)`, True for tokens, False for padding.
            Defaults to the mask that Keras carries with `query`.
        key_mask: Boolean `(B, S)`. Defaults likewise.
        value_mask: Boolean `(B, S)`. Defaults likewise.
        mask: Keras's name for these: a list `[query_mask, value_mask]`, or
            one mask where query, key and value are one tensor.
        attention_mask: Boolean `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`, True where a query may attend. Rank 2 is always
            `(T, S)`. All masks are joined by logical AND.
        attention_bias: Additive bias of the shapes of `attention_mask`,
            added to the scaled scores. Minus infinity hides a key.
        use_causal_mask: Whether query t sees only keys s with `s <= t`.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout is active.

    Returns:
        The context `(..., T, Hv)`, or with `return_attention_scores` the
        tuple of it and the weights `(..., T, S)`, taken before dropout. Both
        in the compute dtype.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> layer = ScaledDotProductAttention()
    >>> query, key = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 8))
    >>> value = keras.ops.ones((2, 5, 6))
    >>> tuple(layer(query, key, value).shape)
    (2, 3, 6)

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        dropout=0.0,
        scale=None,
        sliding_window=None,
        flash_attention=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.scale = None if scale is None else float(scale)
        self.sliding_window = masks.check_window(sliding_window)
        self.flash_attention = flash_attention

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "dropout": self.dropout,
            "scale": self.scale,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    def compute_attention(
        self,
        query,
        key,
        value,
        mask,
        attention_bias=None,
        scale=None,
        training=None,
        return_attention_scores=False,
    ):
        """Returns the context of each query, and the scores.

        As in `BaseAttention`, with `scale`, a number or a tensor `()` that
        similarities are multiplied by in place of the layer's.
        """
        return attention.attend(
            query,
            key,
            value,
            mask,
            bias=attention_bias,
            scale=self.scale if scale is None else scale,
            return_attention_scores=return_attention_scores,
            flash_attention=self.flash_attention,
            **self._dropout_options(training),
        )

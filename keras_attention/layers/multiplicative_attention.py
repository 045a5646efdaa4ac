"""Multiplicative (Luong) attention, unscaled."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments, row_products
from keras_attention.layers.base_attention import BaseAttention
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops import attention

SCORES = ("dot", "general")


@keras.saving.register_keras_serializable(package="keras_attention")
class MultiplicativeAttention(QuantizedParts, BaseAttention):
    """Attends to values by the unscaled product of query and key.

    The score of a query q for a key k is `q . k` ("dot") or, with a learned
    matrix W, `q W . k` ("general"), which also joins queries and keys of
    different width. Called with `(query, key, value)`.

    Args:
        score: "dot" or "general".
        dropout: Rate at which attention weights are dropped in training.
        kernel_initializer: Initializer of W.
        kernel_regularizer: Regularizer of W.
        kernel_constraint: Constraint on W.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(..., T, D)`.
        key: Tensor `(..., S, Dk)`, where Dk is D for the "dot" score.
        value: Tensor `(..., S, Dv)`.
        query_mask: As in `ScaledDotProductAttention`.
        key_mask: As in `ScaledDotProductAttention`.
        value_mask: As in `ScaledDotProductAttention`.
        mask: As in `ScaledDotProductAttention`.
        attention_mask: As in `ScaledDotProductAttention`.
        attention_bias: As in `ScaledDotProductAttention`.
        use_causal_mask: As in `ScaledDotProductAttention`.
        return_attention_scores: As in `ScaledDotProductAttention`.
        training: As in `ScaledDotProductAttention`.

    Returns:
        The context `(..., T, Dv)`, or with `return_attention_scores` the
        tuple of it and the weights `(..., T, S)`, taken before dropout. Both
        in the compute dtype.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> layer = MultiplicativeAttention("general")
    >>> query, key = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 4))
    >>> tuple(layer(query, key, value=key).shape)
    (2, 3, 4)

    Reference:
        [Effective Approaches to Attention-based Neural Machine
        Translation](https://arxiv.org/abs/1508.04025)
    """

    def __init__(
        self,
        score="dot",
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        kernel_regularizer=None,
        kernel_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.score = arguments.one_of("score", score, SCORES)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)

    def build(self, query_shape, key_shape, value_shape):
        """Makes W, if the score has one.

        Args:
            query_shape: Shape `(..., T, D)` of the query.
            key_shape: Shape `(..., S, Dk)` of the key.
            value_shape: Shape `(..., S, Dv)` of the value.
        """
        super().build(query_shape, key_shape, value_shape)
        self.query_dense = None
        if self.score == "general":
            self.query_dense = row_products.Dense(
                key_shape[-1],
                use_bias=False,
                kernel_initializer=self.kernel_initializer,
                kernel_regularizer=self.kernel_regularizer,
                kernel_constraint=self.kernel_constraint,
                dtype=self.dtype_policy,
                name="query",
            )
            self.query_dense.build(query_shape)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "score": self.score,
            "dropout": self.dropout,
            **arguments.serialize_kernel(self),
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Returns the layer that a configuration describes."""
        score = arguments.plain_name(config.get("score", "dot"))
        return super().from_config({**config, "score": score})

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
        """Returns the context of each query, and the scores."""
        if self.query_dense is not None:
            query = self.query_dense(query)
        return attention.attend(
            query,
            key,
            value,
            mask,
            bias=attention_bias,
            scale=1.0,
            return_attention_scores=return_attention_scores,
            **self._dropout_options(training),
        )

    def _check_shapes(self, query_shape, key_shape, value_shape):
        if self.score == "general":
            query_shape = (*query_shape[:-1], key_shape[-1])
        super()._check_shapes(query_shape, key_shape, value_shape)

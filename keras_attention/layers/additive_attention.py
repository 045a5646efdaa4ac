"""Additive (Bahdanau) attention."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments
from keras_attention.layers.base_attention import BaseAttention
from keras_attention.ops import masks
from keras_attention.ops.additive import additive_attention


@keras.saving.register_keras_serializable(package="keras_attention")
class AdditiveAttention(BaseAttention):
    """Attends to values by a small network on query and key.

    The score of a query q for a key k is `v . tanh(q W + k U)`, where the
    matrices W and U project to `units` and v is a vector; all three are
    learned. Called with `(query, key, value)`, unlike Keras's layer of this
    name, which projects nothing and takes a list.

    All pairs of queries and keys are held at once, as a tensor
    `(..., T, S, units)`.

    Args:
        units: Width that queries and keys are projected to, U.
        dropout: Rate at which attention weights are dropped in training.
        kernel_initializer: Initializer of W, U and v.
        kernel_regularizer: Regularizer of W, U and v.
        kernel_constraint: Constraint on W, U and v.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(..., T, D)`.
        key: Tensor `(..., S, Dk)`, with the leading axes of the query.
        value: Tensor `(..., S, Dv)`, likewise.
        query_mask: As in `ScaledDotProductAttention`.
        key_mask: As in `ScaledDotProductAttention`.
        value_mask: As in `ScaledDotProductAttention`.
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

    >>> layer = AdditiveAttention(units=16)
    >>> query, key = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 4))
    >>> tuple(layer(query, key, value=key).shape)
    (2, 3, 4)

    Reference:
        [Neural Machine Translation by Jointly Learning to Align and
        Translate](https://arxiv.org/abs/1409.0473)
    """

    def __init__(
        self,
        units,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        kernel_regularizer=None,
        kernel_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.units = arguments.positive_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)

    def build(self, query_shape, key_shape, value_shape):
        """Makes W, U and v.

        Args:
            query_shape: Shape `(..., T, D)` of the query.
            key_shape: Shape `(..., S, Dk)` of the key.
            value_shape: Shape `(..., S, Dv)` of the value.
        """
        super().build(query_shape, key_shape, value_shape)
        self.query_dense = self._project("query")
        self.query_dense.build(query_shape)
        self.key_dense = self._project("key")
        self.key_dense.build(key_shape)
        self.score_vector = self.add_weight(
            name="score_vector",
            shape=(self.units,),
            initializer=arguments.separate(self.kernel_initializer),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "units": self.units,
            "dropout": self.dropout,
            **arguments.serialize_kernel(self),
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    def _attend(self, query, key, value, mask, attention_bias, **options):
        # Hidden before they are projected, so that NaN there does not reach
        # the gradients of the kernels.
        mask = mask.hidden_by(attention_bias)
        visible_keys = mask.visible_keys()
        query = masks.hide(query, mask.visible_queries())
        return additive_attention(
            self.query_dense(query),
            self.key_dense(masks.hide(key, visible_keys)),
            masks.hide(value, visible_keys),
            # Cast by hand: whether Keras does so depends on the policy of the
            # model around a layer that casts its inputs itself.
            keras.ops.cast(self.score_vector, self.compute_dtype),
            mask,
            attention_bias=attention_bias,
            **options,
        )

    def _check_shapes(self, query_shape, key_shape, value_shape):
        # The projections make the widths equal.
        same_width = (*query_shape[:-1], key_shape[-1])
        super()._check_shapes(same_width, key_shape, value_shape)
        if tuple(query_shape[1:-2]) != tuple(key_shape[1:-2]):
            raise ValueError(
                "The axes of `query` and `key` before the length must be "
                "equal: additive attention has no grouped heads. Received: "
                f"query.shape={tuple(query_shape)}, "
                f"key.shape={tuple(key_shape)}"
            )

    def _project(self, name):
        """Returns a dense sub-layer without bias."""
        return keras.layers.Dense(
            self.units,
            use_bias=False,
            kernel_initializer=arguments.separate(self.kernel_initializer),
            kernel_regularizer=self.kernel_regularizer,
            kernel_constraint=self.kernel_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

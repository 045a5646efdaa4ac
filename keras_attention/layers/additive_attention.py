"""Additive (Bahdanau) attention, a drop-in for Keras's layer of that name."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments, row_products
from keras_attention.layers.list_attention import ListAttention
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops.additive import additive_attention


@keras.saving.register_keras_serializable(package="keras_attention")
class AdditiveAttention(QuantizedParts, ListAttention):
    """Attends to values by a small network on query and key.

    With `units`, the score of a query q for a key k is
    `v . tanh(q W + k U)`, where the matrices W and U project to `units` and v
    is a vector; all three are learned. Without, it is `v . tanh(q + k)`, and
    the layer is `keras.layers.AdditiveAttention`, with the same weight.

    Called with `(query, key, value)`, or like Keras's layer with one list
    `[query, value, key]`. All pairs of queries and keys are held at once, as
    a tensor `(..., T, S, units)`.

    Args:
        units: Width that queries and keys are projected to, U. None to use
            them as they are; their widths must be equal then.
        use_scale: Whether v is learned. Otherwise it is all ones.
        dropout: Rate at which attention weights are dropped in training.
        kernel_initializer: Initializer of W, U and v.
        kernel_regularizer: Regularizer of W, U and v.
        kernel_constraint: Constraint on W, U and v.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(..., T, D)`, or the list `[query, value, key]`, where
            the key may be left out if it is the value. A batch of one serves
            all rows of the value.
        key: Tensor `(..., S, Dk)`, with the leading axes of the query.
        value: Tensor `(..., S, Dv)`, likewise.
        mask: List `[query_mask, value_mask]`, perhaps with `key_mask`, or
            one mask where query, key and value are one tensor, not a list.
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
        in the compute dtype. A query that is padding gets a context of
        zeros; without `units` it is scored, as in Keras.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> layer = AdditiveAttention(units=16)
    >>> query, key = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 4))
    >>> tuple(layer(query, key, value=key).shape)
    (2, 3, 4)
    >>> value = keras.ops.ones((2, 5, 8))
    >>> tuple(AdditiveAttention()([query, value]).shape)
    (2, 3, 8)

    Reference:
        [Neural Machine Translation by Jointly Learning to Align and
        Translate](https://arxiv.org/abs/1409.0473)
    """

    _replaces = keras.layers.AdditiveAttention

    def __init__(
        self,
        units=None,
        use_scale=True,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        kernel_regularizer=None,
        kernel_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        if isinstance(units, bool):
            raise ValueError(
                "`units` must be a positive integer or None. Pass Keras's "
                f"argument by its name: `use_scale={units}`. Received: "
                f"units={units}"
            )
        self.units = units
        if units is not None:
            self.units = arguments.positive_integer("units", units)
        self.use_scale = use_scale
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.scores_padding = units is None

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "units": self.units,
            "use_scale": self.use_scale,
            "dropout": self.dropout,
            **arguments.serialize_kernel(self),
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    def _make_weights(self, query_shape, key_shape, value_shape):
        self.query_dense = self.key_dense = self.scale = None
        if self.units is not None:
            self.query_dense = self._project("query")
            self.query_dense.build(query_shape)
            self.key_dense = self._project("key")
            self.key_dense.build(key_shape)
        if self.use_scale:
            self.scale = self.add_weight(
                name="scale",
                shape=(self.units or query_shape[-1],),
                initializer=arguments.separate(self.kernel_initializer),
                regularizer=self.kernel_regularizer,
                constraint=self.kernel_constraint,
            )

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
        if self.units is not None:
            query, key = self.query_dense(query), self.key_dense(key)
        # Cast by hand: whether Keras does so depends on the policy of the
        # model around a layer that casts its inputs itself.
        scale = ops.ones(query.shape[-1:]) if self.scale is None else self.scale
        return additive_attention(
            query,
            key,
            value,
            ops.cast(scale, self.compute_dtype),
            mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            **self._dropout_options(training),
        )

    def _check_shapes(self, query_shape, key_shape, value_shape):
        # The projections make the widths equal.
        width = query_shape[-1] if self.units is None else key_shape[-1]
        same_width = (*query_shape[:-1], width)
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
        return row_products.Dense(
            self.units,
            use_bias=False,
            kernel_initializer=arguments.separate(self.kernel_initializer),
            kernel_regularizer=self.kernel_regularizer,
            kernel_constraint=self.kernel_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

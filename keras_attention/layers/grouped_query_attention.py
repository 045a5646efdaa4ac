"""Grouped-query attention, a drop-in for Keras's layer of that name."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.ops.shapes import sizes_differ

_PROJECTIONS = ("query_dense", "key_dense", "value_dense", "output_dense")


def _kept_privately(name):
    """Returns a property that keeps its value under `name` with a `_`."""
    return property(
        lambda layer: getattr(layer, f"_{name}"),
        lambda layer, value: setattr(layer, f"_{name}", value),
    )


@keras.saving.register_keras_serializable(package="keras_attention")
class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention whose query heads share keys and values.

    Takes everything `keras.layers.GroupQueryAttention` takes, under the same
    names, with the same weights in the same order and shapes, and is
    imported by that name as well. Called with `(query, value, key=None)`
    like Keras's layer. It is `MultiHeadAttention` with
    `num_key_value_heads`; that class has options which this one leaves out.

    No head of key or value is repeated in memory. Masks, scores and rows
    that may attend to nothing are as in `MultiHeadAttention`.

    Args:
        head_dim: Width of each head, H.
        num_query_heads: Number of query heads, N.
        num_key_value_heads: Number of key and value heads, K, which divides
            N. Each serves `N / K` query heads.
        dropout: Rate at which attention weights are dropped in training.
        use_bias: Whether the projections have biases.
        sliding_window: Query t sees only keys s with
            `abs(t - s) < sliding_window`. None for no limit.
        flash_attention: None to choose the kernel, True for the one of
            linear memory or an error that says why not, False for dense.
        kernel_initializer: Initializer of the projection kernels.
        bias_initializer: Initializer of the projection biases.
        kernel_regularizer: Regularizer of the projection kernels.
        bias_regularizer: Regularizer of the projection biases.
        activity_regularizer: Regularizer of each projection's output.
        kernel_constraint: Constraint on the projection kernels.
        bias_constraint: Constraint on the projection biases.
        use_gate: Whether a sigmoid gate, projected from the query, scales
            the context before the output projection.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(B, T, D)`.
        value: Tensor `(B, S, Dv)`.
        key: Tensor `(B, S, Dk)`. Defaults to `value`.
        **options: Those of `MultiHeadAttention`.

    Returns:
        The output `(B, T, D)`, or with `return_attention_scores` the tuple
        of it and the scores `(B, N, T, S)`, taken before dropout. Both in
        the compute dtype.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> layer = GroupedQueryAttention(4, num_query_heads=6,
    ...                               num_key_value_heads=2)
    >>> query, value = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 8))
    >>> output, scores = layer(query, value, return_attention_scores=True)
    >>> tuple(output.shape), tuple(scores.shape)
    ((3, 5, 8), (3, 6, 5, 7))

    Reference:
        [GQA: Training Generalized Multi-Query Transformer Models from
        Multi-Head Checkpoints](https://arxiv.org/abs/2305.13245)
    """

    _replaces = keras.layers.GroupQueryAttention

    # Where Keras's layer keeps its projections, and hence their paths in a
    # weights file, which visits the public attributes first.
    query_dense = _kept_privately("query_dense")
    key_dense = _kept_privately("key_dense")
    value_dense = _kept_privately("value_dense")
    output_dense = _kept_privately("output_dense")

    def __init__(
        self,
        head_dim,
        num_query_heads,
        num_key_value_heads,
        dropout=0.0,
        use_bias=True,
        sliding_window=None,
        flash_attention=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        use_gate=False,
        seed=None,
        **kwargs,
    ):
        arguments.positive_integer("head_dim", head_dim)
        arguments.positive_integer("num_query_heads", num_query_heads)
        arguments.positive_integer("num_key_value_heads", num_key_value_heads)
        arguments.head_groups(
            num_query_heads, num_key_value_heads, "num_query_heads"
        )
        super().__init__(
            num_query_heads,
            head_dim,
            dropout=dropout,
            use_bias=use_bias,
            sliding_window=sliding_window,
            flash_attention=flash_attention,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            use_gate=use_gate,
            seed=seed,
            num_key_value_heads=num_key_value_heads,
            **kwargs,
        )

    def __dir__(self):
        return [name for name in super().__dir__() if name not in _PROJECTIONS]

    @property
    def head_dim(self) -> int:
        """Width of each head, H."""
        return self.key_dim

    @property
    def num_query_heads(self) -> int:
        """Number of query heads, N."""
        return self.num_heads

    @property
    def num_repeats(self) -> int:
        """Number of query heads that each key and value head serves."""
        return self.num_heads // self.num_key_value_heads

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """Returns the shape of the output, scores left aside.

        Raises:
            ValueError: The shapes do not fit, or `query` and `value` differ
                in width: Keras's layer gives no shape for these.
        """
        if sizes_differ(query_shape[-1], value_shape[-1]):
            raise ValueError(
                "The last axes of `query` and `value` must be equal, as in "
                "Keras's layer of this name. For other widths use "
                "`MultiHeadAttention(num_key_value_heads="
                f"{self.num_key_value_heads})`. Received: "
                f"query_shape={tuple(query_shape)}, "
                f"value_shape={tuple(value_shape)}"
            )
        return super().compute_output_shape(query_shape, value_shape, key_shape)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "head_dim": self.head_dim,
            "num_query_heads": self.num_query_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            **arguments.serialize_dense(self, self._activity_regularizer),
            "use_gate": self.use_gate,
            "seed": self.seed,
        }
        # Not the parent's: its arguments have other names.
        return {**keras.layers.Layer.get_config(self), **config}

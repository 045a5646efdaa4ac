"""Multi-head attention, a drop-in for `keras.layers.MultiHeadAttention`."""

from __future__ import annotations

import string

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import attention, masks
from keras_attention.ops.axes import AttentionAxes
from keras_attention.ops.keras2 import refuse_keras_2


@keras.saving.register_keras_serializable(package="keras_attention")
class MultiHeadAttention(keras.layers.Layer):
    """Attention by several heads side by side, each on its own projection.

    Takes everything `keras.layers.MultiHeadAttention` takes, with the same
    weights in the same order and shapes. Like Keras's layer, and unlike
    `ScaledDotProductAttention`, it is called with `(query, value, key=None)`.

    The same inputs give the same output on every path, with scores or
    without, with dropout or without it at inference. A query that may attend
    to nothing gets a context of zeros, so that its output is the output
    bias. Masks that Keras carries with the inputs are used and left alone.

    Args:
        num_heads: Number of query heads, N.
        key_dim: Width of each head for query and key, H.
        value_dim: Width of each head for value. Defaults to `key_dim`.
        dropout: Rate at which attention weights are dropped in training.
        use_bias: Whether the projections have biases.
        output_shape: Width (or shape) of the output features. Defaults to
            the width of the query.
        attention_axes: Axes attended over, an integer or a tuple. Defaults
            to all but batch and features. Several axes are read as one, in
            row-major order, by causal masks and windows.
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
        num_key_value_heads: Number of key and value heads, K, which divides
            N. Each serves `N / K` query heads. Defaults to `num_heads`.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        query: Tensor `(B, T, D)`.
        value: Tensor `(B, S, Dv)`.
        key: Tensor `(B, S, Dk)`. Defaults to `value`.
        query_mask: Boolean `(B, T)`, True for tokens, False for padding.
            Defaults to the mask that Keras carries with `query`.
        value_mask: Boolean `(B, S)`. Defaults likewise.
        key_mask: Boolean `(B, S)`. Defaults likewise.
        attention_mask: Boolean `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`, True where a query may attend. Rank 2 is always
            `(T, S)`. All masks are joined by logical AND.
        return_attention_scores: Whether to return the scores as well.
        training: Whether dropout is active.
        use_causal_mask: Whether query t sees only keys s with `s <= t`.
        attention_bias: Additive bias of the shapes of `attention_mask`,
            added to the scaled scores.

    Returns:
        The output `(B, T, D)`, or with `return_attention_scores` the tuple
        of it and the scores `(B, N, T, S)`, taken before dropout. Both in
        the compute dtype.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> layer = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> query, value = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 8))
    >>> output, scores = layer(query, value, return_attention_scores=True)
    >>> tuple(output.shape), tuple(scores.shape)
    ((3, 5, 8), (3, 2, 5, 7))

    Reference:
        - [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
        - [GQA](https://arxiv.org/abs/2305.13245) for `num_key_value_heads`
        - [Gated Attention](https://arxiv.org/abs/2505.06708) for `use_gate`
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        attention_axes=None,
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
        num_key_value_heads=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        # The projections cast what they are given. A bias has to stay as it
        # is: in float16, -1e9 would become minus infinity.
        self.autocast = False
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.key_dim = arguments.positive_integer("key_dim", key_dim)
        self.value_dim = arguments.positive_integer(
            "value_dim", key_dim if value_dim is None else value_dim
        )
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = use_bias
        # Not public: `output_shape` of a layer means something else to
        # `summary()`.
        self._output_shape = arguments.feature_shape(
            "output_shape", output_shape
        )
        self.attention_axes = arguments.axes("attention_axes", attention_axes)
        self.sliding_window = masks.check_window(sliding_window)
        self.flash_attention = arguments.one_of(
            "flash_attention", flash_attention, (None, True, False)
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # Not public: the base class would apply it to the output as well.
        self._activity_regularizer = keras.regularizers.get(
            activity_regularizer
        )
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = use_gate
        self.seed = seed
        self.num_key_value_heads = arguments.head_groups(
            self.num_heads, num_key_value_heads
        )

    def build(self, query_shape, value_shape, key_shape=None):
        """Makes the projections, in the order of Keras's weights.

        Args:
            query_shape: Shape `(B, T, D)` of the query.
            value_shape: Shape `(B, S, Dv)` of the value.
            key_shape: Shape `(B, S, Dk)` of the key, if it is not the value.
        """
        key_shape = value_shape if key_shape is None else key_shape
        self._resolve_axes(query_shape, value_shape, key_shape)
        self.input_spec = keras.layers.InputSpec(axes={-1: query_shape[-1]})
        heads, key_heads = self.num_heads, self.num_key_value_heads
        # Attribute names are Keras's: they are the paths in a weights file.
        self.query_dense = self._project(
            "query", query_shape, (heads, self.key_dim)
        )
        self.key_dense = self._project(
            "key", key_shape, (key_heads, self.key_dim)
        )
        self._gate_dense = None
        if self.use_gate:
            self._gate_dense = self._project(
                "gate",
                query_shape,
                (heads, self.value_dim),
                activation="sigmoid",
            )
        self.value_dense = self._project(
            "value", value_shape, (key_heads, self.value_dim)
        )
        self._dropout_layer = None
        if self.dropout:
            self._dropout_layer = keras.layers.Dropout(
                self.dropout, seed=self.seed, dtype=self.dtype_policy
            )
        self.output_dense = self._project(
            "attention_output",
            (*query_shape[:-1], heads, self.value_dim),
            self._output_shape or (query_shape[-1],),
            contracted="yz",
        )

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        attention_bias=None,
    ):
        """Attends from each query position to the values."""
        refuse_keras_2(query=query, value=value, key=key)
        same = key is None or key is value
        key = value if key is None else key
        axes = self._resolve_axes(query.shape, value.shape, key.shape)
        mask, bias = self._combine_masks(
            axes,
            query.shape,
            key.shape,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            attention_bias=attention_bias,
        )
        # Padding is hidden before it is projected, so that NaN there reaches
        # neither the output nor the gradients of the kernels.
        query = masks.hide(
            query, axes.input_padding(mask.visible_queries(), query)
        )
        visible_keys = axes.input_padding(mask.visible_keys(), key)
        value = masks.hide(value, visible_keys)
        key = value if same else masks.hide(key, visible_keys)

        context, scores = attention.attend(
            axes.heads_first(self.query_dense(query)),
            axes.heads_first(self.key_dense(key)),
            axes.heads_first(self.value_dense(value)),
            mask,
            bias=bias,
            dropout=self.dropout if training else 0.0,
            seed=self._dropout_layer and self._dropout_layer.seed_generator,
            return_attention_scores=return_attention_scores,
            flash_attention=self.flash_attention,
        )
        context = axes.heads_last(context, query)
        if self.use_gate:
            context = ops.multiply(context, self._gate_dense(query))
        output = self.output_dense(context)
        masks.set_implicit_mask(output, masks.as_boolean(query_mask))
        if return_attention_scores:
            return output, axes.split_scores(scores, query, key)
        return output

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """Returns the shape of the output, scores left aside."""
        key_shape = value_shape if key_shape is None else key_shape
        self._resolve_axes(query_shape, value_shape, key_shape)
        features = self._output_shape or (query_shape[-1],)
        return (*query_shape[:-1], *features)

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        attention_bias=None,
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        refuse_keras_2(query=query, value=value, key=key)
        key = value if key is None else key
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        axes = self._resolve_axes(query.shape, value.shape, key.shape)
        self._combine_masks(
            axes,
            query.shape,
            key.shape,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            attention_bias=attention_bias,
        )
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        masks.set_implicit_mask(output, masks.as_boolean(query_mask))
        if not return_attention_scores:
            return output
        scores_shape = axes.scores_shape(query.shape, key.shape, self.num_heads)
        return output, keras.KerasTensor(scores_shape, self.compute_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "attention_axes": self.attention_axes,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            **arguments.serialize_dense(self, self._activity_regularizer),
            "use_gate": self.use_gate,
            "seed": self.seed,
            "num_key_value_heads": self.num_key_value_heads,
        }
        return {**super().get_config(), **config}

    def _project(
        self, name, input_shape, features, contracted="x", activation=None
    ):
        """Returns a built dense layer from `contracted` axes to `features`."""
        # Spelled out for the rank at hand: EinsumDense does not quantize an
        # equation with an ellipsis.
        lead = string.ascii_uppercase[: len(input_shape) - len(contracted)]
        letters = string.ascii_lowercase[: len(features)]
        dense = keras.layers.EinsumDense(
            f"{lead}{contracted},{contracted}{letters}->{lead}{letters}",
            output_shape=(*[None] * (len(lead) - 1), *features),
            activation=activation,
            bias_axes=letters if self.use_bias else None,
            kernel_initializer=arguments.separate(self.kernel_initializer),
            bias_initializer=arguments.separate(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(input_shape)
        dense.input_spec = keras.layers.InputSpec(axes={-1: input_shape[-1]})
        return dense

    def _resolve_axes(self, query_shape, value_shape, key_shape):
        axes = AttentionAxes.resolve(self.attention_axes, len(query_shape))
        axes.check(query_shape, value_shape, key_shape)
        return axes

    def _combine_masks(
        self,
        axes,
        query_shape,
        key_shape,
        *,
        query_mask,
        value_mask,
        key_mask,
        attention_mask,
        use_causal_mask,
        attention_bias,
    ):
        """Returns the `AttentionMask` and the bias, in kernel layout."""
        heads, width = self.num_heads, self.key_dim
        query_shape = axes.static_shape(query_shape, heads, width)
        key_shape = axes.static_shape(key_shape, heads, width)
        bias = masks.check_bias(
            axes.flatten_mask(attention_bias),
            query_shape[:-2],
            query_shape[-2],
            key_shape[-2],
        )
        mask = masks.combine(
            query_shape,
            key_shape,
            attention_mask=axes.flatten_mask(attention_mask),
            attention_bias=bias,
            query_mask=axes.flatten_padding(query_mask),
            value_mask=axes.flatten_padding(value_mask),
            key_mask=axes.flatten_padding(key_mask),
            use_causal_mask=use_causal_mask,
            sliding_window=self.sliding_window,
        )
        return mask, bias

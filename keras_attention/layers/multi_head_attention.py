"""Multi-head attention, a drop-in for `keras.layers.MultiHeadAttention`."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import (
    arguments,
    attention_parts,
    head_positions,
    injection,
    preparation,
    projections,
)
from keras_attention.layers.attention_hook import AttentionHook
from keras_attention.layers.key_value_cache import KeyValueCache
from keras_attention.layers.mask_argument import MaskArgument
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops import masks


@keras.saving.register_keras_serializable(package="keras_attention")
class MultiHeadAttention(
    MaskArgument, AttentionHook, KeyValueCache, QuantizedParts, keras.Layer
):
    """Attention by several heads, called with `(query, value, key=None)`.

    Takes everything `keras.layers.MultiHeadAttention` takes, with the same
    weights in the same order and shapes. The order of the call is that of
    Keras's layer; `ScaledDotProductAttention` takes `(query, key, value)`.

    The same inputs give the same output on every path. A query that may
    attend to nothing gets a context of zeros, so that its output is the
    output bias. Masks that Keras carries are used and left alone.

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
        position: None, "rotary", "alibi", an `AlibiBias`, or a layer such as
            `RotaryEmbedding`, called with heads `(B, T, N, H)` and
            `positions=`. Positions count from 0, or `cache_update_index`.
        qk_norm: Whether query and key heads are divided by their root mean
            square, and scaled by weights of width H.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Attributes:
        attention_path: Kernel of the latest call, "dense", "blockwise", or
            "by_length" for one of these as the lengths turn out.

    Call arguments:
        query: Tensor `(B, T, D)`.
        value: Tensor `(B, S, Dv)`. May be None where a `cache` comes without
            `cache_update_index`.
        key: Tensor `(B, S, Dk)`. Defaults to `value`.
        query_mask: Boolean `(B, T)`, True for tokens, False for padding.
            Defaults to the mask that Keras carries.
        value_mask: Boolean `(B, S)`, likewise, and so `key_mask`.
        mask: `[query_mask, value_mask]`, or one mask if `query` is `value`.
        attention_mask: Boolean `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`, True where a query may attend. Rank 2 is always
            `(T, S)`. All masks are joined by logical AND.
        return_attention_scores: Whether to return the scores as well.
        training: Whether dropout is active.
        use_causal_mask: Whether query t sees only keys s with `s <= t`.
        attention_bias: Bias of such a shape, added to the scaled scores.
        cache: Keys and values `(B, 2, S, K, H)`, from `make_cache` or an
            earlier call. Masks and biases are then about its S positions; a
            `value_mask` `(B, T)` is about the new ones.
        cache_update_index: Position of the first query, an integer or an
            integer tensor, `()` or `(B,)`. The call writes its keys there
            and attends to all up to them. Without it, a cache from
            `compute_cache` is read as it is.

    Returns:
        The output `(B, T, D)`, or a tuple of it, with
        `return_attention_scores` the scores `(B, N, T, S)`, taken before
        dropout, and with `cache` the new cache. All in the compute dtype.
        With a cache for a sliding window, the scores are those of the
        `sliding_window - 1` positions before the call and its own.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range, shapes do not fit, or the
            call would run over the end of the cache. Where that is known at
            run time only, TensorFlow raises `InvalidArgumentError`.

    Example:

    >>> layer = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> query, value = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 8))
    >>> output, scores = layer(query, value, return_attention_scores=True)
    >>> tuple(output.shape), tuple(scores.shape)
    ((3, 5, 8), (3, 2, 5, 7))

    The fifth position after four:

    >>> cache = layer.make_cache(batch_size=3, max_length=7)
    >>> _, cache = layer(query[:, :4], query[:, :4], use_causal_mask=True,
    ...                  cache=cache, cache_update_index=0)
    >>> output, cache = layer(query[:, 4:], query[:, 4:], cache=cache,
    ...                       cache_update_index=4)
    >>> tuple(output.shape), tuple(cache.shape)
    ((3, 1, 8), (3, 2, 7, 2, 4))

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
        position=None,
        qk_norm=False,
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
        self.position = position
        self.qk_norm = qk_norm
        self.attention_path = None
        self._position = head_positions.resolve(
            position, self.num_heads, self.dtype_policy
        )

    def build(self, query_shape, value_shape, key_shape=None):
        """Makes the projections, in the order of Keras's weights.

        Args:
            query_shape: Shape `(B, T, D)` of the query.
            value_shape: Shape `(B, S, Dv)` of the value.
            key_shape: Shape `(B, S, Dk)` of the key, if it is not the value.
        """
        key_shape = value_shape if key_shape is None else key_shape
        preparation.resolve_axes(self, query_shape, value_shape, key_shape)
        self.input_spec = keras.layers.InputSpec(axes={-1: query_shape[-1]})
        heads, key_heads = self.num_heads, self.num_key_value_heads
        # Attribute names are Keras's: they are the paths in a weights file.
        self.query_dense = projections.project(
            self, "query", query_shape, (heads, self.key_dim)
        )
        self.key_dense = projections.project(
            self, "key", key_shape, (key_heads, self.key_dim)
        )
        self._gate_dense = None
        if self.use_gate:
            self._gate_dense = projections.project(
                self,
                "gate",
                query_shape,
                (heads, self.value_dim),
                activation="sigmoid",
            )
        self.value_dense = projections.project(
            self, "value", value_shape, (key_heads, self.value_dim)
        )
        self._dropout_layer = None
        if self.dropout:
            self._dropout_layer = keras.layers.Dropout(
                self.dropout, seed=self.seed, dtype=self.dtype_policy
            )
        self.output_dense = projections.project(
            self,
            "attention_output",
            (*query_shape[:-1], heads, self.value_dim),
            self._output_shape or (query_shape[-1],),
            contracted="yz",
        )
        # Last, lest they come between the weights that Keras's layer has.
        self.query_norm = self.key_norm = None
        if self.qk_norm:
            self.query_norm = projections.head_norm(self, "query_norm")
            self.key_norm = projections.head_norm(self, "key_norm")
        head_positions.build(
            self._position, (*query_shape[:-1], heads, self.key_dim)
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
        cache=None,
        cache_update_index=None,
    ):
        """Attends from each query position to the values."""
        key = value if key is None else key
        plan = preparation.prepare(
            self,
            (query, value, key),
            (cache, cache_update_index),
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            attention_bias=attention_bias,
        )
        # Padding is hidden before it is projected, so that NaN there reaches
        # neither the output nor the gradients of the kernels.
        query = masks.hide(query, plan.visible_queries(query))
        positions = plan.query_positions()
        heads = projections.query_heads(self, query, positions)
        if plan.keys.projects:
            key, value = projections.key_and_value_heads(
                self,
                key,
                value,
                plan.visible_keys(key),
                plan.input_positions(key),
            )
        attended = plan.attended(positions, key, value)
        heads = plan.axes.heads_first(heads)
        if not self._ignores_hidden_keys(
            heads, attended, training, return_attention_scores
        ):
            attended = attended.hidden()
        context, scores = self.compute_attention(
            heads,
            attended.key,
            attended.value,
            attended.mask,
            attention_bias=attended.bias,
            training=training,
            return_attention_scores=return_attention_scores,
        )
        context = plan.axes.heads_last(context, query)
        if self.use_gate:
            context = ops.multiply(context, self._gate_dense(query))
        output = self.output_dense(context)
        masks.set_implicit_mask(output, masks.as_boolean(query_mask))
        if not return_attention_scores:
            return attention_parts.results(output, (None, attended.cache))
        scores = plan.axes.split_scores(scores, query, key)
        return attention_parts.results(output, (scores, attended.cache))

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """Returns the shape of the output, scores left aside."""
        key_shape = value_shape if key_shape is None else key_shape
        preparation.resolve_axes(self, query_shape, value_shape, key_shape)
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
        cache=None,
        cache_update_index=None,
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        key = value if key is None else key
        plan = preparation.prepare(
            self,
            (query, value, key),
            (cache, cache_update_index),
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            attention_bias=attention_bias,
        )
        features = self._output_shape or (query.shape[-1],)
        output = keras.KerasTensor(
            (*query.shape[:-1], *features), dtype=self.compute_dtype
        )
        masks.set_implicit_mask(output, masks.as_boolean(query_mask))
        scores = None
        if return_attention_scores:
            scores = keras.KerasTensor(
                plan.scores_shape(query, key), self.compute_dtype
            )
        if cache is not None:
            cache = keras.KerasTensor(cache.shape, self.compute_dtype)
        return attention_parts.results(output, (scores, cache))

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
            "position": injection.serialize(self.position),
            "qk_norm": self.qk_norm,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Returns the layer, with the position layer that it was given."""
        return super().from_config(injection.deserialize(config, "position"))

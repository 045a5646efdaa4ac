"""A transformer encoder block."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments, injection
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.ops import masks
from keras_attention.ops.keras2 import refuse_keras_2


@keras.saving.register_keras_serializable(package="keras_attention")
class EncoderBlock(keras.layers.Layer):
    """Self-attention, then a feed-forward network, each with a residual.

    The sums are normalised (post-norm) or, with `normalize_first`, the input
    of each part is (pre-norm). What stands at padded positions reaches no
    other one, NaN included, forward or backward.

    Args:
        num_heads: Number of attention heads, N, which divides the width D.
            May be None if `attention` is given.
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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        # Inputs are cast in `call`. A bias has to stay as it is: in float16,
        # -1e9 would become minus infinity.
        self.autocast = False
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self._makes_attention = attention is None
        if attention is None:
            num_heads = arguments.positive_integer("num_heads", num_heads)
        else:
            injection.check("attention", attention)
        self.num_heads = num_heads
        self.intermediate_dim = arguments.positive_integer(
            "intermediate_dim", intermediate_dim
        )
        self.dropout = arguments.rate("dropout", dropout)
        self.activation = arguments.activation("activation", activation)
        self.layer_norm_epsilon = arguments.positive_number(
            "layer_norm_epsilon", layer_norm_epsilon
        )
        self.normalize_first = normalize_first
        self.attention = attention
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed

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
        self._attention_dropout = keras.layers.Dropout(
            self.dropout,
            seed=self._seed(1),
            dtype=self.dtype_policy,
            name="attention_dropout",
        )
        self.attention_norm = self._norm("attention_norm")
        self.attention_norm.build(input_shape)
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.dropout,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            seed=self._seed(2),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build(input_shape)
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self.feed_forward_norm.build(input_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        """Attends from each position to all, then transforms each alone."""
        refuse_keras_2(inputs=inputs)
        padding = _padding(inputs, padding_mask)
        x = masks.hide(ops.cast(inputs, self.compute_dtype), padding)
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
        x = self._after(self.attention_norm, x)

        transformed = self.feed_forward(
            self._before(self.feed_forward_norm, x), training=training
        )
        x = self._after(self.feed_forward_norm, x + transformed)
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
    ):
        """Returns the symbolic output, after the checks that `call` makes."""
        refuse_keras_2(inputs=inputs)
        padding = _padding(inputs, padding_mask)
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

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        attention = None
        if not self._makes_attention:
            attention = keras.saving.serialize_keras_object(self.attention)
            # Built by the block again: its weights are named after that.
            attention.pop("build_config", None)
        config = {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "normalize_first": self.normalize_first,
            "attention": attention,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Returns the block, with the attention layer that was injected."""
        attention = config.get("attention")
        if isinstance(attention, dict):
            attention = keras.saving.deserialize_keras_object(attention)
        return super().from_config({**config, "attention": attention})

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

    def _before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _after(self, norm, x):
        return x if self.normalize_first else norm(x)

    def _attention_for(self, input_shape):
        """Returns the attention layer there is, or the default one."""
        if self.attention is not None:
            return self.attention
        width = input_shape[-1]
        if width is None:
            raise ValueError(
                "The width of the inputs must be known, since the weights "
                "have its size. Received: "
                f"inputs.shape={tuple(input_shape)}"
            )
        if width % self.num_heads:
            raise ValueError(
                f"The width of the inputs ({width}) must be a multiple of "
                f"`num_heads` ({self.num_heads}), which share it evenly. "
                "Choose another number, or pass `attention="
                "MultiHeadAttention(num_heads, key_dim)` with heads of any "
                f"width. Received: num_heads={self.num_heads}, "
                f"inputs.shape={tuple(input_shape)}"
            )
        return MultiHeadAttention(
            self.num_heads,
            key_dim=width // self.num_heads,
            dropout=self.dropout,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            seed=self._seed(0),
            dtype=self.dtype_policy,
            name="attention",
        )

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def _seed(self, index):
        """Returns a seed for one sub-layer, lest all drop the same entries."""
        return None if self.seed is None else self.seed + index


def _padding(inputs, padding_mask):
    """Returns the padding mask `(B, T)`, explicit or implicit, or None."""
    if padding_mask is None:
        padding_mask = masks.get_implicit_mask(inputs)
    batch_size, length, _ = inputs.shape
    return masks.check_padding(
        padding_mask, "padding_mask", (batch_size,), length
    )

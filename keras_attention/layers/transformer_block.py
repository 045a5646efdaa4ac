"""What transformer blocks share: their arguments and their sub-layers."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments, injection
from keras_attention.layers.feed_forward import FeedForward
from keras_attention.layers.multi_head_attention import MultiHeadAttention
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops import masks


class TransformerBlock(QuantizedParts, keras.layers.Layer):
    """Parts with a residual each, and normalisation before or after them.

    A subclass makes its parts in `build` and joins them in `call`.

    Args:
        num_heads: Number of attention heads, N. May be None if `attention`
            is given.
        intermediate_dim: Width inside the feed-forward network.
        dropout: Rate at which attention weights, and the outputs of all
            parts, are dropped in training.
        activation: Activation inside the feed-forward network.
        layer_norm_epsilon: Added to the variance in layer normalisation.
        normalize_first: Whether to normalise before each part, not after.
        attention: An attention layer for self-attention, or None.
        use_bias: Whether the dense projections have biases.
        kernel_initializer: Initializer of the projection kernels.
        bias_initializer: Initializer of the projection biases.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.
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

    def get_config(self):
        """Returns the arguments above, ready for JSON."""
        made = self._makes_attention
        config = {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "normalize_first": self.normalize_first,
            "attention": None if made else injection.serialize(self.attention),
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

    def compute_mask(self, inputs, previous_mask=None):
        """Returns the padding mask of the first sequence."""
        return masks.as_boolean(previous_mask)

    @classmethod
    def from_config(cls, config):
        """Returns the block, with the attention layers that were injected."""
        names = ("attention", "cross_attention")
        return super().from_config(injection.deserialize(config, *names))

    def _make_attention(self, input_shape, name, seed):
        """Returns a new attention layer, not yet built."""
        width = input_shape[-1]
        if width is None:
            raise ValueError(
                "The width of the inputs must be known, since the weights "
                "have its size. Received: "
                f"inputs.shape={tuple(input_shape)}"
            )
        if self.num_heads is None or width < self.num_heads:
            raise ValueError(
                f"The width of the inputs ({width}) must be at least "
                f"`num_heads` ({self.num_heads}), which share it. Choose "
                f"another number, or pass `{name}="
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
            seed=self._seed(seed),
            dtype=self.dtype_policy,
            name=name,
        )

    def _make_feed_forward(self, input_shape, seed):
        """Returns the feed-forward network, built."""
        feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.dropout,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            seed=self._seed(seed),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        feed_forward.build(input_shape)
        return feed_forward

    def _make_dropout(self, name, seed):
        return keras.layers.Dropout(
            self.dropout,
            seed=self._seed(seed),
            dtype=self.dtype_policy,
            name=name,
        )

    def _make_norm(self, name, input_shape):
        norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )
        norm.build(input_shape)
        return norm

    def _hidden(self, inputs, padding):
        """Returns inputs in the compute dtype, zeros at padding."""
        return masks.hide(ops.cast(inputs, self.compute_dtype), padding)

    def _transform(self, x, training):
        """Returns the sequence after the feed-forward part."""
        transformed = self.feed_forward(
            self._before(self.feed_forward_norm, x), training=training
        )
        return self._after(self.feed_forward_norm, x + transformed)

    def _before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _after(self, norm, x):
        return x if self.normalize_first else norm(x)

    def _seed(self, index):
        """Returns a seed for one sub-layer, lest all drop the same entries."""
        return None if self.seed is None else self.seed + index


def padding_of(inputs, padding_mask, name="padding_mask", mask=None):
    """Returns the padding mask `(B, T)`, explicit or implicit, or None.

    Args:
        inputs: Tensor `(B, T, D)`.
        padding_mask: The mask given under its own name.
        name: That name, for the errors.
        mask: The mask given under Keras's name.
    """
    if padding_mask is None:
        padding_mask, name = mask, "mask"
    if padding_mask is None:
        padding_mask = masks.get_implicit_mask(inputs)
    batch_size, length, _ = inputs.shape
    return masks.check_padding(padding_mask, name, (batch_size,), length)

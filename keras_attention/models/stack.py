"""What every model here shares: positions, encoder blocks and a head."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import keras

from keras_attention import layers
from keras_attention.layers import arguments

POOLINGS = ("mean", "max", "first")


@dataclasses.dataclass(frozen=True)
class EncoderStack:
    """A stack of encoder blocks, by its hyper-parameters.

    The model factories take these fields as keyword arguments.

    Attributes:
        hidden_dim: Width of the sequence, D. A multiple of `num_heads`.
        num_layers: Number of encoder blocks.
        num_heads: Number of attention heads, N.
        intermediate_dim: Width inside the feed-forward layers. Defaults to
            `4 * hidden_dim`.
        dropout: Rate of dropout after the embedding, on the attention
            weights, and after each half of a block.
        activation: Activation inside the feed-forward layers.
        normalize_first: Whether blocks normalise before attention and
            feed-forward (and once at the end) or after them.
        positions: "sinusoidal", "learned" or None.
        max_length: Longest sequence that learned positions can mark.
        dtype: Dtype policy of the layers, such as "mixed_float16". Defaults
            to the global policy. Outputs are float32 under any.

    Raises:
        ValueError: A number is out of range, or the width is not a multiple
            of the number of heads.

    Example:

    >>> EncoderStack(hidden_dim=32, num_heads=4).intermediate_dim
    128
    """

    hidden_dim: int = 128
    num_layers: int = 2
    num_heads: int = 4
    intermediate_dim: int | None = None
    dropout: float = 0.1
    activation: Any = "relu"
    normalize_first: bool = True
    positions: str | None = "sinusoidal"
    max_length: int = 512
    dtype: Any = None

    position_choices: ClassVar[tuple[str | None, ...]] = (
        "sinusoidal",
        "learned",
        None,
    )

    def __post_init__(self):
        """Checks the numbers before any layer is made."""
        width = arguments.positive_integer("hidden_dim", self.hidden_dim)
        if self.intermediate_dim is None:
            object.__setattr__(self, "intermediate_dim", 4 * width)
        for name in (
            "hidden_dim",
            "num_layers",
            "num_heads",
            "intermediate_dim",
            "max_length",
        ):
            value = arguments.positive_integer(name, getattr(self, name))
            object.__setattr__(self, name, value)
        arguments.rate("dropout", self.dropout)
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads`: the heads "
                "share it evenly. Received: "
                f"hidden_dim={self.hidden_dim}, num_heads={self.num_heads}"
            )
        if self.positions not in self.position_choices:
            raise ValueError(
                f"`positions` must be one of {self.position_choices}. "
                f"Received: positions={self.positions!r}"
            )

    def __call__(self, embedded, padding_mask=None):
        """Returns the encoded sequence, in the functional API.

        Args:
            embedded: KerasTensor `(B, T, hidden_dim)`.
            padding_mask: Boolean KerasTensor `(B, T)`, True for tokens, or
                None where nothing is padding.

        Returns:
            A KerasTensor shaped like `embedded`.
        """
        x = self._begin(embedded)
        for index in range(self.num_layers):
            block = layers.EncoderBlock(
                num_heads=self.num_heads,
                intermediate_dim=self.intermediate_dim,
                dropout=self.dropout,
                activation=self.activation,
                normalize_first=self.normalize_first,
                attention=self._attention(),
                dtype=self.dtype,
                name=f"encoder_block_{index}",
            )
            x = block(x, padding_mask=padding_mask)
        return self._end(x)

    def _begin(self, x, prefix=""):
        """Returns what goes into the first block, positions marked."""
        if self.positions == "sinusoidal":
            x = layers.SinusoidalPositionEncoding(
                dtype=self.dtype, name=f"{prefix}positions"
            )(x)
        elif self.positions == "learned":
            x = layers.PositionEmbedding(
                self.max_length, dtype=self.dtype, name=f"{prefix}positions"
            )(x)
        if not self.dropout:
            return x
        return keras.layers.Dropout(
            self.dropout, dtype=self.dtype, name=f"{prefix}embedding_dropout"
        )(x)

    def _end(self, x, prefix=""):
        """Returns what comes out of the last block, normalised."""
        if not self.normalize_first:
            return x
        return keras.layers.LayerNormalization(
            epsilon=1e-5, dtype=self.dtype, name=f"{prefix}final_norm"
        )(x)

    def _attention(self):
        """Returns the attention layer of a block; None for its own."""
        return None


def encoder_stack(options, kind=EncoderStack):
    """Returns the stack of a factory's keyword arguments.

    Args:
        options: Dictionary of fields of `kind`.
        kind: `EncoderStack`, or a class made of it.

    Raises:
        TypeError: An unknown keyword argument.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    for name in options:
        if name not in known:
            raise TypeError(
                f"Unknown keyword argument `{name}`. Beside its own arguments "
                f"a factory takes {', '.join(known)}. "
                f"Received: {name}={options[name]!r}"
            )
    return kind(**options)


def head(x, units, activation, name):
    """Returns the output layer of a model: dense, float32, named.

    Args:
        x: KerasTensor `(..., D)`.
        units: Width of the output.
        activation: Activation of the output.
        name: Name of the layer, hence of the output when exported.

    Returns:
        A float32 KerasTensor `(..., units)`.
    """
    # Float32 whatever the policy: losses and clients want full precision.
    return keras.layers.Dense(
        units, activation=activation, dtype="float32", name=name
    )(x)


def class_head(x, num_classes, activation):
    """Returns the output layer of a classifier, named after what it gives.

    Args:
        x: KerasTensor `(..., D)`.
        num_classes: Number of classes.
        activation: "softmax", "sigmoid", or None for logits.

    Returns:
        A float32 KerasTensor `(..., num_classes)`, named "probabilities",
        or "logits" where `activation` is None.

    Raises:
        ValueError: The activation is unknown, or a softmax over a single
            class.
    """
    num_classes = arguments.positive_integer("num_classes", num_classes)
    function = arguments.activation("classifier_activation", activation)
    if num_classes == 1 and function is keras.activations.softmax:
        raise ValueError(
            "A softmax over one class is always 1. For two classes pass "
            '`num_classes=2`, or `classifier_activation="sigmoid"` for one '
            "probability. Received: num_classes=1, "
            "classifier_activation='softmax'"
        )
    name = "logits" if activation is None else "probabilities"
    return head(x, num_classes, activation, name)


def pool(x, mode, padding_mask):
    """Returns one vector a sequence, padding left out."""
    arguments.one_of("pooling", mode, POOLINGS)
    return layers.SequencePooling(mode, dtype=x.dtype, name="pooling")(
        x, mask=padding_mask
    )

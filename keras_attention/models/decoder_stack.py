"""What the models that write share: blocks that look back, and logits."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import keras

from keras_attention import layers
from keras_attention.layers import arguments
from keras_attention.models.stack import EncoderStack, head
from keras_attention.ops import masks


@dataclasses.dataclass(frozen=True)
class DecoderStack(EncoderStack):
    """A stack of decoder blocks, by its hyper-parameters.

    Beside the fields of `EncoderStack`:

    Attributes:
        activation: Activation inside the feed-forward layers.
        positions: "rotary", "alibi", "learned", "sinusoidal" or None.
        num_key_value_heads: Number of key and value heads, K, which divides
            `num_heads`. Defaults to as many.
        sliding_window: A token sees itself and the `sliding_window - 1`
            tokens before it (an encoder as many behind it). None for all.
        tie_embeddings: Whether the table of the token embeddings is that of
            the output as well.

    Raises:
        ValueError: A number is out of range.

    Example:

    >>> DecoderStack(hidden_dim=32, num_heads=4).positions
    'rotary'
    """

    activation: Any = "gelu"
    positions: str | None = "rotary"
    num_key_value_heads: int | None = None
    sliding_window: int | None = None
    tie_embeddings: bool = True

    position_choices: ClassVar[tuple[str | None, ...]] = (
        "rotary",
        "alibi",
        "learned",
        "sinusoidal",
        None,
    )

    def __post_init__(self):
        """Checks the numbers before any layer is made."""
        super().__post_init__()
        arguments.head_groups(self.num_heads, self.num_key_value_heads)
        masks.check_window(self.sliding_window)

    def embed(self, ids, vocabulary_size, name="token_embedding"):
        """Embeds token ids.

        Args:
            ids: KerasTensor of ids `(B, T)`.
            vocabulary_size: Number of distinct ids.
            name: Name of the layer.

        Returns:
            A KerasTensor `(B, T, hidden_dim)`, and the layer.
        """
        # The sum with positions wants large vectors, logits a small table.
        scale = self.hidden_dim**0.5 if self.tie_embeddings else 1.0
        table = layers.ReversibleEmbedding(
            vocabulary_size,
            self.hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=1 / scale
            ),
            dtype=self.dtype,
            name=name,
        )
        return self.look_up(ids, table, f"{name}_scale"), table

    def look_up(self, ids, table, name):
        """Embeds more ids by the layer that `embed` returned."""
        x = table(ids)
        if not self.tie_embeddings:
            return x
        return keras.layers.Rescaling(
            self.hidden_dim**0.5, dtype=self.dtype, name=name
        )(x)

    def decode(
        self, embedded, padding_mask, encoded=None, encoded_mask=None, prefix=""
    ):
        """Returns the decoded sequence, in the functional API.

        Args:
            embedded: KerasTensor `(B, T, hidden_dim)`.
            padding_mask: Boolean KerasTensor `(B, T)`, True for tokens.
            encoded: KerasTensor `(B, S, hidden_dim)` that an encoder made,
                or None.
            encoded_mask: Boolean KerasTensor `(B, S)`, or None.
            prefix: Of the names of layers beside the blocks.

        Returns:
            A KerasTensor shaped like `embedded`.
        """
        x = self._begin(embedded, prefix)
        for index in range(self.num_layers):
            block = layers.DecoderBlock(
                num_heads=self.num_heads,
                intermediate_dim=self.intermediate_dim,
                dropout=self.dropout,
                activation=self.activation,
                normalize_first=self.normalize_first,
                attention=self._attention(),
                cross_attention=self._cross_attention(encoded),
                dtype=self.dtype,
                name=f"decoder_block_{index}",
            )
            x = block(
                x,
                encoded,
                decoder_padding_mask=padding_mask,
                encoder_padding_mask=encoded_mask,
            )
        return self._end(x, prefix)

    def logits(self, x, table):
        """Returns the logits of a decoded sequence, float32 and named so.

        Args:
            x: KerasTensor `(B, T, hidden_dim)`.
            table: The layer that `embed` returned.

        Returns:
            A KerasTensor `(B, T, V)`.
        """
        if not self.tie_embeddings:
            return head(x, table.input_dim, None, "logits")
        # A layer of its own, for the name.
        name = keras.layers.Activation("linear", dtype="float32", name="logits")
        return name(table(x, reverse=True))

    def _attention(self):
        in_heads = self.positions in ("rotary", "alibi")
        return self._heads(
            "attention",
            sliding_window=self.sliding_window,
            position=self.positions if in_heads else None,
        )

    def _cross_attention(self, encoded):
        # Positions of two sequences do not compare.
        return None if encoded is None else self._heads("cross_attention")

    def _heads(self, name, **options):
        return layers.MultiHeadAttention(
            self.num_heads,
            self.hidden_dim // self.num_heads,
            dropout=self.dropout,
            num_key_value_heads=self.num_key_value_heads,
            dtype=self.dtype,
            name=name,
            **options,
        )

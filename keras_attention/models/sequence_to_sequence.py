"""Models that read one sequence and write another."""

from __future__ import annotations

import keras

from keras_attention import layers
from keras_attention.models.decoder_stack import DecoderStack
from keras_attention.models.stack import encoder_stack
from keras_attention.models.text import check_ids


def sequence_to_sequence(
    source_vocabulary_size,
    target_vocabulary_size=None,
    *,
    pad_id=0,
    name="sequence_to_sequence",
    **stack,
):
    """Builds an encoder that reads and a decoder that writes.

    Train it on source ids and target ids that begin with a start token, with
    the target ids one place to the left as labels and
    `SparseCategoricalCrossentropy(from_logits=True)`. Write with
    `models.generate(model, start_token, ..., source_ids=...)`.

    Args:
        source_vocabulary_size: Number of distinct ids to read, padding
            included.
        target_vocabulary_size: Number of distinct ids to write. Defaults to
            the same ids as are read, with one table of embeddings for both.
        pad_id: Id that marks padding, in both sequences.
        name: Name of the model.
        **stack: Fields of `DecoderStack`, for the encoder and the decoder
            alike. Here `positions` defaults to "sinusoidal".

    Returns:
        A `keras.Model` from a dictionary of `source_ids` `(B, S)` and
        `target_ids` `(B, T)`, int32, to `logits`
        `(B, T, target_vocabulary_size)` float32.

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = sequence_to_sequence(50, 40, hidden_dim=16, num_heads=2)
    >>> sorted(model.input), model.output_shape
    (['source_ids', 'target_ids'], (None, None, 40))

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    blocks = encoder_stack({"positions": "sinusoidal", **stack}, DecoderStack)
    check_ids(source_vocabulary_size, pad_id, "source_vocabulary_size")
    if target_vocabulary_size is not None:
        check_ids(target_vocabulary_size, pad_id, "target_vocabulary_size")
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    source_mask = layers.PaddingMask(pad_id, name="source_padding_mask")(
        source_ids
    )
    target_mask = layers.PaddingMask(pad_id, name="target_padding_mask")(
        target_ids
    )
    if target_vocabulary_size is None:
        x, table = blocks.embed(source_ids, source_vocabulary_size)
        y = blocks.look_up(target_ids, table, "target_embedding_scale")
    else:
        x, _ = blocks.embed(
            source_ids, source_vocabulary_size, "source_embedding"
        )
        y, table = blocks.embed(
            target_ids, target_vocabulary_size, "target_embedding"
        )
    encoded = blocks(x, source_mask)
    y = blocks.decode(y, target_mask, encoded, source_mask, "decoder_")
    return keras.Model(
        {"source_ids": source_ids, "target_ids": target_ids},
        blocks.logits(y, table),
        name=name,
    )

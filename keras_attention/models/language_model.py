"""Language models: what comes next after the tokens so far."""

from __future__ import annotations

import keras

from keras_attention import layers
from keras_attention.models.decoder_stack import DecoderStack
from keras_attention.models.stack import encoder_stack
from keras_attention.models.text import check_ids


def causal_language_model(
    vocabulary_size, *, pad_id=0, name="causal_language_model", **stack
):
    """Builds a model that says, at each token, which one is next.

    Train it on ids and the same ids one place to the left, with
    `SparseCategoricalCrossentropy(from_logits=True)`: Keras leaves padding
    out of the loss. Write with `models.generate`, serve with
    `export.export_generator`.

    Args:
        vocabulary_size: Number of distinct ids, padding included.
        pad_id: Id that marks padding. It is never written.
        name: Name of the model.
        **stack: Fields of `DecoderStack`: `hidden_dim`, `num_layers`,
            `num_heads`, `num_key_value_heads`, `intermediate_dim`,
            `dropout`, `activation`, `normalize_first`, `positions`,
            `max_length`, `sliding_window`, `tie_embeddings`, `dtype`.

    Returns:
        A `keras.Model` from `token_ids` `(B, T)` int32 to `logits`
        `(B, T, vocabulary_size)` float32. Those at padding mean nothing.

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = causal_language_model(50, hidden_dim=16, num_heads=2)
    >>> list(model.output_names), model.output_shape
    (['logits'], (None, None, 50))

    Reference:
        [Language Models are Unsupervised Multitask
        Learners](https://openai.com/index/better-language-models/)
    """
    blocks = encoder_stack(stack, DecoderStack)
    vocabulary_size = check_ids(vocabulary_size, pad_id)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    mask = layers.PaddingMask(pad_id, name="padding_mask")(token_ids)
    x, table = blocks.embed(token_ids, vocabulary_size)
    x = blocks.decode(x, mask)
    return keras.Model(token_ids, blocks.logits(x, table), name=name)

"""Models that read token ids."""

from __future__ import annotations

import keras
import numpy as np

from keras_attention import layers
from keras_attention.layers import arguments
from keras_attention.models.stack import class_head, encoder_stack, pool


def encoder(vocabulary_size, *, pad_id=0, name="encoder", **stack):
    """Builds an encoder: token ids in, one vector a token out.

    Args:
        vocabulary_size: Number of distinct ids, padding included.
        pad_id: Id that marks padding. Padding is read from the ids inside
            the graph, so that a served model needs no second input.
        name: Name of the model.
        **stack: Fields of `EncoderStack`: `hidden_dim`, `num_layers`,
            `num_heads`, `intermediate_dim`, `dropout`, `activation`,
            `normalize_first`, `positions`, `max_length`, `dtype`.

    Returns:
        A `keras.Model` from `token_ids` `(B, T)` int32 to `sequence_output`
        `(B, T, hidden_dim)` float32. The vectors at padding mean nothing.

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = encoder(vocabulary_size=50, hidden_dim=16, num_heads=2)
    >>> model.output_shape
    (None, None, 16)

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    token_ids, x, _ = _encode(vocabulary_size, pad_id, encoder_stack(stack))
    output = keras.layers.Activation(
        "linear", dtype="float32", name="sequence_output"
    )(x)
    return keras.Model(token_ids, output, name=name)


def text_classifier(
    vocabulary_size,
    num_classes,
    *,
    pad_id=0,
    pooling="mean",
    classifier_activation="softmax",
    name="text_classifier",
    **stack,
):
    """Builds a classifier of whole texts, given as token ids.

    Args:
        vocabulary_size: Number of distinct ids, padding included.
        num_classes: Number of classes.
        pad_id: Id that marks padding.
        pooling: How vectors become one: "mean", "max" or "first".
        classifier_activation: "softmax", "sigmoid", or None for logits.
        name: Name of the model.
        **stack: Fields of `EncoderStack`.

    Returns:
        A `keras.Model` from `token_ids` `(B, T)` int32 to `probabilities`
        `(B, num_classes)` float32 (or `logits`).

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = text_classifier(50, 3, hidden_dim=16, num_heads=2)
    >>> list(model.output_names), model.output_shape
    (['probabilities'], (None, 3))
    """
    token_ids, x, mask = _encode(vocabulary_size, pad_id, encoder_stack(stack))
    x = pool(x, pooling, mask)
    output = class_head(x, num_classes, classifier_activation)
    return keras.Model(token_ids, output, name=name)


def token_classifier(
    vocabulary_size,
    num_classes,
    *,
    pad_id=0,
    classifier_activation="softmax",
    name="token_classifier",
    **stack,
):
    """Builds a tagger: one class for each token.

    Args:
        vocabulary_size: Number of distinct ids, padding included.
        num_classes: Number of tags.
        pad_id: Id that marks padding.
        classifier_activation: "softmax", "sigmoid", or None for logits.
        name: Name of the model.
        **stack: Fields of `EncoderStack`.

    Returns:
        A `keras.Model` from `token_ids` `(B, T)` int32 to `probabilities`
        `(B, T, num_classes)` float32 (or `logits`). The values at padding
        mean nothing: leave them out of the loss with `sample_weight`.

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = token_classifier(50, 4, hidden_dim=16, num_heads=2)
    >>> model.output_shape
    (None, None, 4)
    """
    token_ids, x, _ = _encode(vocabulary_size, pad_id, encoder_stack(stack))
    output = class_head(x, num_classes, classifier_activation)
    return keras.Model(token_ids, output, name=name)


def check_ids(vocabulary_size, pad_id, name="vocabulary_size"):
    """Returns the number of ids, if padding is among them.

    Args:
        vocabulary_size: Number of distinct ids, padding included.
        pad_id: Id that marks padding.
        name: Name of the first argument, for the errors.

    Raises:
        ValueError: A number is out of range.
    """
    vocabulary_size = arguments.positive_integer(name, vocabulary_size)
    is_integer = isinstance(pad_id, (int, np.integer))
    is_id = is_integer and not isinstance(pad_id, bool)
    if not is_id or not 0 <= pad_id < vocabulary_size:
        raise ValueError(
            "`pad_id` must be an id of the vocabulary, from 0 to "
            f"{vocabulary_size - 1}. Received: pad_id={pad_id}, "
            f"{name}={vocabulary_size}"
        )
    return vocabulary_size


def _encode(vocabulary_size, pad_id, stack):
    """Returns the input, the encoded sequence and the padding mask."""
    vocabulary_size = check_ids(vocabulary_size, pad_id)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    mask = layers.PaddingMask(pad_id, name="padding_mask")(token_ids)
    # As large as the positions added to it, which would drown it otherwise.
    embedded = keras.layers.Embedding(
        vocabulary_size,
        stack.hidden_dim,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        dtype=stack.dtype,
        name="token_embedding",
    )(token_ids)
    return token_ids, stack(embedded, mask), mask

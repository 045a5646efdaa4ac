"""Models that read continuous features, one vector a time step."""

from __future__ import annotations

import keras

from keras_attention import layers
from keras_attention.layers import arguments
from keras_attention.layers.hide_padding import HidePadding
from keras_attention.models.stack import (
    POOLINGS,
    class_head,
    encoder_stack,
    head,
    pool,
)


def sequence_classifier(
    num_features,
    num_classes,
    *,
    pad_value=0.0,
    pooling="mean",
    classifier_activation="softmax",
    name="sequence_classifier",
    **stack,
):
    """Builds a classifier of sequences of feature vectors.

    Args:
        num_features: Number of features at each step, F.
        num_classes: Number of classes.
        pad_value: A step whose features all equal this value is padding. It
            may be NaN. None where nothing is padding.
        pooling: How steps become one vector: "mean", "max" or "first".
        classifier_activation: "softmax", "sigmoid", or None for logits.
        name: Name of the model.
        **stack: Fields of `EncoderStack`.

    Returns:
        A `keras.Model` from `features` `(B, T, F)` float32 to
        `probabilities` `(B, num_classes)` float32 (or `logits`).

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = sequence_classifier(3, 5, hidden_dim=16, num_heads=2)
    >>> model.input_shape, model.output_shape
    ((None, None, 3), (None, 5))
    """
    features, x, mask = _encode(num_features, pad_value, encoder_stack(stack))
    x = pool(x, pooling, mask)
    output = class_head(x, num_classes, classifier_activation)
    return keras.Model(features, output, name=name)


def sequence_regressor(
    num_features,
    num_outputs=1,
    *,
    return_sequences=False,
    pad_value=0.0,
    pooling="mean",
    name="sequence_regressor",
    **stack,
):
    """Builds a regressor of sequences of feature vectors.

    Args:
        num_features: Number of features at each step, F.
        num_outputs: Number of values to predict.
        return_sequences: Whether to predict at each step instead of once a
            sequence.
        pad_value: A step whose features all equal this value is padding. It
            may be NaN. None where nothing is padding.
        pooling: How steps become one vector: "mean", "max" or "first".
        name: Name of the model.
        **stack: Fields of `EncoderStack`.

    Returns:
        A `keras.Model` from `features` `(B, T, F)` float32 to `values`
        `(B, num_outputs)` float32, or `(B, T, num_outputs)` with
        `return_sequences`.

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range.

    Example:

    >>> model = sequence_regressor(3, hidden_dim=16, num_heads=2)
    >>> list(model.output_names), model.output_shape
    (['values'], (None, 1))
    """
    num_outputs = arguments.positive_integer("num_outputs", num_outputs)
    arguments.one_of("pooling", pooling, POOLINGS)
    features, x, mask = _encode(num_features, pad_value, encoder_stack(stack))
    if not return_sequences:
        x = pool(x, pooling, mask)
    return keras.Model(
        features, head(x, num_outputs, None, "values"), name=name
    )


def _encode(num_features, pad_value, stack):
    """Returns the input, the encoded sequence and the padding mask."""
    num_features = arguments.positive_integer("num_features", num_features)
    features = keras.Input((None, num_features), name="features")
    mask = None
    if pad_value is not None:
        pad_value = arguments.number_or_nan("pad_value", pad_value)
        mask = layers.PaddingMask(pad_value, name="padding_mask")(features)
    # NaN at padding would reach the gradient of the projection.
    shown = HidePadding(pad_value, dtype=stack.dtype, name="hide_padding")(
        features
    )
    embedded = keras.layers.Dense(
        stack.hidden_dim, dtype=stack.dtype, name="feature_projection"
    )(shown)
    return features, stack(embedded, mask), mask

"""Models that read images as sequences of patches."""

from __future__ import annotations

import dataclasses

import keras

from keras_attention import layers
from keras_attention.layers import arguments
from keras_attention.models.stack import class_head, encoder_stack, pool


def image_classifier(
    image_shape,
    patch_size,
    num_classes,
    *,
    pooling="mean",
    classifier_activation="softmax",
    name="image_classifier",
    **stack,
):
    """Builds a classifier of images, which it reads patch by patch.

    Args:
        image_shape: `(height, width, channels)` of the images.
        patch_size: Height and width of a patch, an integer or a pair. It
            divides the size of the image.
        num_classes: Number of classes.
        pooling: How patches become one vector: "mean", "max" or "first".
        classifier_activation: "softmax", "sigmoid", or None for logits.
        name: Name of the model.
        **stack: Fields of `EncoderStack`. Here `positions` defaults to
            "learned", and `max_length` to the number of patches.

    Returns:
        A `keras.Model` from `image` `(B, height, width, channels)` float32
        to `probabilities` `(B, num_classes)` float32 (or `logits`).

    Raises:
        TypeError: An unknown keyword argument.
        ValueError: A number is out of range, or patches do not tile the
            image.

    Example:

    >>> model = image_classifier((8, 8, 1), 2, 10, hidden_dim=16)
    >>> model.input_shape, model.output_shape
    ((None, 8, 8, 1), (None, 10))

    Reference:
        [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929)
    """
    shape = arguments.feature_shape("image_shape", image_shape)
    if shape is None or len(shape) != 3:
        raise ValueError(
            "`image_shape` must be (height, width, channels), all known. "
            f"Received: image_shape={image_shape}"
        )
    blocks = encoder_stack({"positions": "learned", **stack})
    image = keras.Input(shape, name="image")
    patches = layers.PatchEmbedding(
        patch_size,
        blocks.hidden_dim,
        dtype=blocks.dtype,
        name="patch_embedding",
    )(image)
    if "max_length" not in stack:
        blocks = dataclasses.replace(blocks, max_length=patches.shape[1])
    x = blocks(patches)
    output = class_head(
        pool(x, pooling, None), num_classes, classifier_activation
    )
    return keras.Model(image, output, name=name)

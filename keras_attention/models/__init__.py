"""Factories of functional Keras models.

Each returns a plain `keras.Model` with named inputs and outputs, and blocks
named `encoder_block_0`, `encoder_block_1`, ... A saved one loads wherever
`import keras_attention` has run.
"""

from keras_attention.models.images import image_classifier
from keras_attention.models.scores import attention_scores_model
from keras_attention.models.sequences import (
    sequence_classifier,
    sequence_regressor,
)
from keras_attention.models.stack import EncoderStack
from keras_attention.models.text import (
    encoder,
    text_classifier,
    token_classifier,
)

__all__ = [
    "EncoderStack",
    "attention_scores_model",
    "encoder",
    "image_classifier",
    "sequence_classifier",
    "sequence_regressor",
    "text_classifier",
    "token_classifier",
]

"""Factories of functional Keras models.

Each returns a plain `keras.Model` with named inputs and outputs, and blocks
named `encoder_block_0`, `encoder_block_1`, ... A saved one loads wherever
`import keras_attention` has run. Those that write do so by `generate`.
"""

from keras_attention.models.decoder_stack import DecoderStack
from keras_attention.models.generation import generate, stream
from keras_attention.models.generation_settings import GenerationSettings
from keras_attention.models.images import image_classifier
from keras_attention.models.language_model import causal_language_model
from keras_attention.models.scores import attention_scores_model
from keras_attention.models.sequence_to_sequence import sequence_to_sequence
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
    "DecoderStack",
    "EncoderStack",
    "GenerationSettings",
    "attention_scores_model",
    "causal_language_model",
    "encoder",
    "generate",
    "image_classifier",
    "sequence_classifier",
    "sequence_regressor",
    "sequence_to_sequence",
    "stream",
    "text_classifier",
    "token_classifier",
]

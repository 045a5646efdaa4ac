"""Keras's own tests of its reversible embedding, run on ours."""

import keras
from support import peer_suite

from keras_attention.layers import ReversibleEmbedding

ReversibleEmbeddingTest = peer_suite.load(
    keras,
    "src/layers/core/reversible_embedding_test.py",
    "ReversibleEmbeddingTest",
    {"ReversibleEmbedding": ReversibleEmbedding},
)

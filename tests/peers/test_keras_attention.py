"""Keras's own tests of its layers on one list of inputs, run on ours."""

import keras
from support import peer_suite

from keras_attention.layers import AdditiveAttention, Attention

PRIVATE_PARTS = "calls Keras's private `_calculate_scores` and its kin"

AttentionTest = peer_suite.load(
    keras,
    "src/layers/attention/attention_test.py",
    "AttentionTest",
    {"Attention": Attention},
    {"test_attention_calculate_score": PRIVATE_PARTS},
)

AdditiveAttentionTest = peer_suite.load(
    keras,
    "src/layers/attention/additive_attention_test.py",
    "AdditiveAttentionTest",
    {"AdditiveAttention": AdditiveAttention},
    left_out={},
)

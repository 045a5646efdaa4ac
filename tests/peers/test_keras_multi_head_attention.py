"""Keras's own tests of its layer, run on ours."""

import keras
from support import peer_suite

from keras_attention.layers import MultiHeadAttention

PRIVATE_PROJECTIONS = (
    "reads `_query_dense` and its kin; tests/layers/test_multi_head_attention"
    ".py holds the same facts on `query_dense`"
)
PRIVATE_HOOK = "calls or overrides Keras's private `_compute_attention`"

LEFT_OUT = {
    "test_initializer": PRIVATE_PROJECTIONS,
    "test_mha_constraints": PRIVATE_PROJECTIONS,
    "test_dtype_policy_map": PRIVATE_PROJECTIONS,
    "test_quantize_int8": PRIVATE_PROJECTIONS,
    "test_causal_only_skipped_for_subclass": PRIVATE_HOOK,
    "test_compute_attention_combines_causal_and_explicit_mask": PRIVATE_HOOK,
    "test_sliding_window_serialization": "reads `_sliding_window`",
    "test_flash_attention_with_errors": (
        "expects flash attention to refuse dropout, which works here"
    ),
    "test_basics_with_flash_attention": (
        "needs the fused kernels of the JAX or torch backend"
    ),
}

MultiHeadAttentionTest = peer_suite.load(
    keras,
    "src/layers/attention/multi_head_attention_test.py",
    "MultiHeadAttentionTest",
    {"MultiHeadAttention": MultiHeadAttention},
    LEFT_OUT,
)

"""Keras's own tests of its grouped-query layer, run on ours."""

import keras
from support import peer_suite

from keras_attention.layers import GroupedQueryAttention

PRIVATE_HOOK = "calls or overrides Keras's private `_compute_attention`"

LEFT_OUT = {
    "test_causal_only_skipped_for_subclass": PRIVATE_HOOK,
    "test_compute_attention_combines_causal_and_explicit_mask": PRIVATE_HOOK,
    "test_flash_attention_with_errors": (
        "expects flash attention to refuse dropout, which works here"
    ),
    "test_basics_with_flash_attention": (
        "needs the fused kernels of the JAX or torch backend"
    ),
}

GroupedQueryAttentionTest = peer_suite.load(
    keras,
    "src/layers/attention/grouped_query_attention_test.py",
    "GroupedQueryAttentionTest",
    {"GroupedQueryAttention": GroupedQueryAttention},
    LEFT_OUT,
)

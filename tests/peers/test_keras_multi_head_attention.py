"""Keras's own tests of its layer, run on ours."""

import keras
from support import peer_suite

from keras_attention.layers import MultiHeadAttention

PRIVATE_NAMES = (
    "reads `_query_dense` and its kin: runs below, under these names"
)
PRIVATE_HOOK = "calls or overrides Keras's private `_compute_attention`"

LEFT_OUT = {
    "test_initializer": PRIVATE_NAMES,
    "test_mha_constraints": PRIVATE_NAMES,
    "test_dtype_policy_map": PRIVATE_NAMES,
    "test_quantize_int8": PRIVATE_NAMES,
    "test_causal_only_skipped_for_subclass": PRIVATE_HOOK,
    "test_compute_attention_combines_causal_and_explicit_mask": PRIVATE_HOOK,
    "test_sliding_window_serialization": PRIVATE_NAMES,
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


def _alias(name):
    return property(lambda layer: getattr(layer, name))


class PrivatelyNamed(MultiHeadAttention):
    """Our layer, with Keras's private names for its public parts."""

    _query_dense = _alias("query_dense")
    _key_dense = _alias("key_dense")
    _value_dense = _alias("value_dense")
    _output_dense = _alias("output_dense")
    _sliding_window = _alias("sliding_window")


PrivatelyNamedTest = peer_suite.load(
    keras,
    "src/layers/attention/multi_head_attention_test.py",
    "MultiHeadAttentionTest",
    {"MultiHeadAttention": PrivatelyNamed},
    only=[name for name, why in LEFT_OUT.items() if why == PRIVATE_NAMES],
)

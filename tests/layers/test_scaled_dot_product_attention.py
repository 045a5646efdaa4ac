import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import ScaledDotProductAttention

B, N, K, T, S, H, HV = 2, 6, 3, 4, 5, 8, 7


def random_inputs(*shapes):
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@pytest.fixture
def inputs():
    return random_inputs((B, T, H), (B, S, H), (B, S, HV))


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_equals_the_reference(inputs, policy):
    layer = ScaledDotProductAttention(scale=0.4, sliding_window=3, dtype=policy)
    dtype = layer.compute_dtype
    inputs = [ops.cast(x, dtype) for x in inputs]
    options = {
        "attention_mask": np.random.default_rng(5).random((B, T, S)) < 0.7,
        "attention_bias": to_numpy(
            ops.cast(random_inputs((B, T, S))[0], dtype)
        ),
        "query_mask": np.arange(T) < [[2], [4]],
        "key_mask": np.arange(S) < [[5], [4]],
        "use_causal_mask": True,
    }
    context, scores = layer(*inputs, **options, return_attention_scores=True)
    expected = reference.dot_product_attention(
        *[to_numpy(x) for x in inputs],
        scale=0.4,
        sliding_window=3,
        **options,
    )
    layer_contract.assert_close(context, expected[0], dtype)
    layer_contract.assert_close(scores, expected[1], dtype)


def test_default_scale(inputs):
    context, scores = ScaledDotProductAttention()(
        *inputs, return_attention_scores=True
    )
    expected = reference.dot_product_attention(*inputs)
    layer_contract.assert_close(context, expected[0], "float32")
    layer_contract.assert_close(scores, expected[1], "float32")


def test_grouped_heads():
    inputs = random_inputs((B, N, T, H), (B, K, S, H), (B, K, S, HV))
    mask = np.random.default_rng(5).random((B, N, T, S)) < 0.7
    context = ScaledDotProductAttention()(*inputs, attention_mask=mask)
    expected, _ = reference.dot_product_attention(*inputs, attention_mask=mask)
    layer_contract.assert_close(context, expected, "float32")


def test_without_batch():
    inputs = random_inputs((T, H), (S, H), (S, HV))
    layer = ScaledDotProductAttention()
    expected, _ = reference.dot_product_attention(*inputs)
    layer_contract.assert_close(layer(*inputs), expected, "float32")


def test_scores_that_overflow_float16():
    query = np.full((B, T, 64), 60.0)
    layer = ScaledDotProductAttention(dtype="float16")
    context, scores = layer(query, query, query, return_attention_scores=True)
    layer_contract.assert_close(context, query, "float16")
    layer_contract.assert_close(scores, np.full((B, T, T), 1 / T), "float16")


def test_no_weights(inputs):
    layer = ScaledDotProductAttention(dropout=0.5)
    layer(*inputs)
    assert layer.weights == []


def test_config():
    arguments = {
        "dropout": 0.3,
        "scale": 0.5,
        "sliding_window": 4,
        "flash_attention": False,
        "seed": 5,
        "name": "attend",
    }
    layer = ScaledDotProductAttention(**arguments, dtype="mixed_bfloat16")
    layer_contract.assert_round_trip(layer, **arguments)
    assert layer_contract.rebuilt(layer).dtype_policy == layer.dtype_policy


def test_rebuilt_equals(inputs):
    layer = ScaledDotProductAttention(scale=0.5, sliding_window=2)
    layer_contract.assert_same_after_rebuild(layer, *inputs)


def test_flash_attention_is_handed_on(inputs):
    layer = ScaledDotProductAttention(flash_attention=True)
    with pytest.raises(ValueError, match="flash_attention=True"):
        layer(*inputs, return_attention_scores=True)


@pytest.mark.parametrize("window", [0, -2, 1.5, True])
def test_window_out_of_range(window):
    with pytest.raises(ValueError, match=f"sliding_window={window}"):
        ScaledDotProductAttention(sliding_window=window)


def test_widths_that_differ(inputs):
    query, key, value = inputs
    with pytest.raises(ValueError, match=r"query.shape=\(2, 4, 6\)"):
        ScaledDotProductAttention()(query[..., :6], key, value)


def test_seed_generator_is_tracked_for_saving():
    layer = ScaledDotProductAttention(dropout=0.5)
    assert len(layer.variables) == 1
    assert isinstance(layer.variables[0], keras.Variable)

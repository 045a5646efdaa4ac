import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import MultiplicativeAttention

B, T, S, D, DK, DV = 2, 3, 5, 8, 4, 6


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    shapes = [(B, T, D), (B, S, D), (B, S, DV)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("score", ["dot", "general"])
def test_equals_the_reference(inputs, policy, score):
    layer = MultiplicativeAttention(score, dtype=policy)
    dtype = layer.compute_dtype
    query, key, value = (ops.cast(x, dtype) for x in inputs)
    weight = None
    if score == "general":
        key = key[..., :DK]
        layer.build(query.shape, key.shape, value.shape)
        layer_contract.randomize(layer, scale=0.1)
        weight = to_numpy(layer.query_dense.kernel)
    options = {
        "attention_mask": np.random.default_rng(5).random((B, T, S)) < 0.7,
        "key_mask": np.arange(S) < [[5], [4]],
    }
    context, scores = layer(
        query, key, value, **options, return_attention_scores=True
    )
    expected = reference.attention_from_scores(
        reference.multiplicative_scores(to_numpy(query), to_numpy(key), weight),
        to_numpy(value),
        options["attention_mask"] & options["key_mask"][:, None],
    )
    layer_contract.assert_close(context, expected[0], dtype)
    layer_contract.assert_close(scores, expected[1], dtype)


@pytest.mark.parametrize("score, count", [("dot", 0), ("general", D * DK)])
def test_weights_exist_once_built(score, count):
    layer = MultiplicativeAttention(score)
    width = D if score == "dot" else DK
    layer.build((B, T, D), (B, S, width), (B, S, DV))
    assert layer.count_params() == count


def test_weights_in_the_variable_dtype():
    layer = MultiplicativeAttention("general", dtype="mixed_float16")
    layer.build((B, T, D), (B, S, DK), (B, S, DV))
    assert layer.query_dense.kernel.dtype == "float32"


def test_config():
    arguments = {"score": "general", "dropout": 0.3, "seed": 5, "name": "luong"}
    layer = MultiplicativeAttention(
        kernel_initializer=keras.initializers.HeNormal(seed=2),
        kernel_regularizer=keras.regularizers.L2(0.1),
        kernel_constraint=keras.constraints.MaxNorm(2.0),
        dtype="mixed_bfloat16",
        **arguments,
    )
    layer_contract.assert_round_trip(layer, **arguments)
    back = layer_contract.rebuilt(layer)
    assert back.kernel_initializer.seed == 2
    assert back.kernel_regularizer.get_config() == {"l2": pytest.approx(0.1)}
    assert back.kernel_constraint.max_value == 2.0
    assert back.dtype_policy == layer.dtype_policy


def test_regularizer_and_constraint_reach_the_kernel(inputs):
    layer = MultiplicativeAttention(
        "general", kernel_regularizer="l2", kernel_constraint="non_neg"
    )
    layer(*inputs)
    assert len(layer.losses) == 1
    assert isinstance(
        layer.query_dense.kernel.constraint, keras.constraints.NonNeg
    )


@pytest.mark.parametrize("score", ["dot", "general"])
def test_rebuilt_equals(inputs, score):
    layer = MultiplicativeAttention(score)
    layer_contract.assert_same_after_rebuild(layer, *inputs)


def test_unknown_score():
    with pytest.raises(ValueError, match="score.*'dot'.*score='concat'"):
        MultiplicativeAttention("concat")


def test_dot_needs_equal_widths(inputs):
    query, key, value = inputs
    with pytest.raises(ValueError, match=r"key.shape=\(2, 5, 4\)"):
        MultiplicativeAttention("dot")(query, key[..., :DK], value)

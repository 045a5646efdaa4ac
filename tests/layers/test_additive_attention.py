import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.arrays import normal
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import AdditiveAttention

B, T, S, D, DK, DV, U = 2, 3, 5, 8, 4, 6, 7


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    shapes = [(B, T, D), (B, S, DK), (B, S, DV)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_equals_the_reference(inputs, policy):
    layer = AdditiveAttention(U, dtype=policy)
    dtype = layer.compute_dtype
    query, key, value = (ops.cast(x, dtype) for x in inputs)
    layer.build(query.shape, key.shape, value.shape)
    layer_contract.randomize(layer)
    options = {
        "attention_mask": np.random.default_rng(5).random((B, T, S)) < 0.7,
        "key_mask": np.arange(S) < [[5], [4]],
    }
    bias = np.linspace(-1, 1, T * S).reshape(T, S).astype("float32")
    context, scores = layer(
        query,
        key,
        value,
        **options,
        attention_bias=bias,
        return_attention_scores=True,
    )
    scored = reference.additive_scores(
        to_numpy(query) @ to_numpy(layer.query_dense.kernel),
        to_numpy(key) @ to_numpy(layer.key_dense.kernel),
        to_numpy(layer.scale),
    )
    expected = reference.attention_from_scores(
        scored + bias,
        to_numpy(value),
        options["attention_mask"] & options["key_mask"][:, None],
    )
    layer_contract.assert_close(context, expected[0], dtype)
    layer_contract.assert_close(scores, expected[1], dtype)


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("use_scale", [False, True])
def test_equals_the_reference_without_projections(use_scale, policy):
    query, key, value = normal((B, T, D), (B, S, D), (B, S, DV))
    layer = AdditiveAttention(use_scale=use_scale, dtype=policy)
    dtype = layer.compute_dtype
    layer.build([query.shape, value.shape, key.shape])
    layer_contract.randomize(layer)
    mask = [np.ones((B, T), bool), np.arange(S) < [[5], [4]]]
    context, scores = layer(
        [ops.cast(x, dtype) for x in (query, value, key)],
        mask,
        return_attention_scores=True,
    )
    scale = to_numpy(layer.scale) if use_scale else 1.0
    expected = reference.attention_from_scores(
        reference.additive_scores(query, key, scale), value, mask[1][:, None]
    )
    layer_contract.assert_close(context, expected[0], dtype)
    layer_contract.assert_close(scores, expected[1], dtype)


def test_widths_differ_with_projections_alone():
    query, key = normal((B, T, D), (B, S, DK))
    assert AdditiveAttention(U)(query, key, key).shape == (B, T, DK)
    with pytest.raises(ValueError, match=r"key.shape=\(2, 5, 4\)"):
        AdditiveAttention()([query, key])


def test_weights_exist_once_built():
    layer = AdditiveAttention(U, dtype="mixed_float16")
    layer.build((B, T, D), (B, S, DK), (B, S, DV))
    assert layer.count_params() == D * U + DK * U + U
    assert {w.dtype for w in layer.weights} == {"float32"}


def test_projections_start_apart():
    layer = AdditiveAttention(U)
    layer.build((B, T, D), (B, S, D), (B, S, DV))
    kernels = layer.query_dense.kernel, layer.key_dense.kernel
    assert (to_numpy(kernels[0]) != to_numpy(kernels[1])).any()


def test_config():
    arguments = {"units": U, "dropout": 0.3, "seed": 5, "name": "bahdanau"}
    layer = AdditiveAttention(
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


def test_regularizer_and_constraint_reach_every_weight(inputs):
    layer = AdditiveAttention(
        U, kernel_regularizer="l2", kernel_constraint="non_neg"
    )
    layer(*inputs)
    assert len(layer.losses) == 3
    for weight in layer.weights:
        assert isinstance(weight.constraint, keras.constraints.NonNeg)


def test_rebuilt_equals(inputs):
    layer_contract.assert_same_after_rebuild(AdditiveAttention(U), *inputs)


@pytest.mark.parametrize("units", [0, -3, 2.5, "many"])
def test_units_out_of_range(units):
    with pytest.raises(ValueError, match=f"units.*units={units!r}"):
        AdditiveAttention(units)


def test_grouped_heads_are_refused():
    query, key = np.ones((B, 4, T, D)), np.ones((B, 2, S, D))
    with pytest.raises(ValueError, match=r"key.shape=\(2, 2, 5, 8\)"):
        AdditiveAttention(U)(query, key, key)

"""Multi-head attention comes back from every kind of file and config."""

import json

import keras
import numpy as np
import pytest
from support import layer_contract
from support.arrays import normal
from support.layer_contract import rebuilt, to_numpy
from support.peers import needs

from keras_attention.layers import MultiHeadAttention

B, T, S, D, DV = 2, 4, 5, 16, 8
QUERY, VALUE = normal((B, T, D), (B, S, DV))

NOT_DEFAULT = {
    "num_heads": 4,
    "key_dim": 6,
    "value_dim": 5,
    "dropout": 0.3,
    "use_bias": False,
    "output_shape": (3, 7),
    "attention_axes": (1,),
    "sliding_window": 3,
    "flash_attention": False,
    "kernel_initializer": keras.initializers.HeNormal(seed=4),
    "bias_initializer": keras.initializers.Constant(0.5),
    "kernel_regularizer": keras.regularizers.L1L2(0.01, 0.02),
    "bias_regularizer": keras.regularizers.L2(0.03),
    "activity_regularizer": keras.regularizers.L1(0.04),
    "kernel_constraint": keras.constraints.MaxNorm(2.0, axis=1),
    "bias_constraint": keras.constraints.NonNeg(),
    "use_gate": True,
    "seed": 9,
    "num_key_value_heads": 2,
    "position": "rotary",
    "qk_norm": True,
    "name": "attention",
    "dtype": "mixed_bfloat16",
    "trainable": False,
}


def small_model(layer_class, **options):
    """A model that holds an attention layer at two depths."""
    query, value = keras.Input((T, D)), keras.Input((S, DV))
    x = layer_class(3, 6, name="outer", **options)(query, value)
    inside = keras.Input((T, D))
    inner = keras.Model(
        inside, layer_class(2, 4, name="inner", **options)(inside, inside)
    )
    return keras.Model([query, value], inner(x))


def test_configuration_holds_every_argument():
    layer = MultiHeadAttention(**NOT_DEFAULT)
    config = layer.get_config()
    assert set(NOT_DEFAULT) == set(config)
    default = MultiHeadAttention(8, 3).get_config()
    assert [k for k in config if config[k] == default.get(k)] == []
    text = json.dumps(config)
    back = MultiHeadAttention.from_config(json.loads(text))
    assert json.dumps(back.get_config()) == text
    assert back.get_config() == config


def test_equal_after_a_trip_through_json():
    options = {**NOT_DEFAULT, "dtype": "float32", "attention_axes": -2}
    layer = MultiHeadAttention(**options)
    layer(QUERY, VALUE)
    layer_contract.randomize(layer)
    layer_contract.assert_same_after_rebuild(
        layer, QUERY, VALUE, return_attention_scores=True
    )


def test_numpy_numbers_become_plain_ones():
    layer = MultiHeadAttention(
        np.int64(4),
        np.int32(6),
        value_dim=np.int64(5),
        dropout=np.float32(0.5),
        output_shape=np.int64(7),
        attention_axes=np.int64(1),
        sliding_window=np.int64(3),
        num_key_value_heads=np.int64(2),
    )
    json.dumps(layer.get_config())
    json.dumps(MultiHeadAttention(np.int64(4), 6).get_config())


@pytest.mark.parametrize("options", [{}, {"use_gate": True, "dropout": 0.2}])
@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_loads_what_a_model_with_the_layer_of_keras_wrote(
    tmp_path, options, suffix
):
    needs(keras.layers.MultiHeadAttention, *options)
    theirs = small_model(keras.layers.MultiHeadAttention, **options)
    path = tmp_path / f"model{suffix}"
    theirs.save_weights(path) if suffix == ".weights.h5" else theirs.save(path)
    ours = small_model(MultiHeadAttention, **options)
    before = to_numpy(ours([QUERY, VALUE]))
    ours.load_weights(path)
    after = to_numpy(ours([QUERY, VALUE]))
    assert np.abs(before - after).max() > 0.01
    np.testing.assert_allclose(
        after, to_numpy(theirs([QUERY, VALUE])), atol=1e-5
    )


def test_keras_loads_the_weights_that_ours_wrote(tmp_path):
    ours = small_model(MultiHeadAttention)
    ours.save_weights(tmp_path / "ours.weights.h5")
    theirs = small_model(keras.layers.MultiHeadAttention)
    theirs.load_weights(tmp_path / "ours.weights.h5")
    np.testing.assert_allclose(
        theirs([QUERY, VALUE]), ours([QUERY, VALUE]), atol=1e-5
    )


def test_a_saved_model_comes_back_equal(tmp_path):
    model = small_model(MultiHeadAttention, num_key_value_heads=1, seed=3)
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(back.get_layer("outer"), MultiHeadAttention)
    np.testing.assert_array_equal(back([QUERY, VALUE]), model([QUERY, VALUE]))


def test_weights_exist_before_the_first_call_and_stay():
    layer = MultiHeadAttention(3, 6, dropout=0.5, use_gate=True)
    layer.build((None, None, D), (None, None, DV))
    before = list(layer.variables)
    # Kernel and bias of five projections, and the state of the dropout.
    assert len(before) == 11
    layer(QUERY, VALUE, training=True)
    assert all(a is b for a, b in zip(before, layer.variables, strict=True))


def test_a_shared_layer_stays_shared(tmp_path):
    shared = MultiHeadAttention(2, 6)
    x = keras.Input((T, D))
    model = keras.Model(x, shared(shared(x, x), x))
    assert len(model.weights) == 8
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert len(back.weights) == 8
    np.testing.assert_array_equal(back(QUERY), model(QUERY))


def test_a_clone_has_the_same_shapes_and_its_own_values():
    model = small_model(MultiHeadAttention, use_gate=True)
    clone = keras.models.clone_model(model)
    for one, other in zip(model.weights, clone.weights, strict=True):
        assert one.shape == other.shape and one is not other
    kernels = [w for w in clone.weights if w.name == "kernel"]
    originals = [w for w in model.weights if w.name == "kernel"]
    for one, other in zip(originals, kernels, strict=True):
        assert np.abs(to_numpy(one) - to_numpy(other)).max() > 0.01


def test_the_policy_of_a_layer_survives_another_global_one():
    layer = MultiHeadAttention(2, 6, dtype="mixed_bfloat16")
    keras.config.set_dtype_policy("mixed_float16")
    back = rebuilt(layer)
    assert back(QUERY, VALUE).dtype == "bfloat16"
    keras.config.set_dtype_policy("float32")
    assert rebuilt(back)(QUERY, VALUE).dtype == "bfloat16"


def test_policies_by_path():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["attention/query"] = "mixed_bfloat16"
    policies["attention/value"] = keras.dtype_policies.QuantizedDTypePolicy(
        "int8", "float32"
    )
    layer = MultiHeadAttention(2, 6, dtype=policies, name="attention")
    output = layer(QUERY, VALUE)
    assert output.dtype == "float32"
    assert layer.query_dense.compute_dtype == "bfloat16"
    assert layer.key_dense.compute_dtype == "float32"
    assert layer.value_dense.quantization_mode == "int8"
    back = rebuilt(layer)
    back.set_weights(layer.get_weights())
    np.testing.assert_array_equal(back(QUERY, VALUE), output)


@pytest.mark.parametrize("use_gate", [False, True])
def test_int8(use_gate, tmp_path):
    query, value = keras.Input((T, D)), keras.Input((S, DV))
    layer = MultiHeadAttention(2, 6, use_gate=use_gate, name="attention")
    model = keras.Model([query, value], layer(query, value))
    expected = to_numpy(layer(QUERY, VALUE))
    model.quantize("int8")
    projections = [layer.query_dense, layer.key_dense, layer.value_dense]
    assert all(p.quantization_mode == "int8" for p in projections)
    assert layer.output_dense.quantization_mode == "int8"
    output = to_numpy(layer(QUERY, VALUE))
    assert 0 < np.abs(output - expected).max() < 0.1 * np.abs(expected).max()
    # As with Keras's layer, the configuration is that of the float model.
    model.save_weights(tmp_path / "int8.weights.h5")
    back = keras.models.clone_model(model)
    back.quantize("int8")
    back.load_weights(tmp_path / "int8.weights.h5")
    np.testing.assert_array_equal(back([QUERY, VALUE]), output)


def test_low_rank_adapters_come_back(tmp_path):
    query, value = keras.Input((T, D)), keras.Input((S, DV))
    layer = MultiHeadAttention(2, 6)
    model = keras.Model([query, value], layer(query, value))
    for projection in (layer.query_dense, layer.key_dense, layer.output_dense):
        projection.enable_lora(2)
    model.compile("sgd", "mse")
    before = model.predict([QUERY, VALUE], verbose=0)
    model.fit([QUERY, VALUE], np.ones((B, T, D)), verbose=0)
    trained = model.predict([QUERY, VALUE], verbose=0)
    assert np.abs(before - trained).max() > 1e-4
    model.save(tmp_path / "lora.keras")
    back = keras.saving.load_model(tmp_path / "lora.keras")
    np.testing.assert_allclose(
        back.predict([QUERY, VALUE], verbose=0), trained, atol=1e-5
    )

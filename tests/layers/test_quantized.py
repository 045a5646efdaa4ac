"""Quantized layers and models: saved, loaded, trained and served."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import catalogue, trips
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

from keras_attention import layers, models
from keras_attention.export import export_for_serving
from keras_attention.layers import (
    DecoderBlock,
    EncoderBlock,
    MultiHeadAttention,
)

B, T, D = 2, 5, 8
MODES = ["int8", "int4", "float8"]
SEQUENCE = normal((B, T, D))
IDS = catalogue.LAYERS["ReversibleEmbedding"].arrays["inputs"]
each_mode = pytest.mark.parametrize("mode", MODES)


def around(layer, shape=(B, T, D), calls=None):
    """Returns a maker of a model around a layer, and of its arrays."""

    def make():
        symbol = keras.Input(shape[1:], name="inputs")
        outputs = (calls or alone)(layer(), symbol)
        model = keras.Model({"inputs": symbol}, {"outputs": outputs})
        randomize(model)
        return model, {"inputs": normal(shape)}

    return make


def alone(layer, x):
    return layer(x)


def on_itself(layer, x):
    return layer(x, x)


def there_and_back(**arguments):
    """Returns a maker of a model of an embedding, both ways."""

    def make():
        symbol = keras.Input((None,), dtype="int32", name="inputs")
        layer = layers.ReversibleEmbedding(10, 7, **arguments)
        logits = layer(layer(symbol), reverse=True)
        model = keras.Model({"inputs": symbol}, {"outputs": logits})
        randomize(model)
        return model, {"inputs": IDS}

    return make


def from_catalogue(name):
    case = catalogue.CASES[name]
    return lambda: (case.model(), case.arrays)


SUBJECTS = {
    # Odd sizes throughout, which int4 has to pad.
    **{
        name: from_catalogue(name)
        for name in (
            "AdditiveAttention",
            "DecoderBlock",
            "EncoderBlock",
            "FeedForward",
            "GroupedQueryAttention",
            "MultiHeadAttention",
            "MultiplicativeAttention",
            "PatchEmbedding",
            "causal_language_model",
            "image_classifier",
            "text_classifier",
        )
    },
    "plain": around(lambda: MultiHeadAttention(2, 4), calls=on_itself),
    "two_axes": around(
        lambda: MultiHeadAttention(2, 4, attention_axes=(1, 2)),
        shape=(B, 3, 4, D),
        calls=on_itself,
    ),
    # Without dropout: Keras does not save where its random numbers are.
    "decoder": around(lambda: DecoderBlock(2, 16), calls=on_itself),
    "of_keras": around(
        lambda: EncoderBlock(
            None, 16, attention=keras.layers.MultiHeadAttention(2, 4)
        )
    ),
    "in_a_wrapper": around(
        lambda: keras.layers.TimeDistributed(EncoderBlock(2, 16)),
        shape=(B, 3, T, D),
    ),
    "tied": there_and_back(),
    "untied": there_and_back(tie_weights=False, logit_soft_cap=2.0),
}


def quantized_parts(model):
    return [
        layer.dtype_policy.name
        for layer in model._flatten_layers()
        if layer.quantization_mode is not None
    ]


def assert_same(back, model, arrays):
    assert quantized_parts(back) == quantized_parts(model)
    trips.assert_equal_outputs(back, model, arrays)


# Models are made of the layers that every mode is tried on. Keras has no
# embeddings in float8.
SOME_MODES = {
    "causal_language_model": ["int4"],
    "image_classifier": ["int8"],
    "in_a_wrapper": ["int8"],
    "text_classifier": ["float8"],
    "tied": ["int8", "int4"],
    "untied": ["int8", "int4"],
}


def _marks(name, mode):
    often = mode == "int8" or name in ("MultiHeadAttention", "tied")
    return () if often else pytest.mark.matrix


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=_marks(name, mode))
        for name in SUBJECTS
        for mode in SOME_MODES.get(name, MODES)
    ],
)
def test_files_hold_the_quantized_model(name, mode, tmp_path):
    model, arrays = SUBJECTS[name]()
    before = trips.call(model, arrays)
    model.quantize(mode)
    after = trips.call(model, arrays)
    for one, other in zip(before, after, strict=True):
        assert 0 < np.abs(one - other).max() < 0.25 * np.abs(one).max()
    # All that have a kernel, but for the embeddings that are in no mode.
    kernels = [v for v in model.variables if v.name == "kernel"]
    tables = 0 if mode == "float8" else len(_embeddings(model))
    assert len(quantized_parts(model)) == len(kernels) + tables > 0
    assert_same(trips.keras_file(model, tmp_path), model, arrays)


@each_mode
def test_files_of_weights_fit_a_model_quantized_alike(mode, tmp_path):
    model, arrays = SUBJECTS["EncoderBlock"]()
    model.quantize(mode)
    model.save_weights(tmp_path / "new.weights.h5")
    new, _ = SUBJECTS["EncoderBlock"]()
    new.quantize(mode)
    new.load_weights(tmp_path / "new.weights.h5")
    assert_same(new, model, arrays)


def _embeddings(model):
    kinds = (keras.layers.Embedding, layers.ReversibleEmbedding)
    return [x for x in model._flatten_layers() if isinstance(x, kinds)]


@each_mode
def test_quantizing_twice_is_refused_in_the_words_of_keras(mode, tmp_path):
    model, _ = SUBJECTS["plain"]()
    model.quantize(mode)
    with pytest.raises(ValueError, match="is already quantized with"):
        model.quantize(mode)


@each_mode
def test_a_configuration_in_json_says_how_parts_are_quantized(mode):
    model, arrays = SUBJECTS["EncoderBlock"]()
    model.quantize(mode)
    back = keras.models.model_from_json(model.to_json())
    back.set_weights(model.get_weights())
    assert_same(back, model, arrays)


@each_mode
def test_a_clone_is_quantized_anew_as_with_the_layers_of_keras(mode, tmp_path):
    model, arrays = SUBJECTS["text_classifier"]()
    model.quantize(mode)
    clone = keras.models.clone_model(model)
    # Its dense head is quantized from the start.
    clone.quantize(mode, filters=lambda x: x.quantization_mode is None)
    model.save_weights(tmp_path / "model.weights.h5")
    clone.load_weights(tmp_path / "model.weights.h5")
    assert_same(clone, model, arrays)


@each_mode
def test_policies_by_path_are_those_of_a_clone(mode, tmp_path):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    for part in ("query", "attention_output"):
        policies[f"reader/{part}"] = f"{mode}_from_float32"
    symbol = keras.Input((T, D), name="inputs")
    own = MultiHeadAttention(2, 4, dtype=policies, name="reader")
    model = keras.Model({"inputs": symbol}, own(symbol, symbol))
    assert own.query_dense.quantization_mode == mode
    assert own.key_dense.quantization_mode is None
    # Not by a file: Keras cannot save such a policy with int8 or int4 in it.
    back = trips.clone(model, tmp_path)
    assert back.get_layer("reader").query_dense.quantization_mode == mode
    assert_same(back, model, {"inputs": SEQUENCE})


def test_filters_and_quantizers_are_kept(tmp_path):
    quantizers = getattr(keras, "quantizers", None)
    if not hasattr(quantizers, "Int4QuantizationConfig"):
        pytest.skip("this release of Keras has one way to quantize")
    model, arrays = SUBJECTS["EncoderBlock"]()
    weights_alone = quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=weights_alone, filters=".*(query|intermediate)")
    pairs = quantizers.Int4QuantizationConfig(block_size=2)
    model.quantize(config=pairs, filters=".*value")
    assert len(quantized_parts(model)) == 3
    back = trips.keras_file(model, tmp_path)
    assert_same(back, model, arrays)
    block = back.get_layer("subject")
    query = block.attention.query_dense.quantization_config
    assert query.activation_quantizer is None
    assert block.attention.value_dense.quantization_config.block_size == 2


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_training_goes_on_from_a_file(mode, tmp_path):
    model, arrays = SUBJECTS["decoder"]()
    model.quantize(mode)
    model.compile("adam", "mse")
    answers = keras.tree.map_structure(
        lambda x: np.ones(x.shape, "float32"), model(arrays)
    )
    before = [to_numpy(v) for v in model.variables]
    model.train_on_batch(arrays, answers)
    moved = {
        v.path
        for v, old in zip(model.variables, before, strict=True)
        if "amax" in v.path and (to_numpy(v) != old).any()
    }
    parts = quantized_parts(model)
    assert len(moved) == (3 * len(parts) if mode == "float8" else 0)
    back = trips.keras_file(model, tmp_path)
    trips.assert_equal_weights(back, model)
    for _ in range(2):
        loss = model.train_on_batch(arrays, answers)
        assert back.train_on_batch(arrays, answers) == loss
    assert_same(back, model, arrays)


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_the_served_model_gives_the_same_numbers(mode, tmp_path):
    model, arrays = SUBJECTS["text_classifier"]()
    model.quantize(mode)
    expected = model.predict(arrays, verbose=0)
    path = export_for_serving(model, tmp_path)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    (served,) = serve(**{k: tf.constant(v) for k, v in arrays.items()}).values()
    (expected,) = keras.tree.flatten(expected)
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_a_model_from_a_file_writes_the_same(tmp_path):
    model, _ = SUBJECTS["causal_language_model"]()
    model.quantize("int4")
    back = trips.keras_file(model, tmp_path)
    prompts = [[4, 7], [5, 1, 2]]
    np.testing.assert_array_equal(
        models.generate(back, prompts, 4), models.generate(model, prompts, 4)
    )

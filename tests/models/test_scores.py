"""Scores come out of a trained model without touching it."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention.models.scores import (
    attention_scores_model,
    has_attention_scores,
)

IDS = np.array([[3, 5, 2, 0, 0], [1, 4, 6, 7, 2]])


def encoder(name=None):
    inputs = keras.Input((None, 6))
    attend = layers.MultiHeadAttention(2, 3, name="inner")
    return keras.Model(inputs, inputs + attend(inputs, inputs), name=name)


def classifier():
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(9, 6, mask_zero=True)(ids)
    x = layers.MultiHeadAttention(2, 3, dropout=0.5)(x, x)
    x = layers.MultiHeadAttention(3, 4, dropout=0.5)(x, x) * 2.0
    x = encoder("nested")(x)
    x = layers.Attention(name="last")([x, x])
    pooled = layers.GlobalAveragePooling1D()(x)
    return keras.Model({"ids": ids}, {"label": layers.Dense(4)(pooled)})


def test_every_call_gives_scores_by_stable_name():
    classifier()
    model = classifier()
    outputs, scores = attention_scores_model(model).predict(
        {"ids": IDS}, verbose=0
    )
    np.testing.assert_allclose(
        outputs["label"],
        model.predict({"ids": IDS}, verbose=0)["label"],
        atol=1e-6,
    )
    assert {name: value.shape for name, value in scores.items()} == {
        "multi_head_attention": (2, 2, 5, 5),
        "multi_head_attention_1": (2, 3, 5, 5),
        "inner": (2, 2, 5, 5),
        "last": (2, 1, 5, 5),
    }
    assert list(scores)[0] == "multi_head_attention"
    for value in scores.values():
        np.testing.assert_allclose(value.sum(-1)[1], 1.0, atol=1e-6)
    assert not scores["multi_head_attention"][0, :, :, 3:].any()


def test_the_model_itself_is_left_alone(tmp_path):
    model = classifier()
    model.compile("adam", {"label": "mse"})
    before = model.predict({"ids": IDS}, verbose=0)["label"]
    config, weights = model.get_config(), [v.path for v in model.weights]
    scores = attention_scores_model(model)
    assert scores.weights[0] is model.weights[0]
    assert model.get_config() == config
    assert [v.path for v in model.weights] == weights
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict({"ids": IDS}, verbose=0)["label"], before
    )


def test_scores_follow_further_training():
    inputs = keras.Input((4, 6))
    model = keras.Model(inputs, layers.MultiHeadAttention(2, 3)(inputs, inputs))
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    scores = attention_scores_model(model)
    before = scores(x)[1]["multi_head_attention"]
    for weight in model.weights:
        weight.assign(weight * 2.0 + 0.1)
    outputs, after = scores(x)
    np.testing.assert_allclose(outputs, model(x), atol=1e-5)
    assert np.abs(before - after["multi_head_attention"]).max() > 1e-3


def test_a_shared_layer_is_numbered_by_call():
    inputs = keras.Input((4, 6))
    shared = layers.MultiHeadAttention(2, 3, name="shared")
    model = keras.Model(inputs, shared(shared(inputs, inputs), inputs))
    _, scores = attention_scores_model(model).output
    assert list(scores) == ["shared", "shared_1"]


def test_sequential_models_and_nested_ones_are_followed():
    model = keras.Sequential([keras.Input((None, 6)), encoder(), encoder()])
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")
    outputs, scores = attention_scores_model(model)(x)
    np.testing.assert_allclose(outputs, model(x), atol=1e-6)
    assert list(scores) == ["inner", "inner_1"]


def test_a_layer_may_be_called_with_tensors_beside_flags():
    x, mask = keras.Input((4, 6)), keras.Input((4,), dtype="bool")
    attend = layers.MultiHeadAttention(2, 3)
    output = attend(query=x, value=x, value_mask=mask, use_causal_mask=True)
    model = attention_scores_model(keras.Model([x, mask], output))
    visible = np.array([[True, False, True, True]])
    _, scores = model([np.ones((1, 4, 6)), visible])
    np.testing.assert_array_equal(
        scores["multi_head_attention"][0, 0] > 0, np.tri(4) * visible > 0
    )


def test_models_without_scores_say_so():
    plain = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="d")])
    assert not has_attention_scores(plain)
    assert has_attention_scores(classifier())
    with pytest.raises(ValueError, match=r"layers=\['d'\]"):
        attention_scores_model(plain)

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.attend = layers.MultiHeadAttention(2, 3)

        def call(self, inputs):
            return self.attend(inputs, inputs)

    model = Subclassed()
    model(np.zeros((2, 3, 6)))
    assert not has_attention_scores(model)
    with pytest.raises(ValueError, match="subclassed"):
        attention_scores_model(model)

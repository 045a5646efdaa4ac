"""Names, dtypes and shapes of a signature come from the model."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_attention.export.interface import read_interface


def described(model, **kwargs):
    interface = read_interface(model, **kwargs)
    return {
        spec.name: (tuple(spec.shape), spec.dtype.name)
        for spec in interface.specs
    }


def outputs_of(model, *values):
    interface = read_interface(model)
    args, kwargs = interface.pack([tf.constant(value) for value in values])
    return sorted(interface.name_outputs(model(*args, **kwargs)))


def dictionary_model():
    foo = keras.Input((None,), dtype="int32", name="foo")
    bar = keras.Input((3,), name="bar")
    outputs = {"b": layers.Dense(2)(bar), "a": layers.Embedding(9, 2)(foo)}
    return keras.Model({"foo": foo, "bar": bar}, outputs)


def test_keys_of_dictionaries_are_kept():
    for _ in range(2):
        model = dictionary_model()
        assert described(model) == {
            "bar": ((None, 3), "float32"),
            "foo": ((None, None), "int32"),
        }
        bar, foo = np.ones((2, 3), "float32"), np.ones((2, 5), "int32")
        assert outputs_of(model, bar, foo) == ["a", "b"]


def list_model(**names):
    a = keras.Input((3,), name=names.get("a"))
    b = keras.Input((4,), name=names.get("b"))
    x = layers.Concatenate()([a, b])
    outputs = [
        layers.Dense(2, name=names.get("out"))(x),
        layers.Dense(1)(x),
        layers.Dense(1)(x) * 2.0,
    ]
    return keras.Model([a, b], outputs)


def test_names_made_up_by_keras_lose_their_counter():
    values = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    for _ in range(2):
        model = list_model()
        assert list(described(model)) == ["inputs", "inputs_1"]
        names = ["dense", "dense_1", "multiply"]
        assert outputs_of(model, *values) == names


def test_names_of_the_user_are_kept():
    model = list_model(a="left", b="right.2", out="dense_a7")
    assert list(described(model)) == ["left", "right.2"]
    values = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    assert outputs_of(model, *values) == ["dense", "dense_a7", "multiply"]


@pytest.mark.parametrize("name", ["a b", "1st", "_hidden", "lambda", "self"])
def test_names_no_signature_can_carry_are_refused(name):
    inputs = keras.Input((3,), name=name)
    model = keras.Model(inputs, layers.Dense(2)(inputs))
    with pytest.raises(ValueError, match=f"input name='{name}'"):
        read_interface(model)


def test_nested_structures_are_flattened_by_path():
    a = keras.Input((3,), name="a")
    b = keras.Input((4,), name="b")
    x = layers.Concatenate()([a, b])
    outputs = {"x": [layers.Dense(1)(x), layers.Dense(2)(x)]}
    model = keras.Model({"p": a, "q": {"r": b}}, outputs)
    assert list(described(model)) == ["p", "q_r"]
    values = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    assert outputs_of(model, *values) == ["x_0", "x_1"]


def test_sequential_models():
    model = keras.Sequential(
        [keras.Input((None, 4), name="steps"), layers.Dense(2, name="head")]
    )
    assert described(model) == {"steps": ((None, None, 4), "float32")}
    assert outputs_of(model, np.ones((2, 3, 4), "float32")) == ["head"]


def test_ids_of_a_sequential_model_without_input_are_guessed():
    model = keras.Sequential([layers.Embedding(9, 4), layers.Dense(2)])
    model(np.ones((2, 5), "int32"))
    with pytest.warns(UserWarning, match="input_signature"):
        assert described(model) == {"inputs": ((None, None), "int32")}
    interface = read_interface(
        model, input_signature=keras.InputSpec(shape=(None, 7), dtype="int64")
    )
    assert interface.declared
    assert interface.specs[0] == tf.TensorSpec((None, 7), "int64", "inputs")


class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(9, 4)
        self.head = layers.Dense(2)

    def call(self, ids, weights=None, training=False):
        x = self.head(self.embed(ids))
        return x if weights is None else [x, x * weights]


def test_subclassed_models_know_what_built_them():
    model = Pair()
    with pytest.raises(ValueError, match="not built"):
        read_interface(model)
    model(np.ones((2, 5), "int32"))
    with pytest.warns(UserWarning, match="guessed"):
        assert described(model) == {"inputs": ((None, None), "int32")}
    dense = keras.Sequential([layers.Dense(2)])
    dense(np.ones((2, 5)))
    assert described(dense) == {"inputs": ((None, 5), "float32")}


def test_arguments_of_call_can_be_named():
    model = Pair()
    model(np.ones((2, 5), "int32"))
    signature = {
        "ids": keras.KerasTensor((None, None), dtype="int32"),
        "weights": keras.KerasTensor((None, 1, 1)),
    }
    interface = read_interface(model, signature)
    ids, weights = tf.ones((2, 3), "int32"), tf.ones((2, 1, 1))
    args, kwargs = interface.pack([ids, weights])
    assert args == () and set(kwargs) == {"ids", "weights"}
    outputs = interface.name_outputs(model(*args, **kwargs))
    assert list(outputs) == ["outputs", "outputs_1"]


def test_signatures_must_describe_dense_tensors():
    model = dictionary_model()
    with pytest.raises(TypeError, match="KerasTensor"):
        read_interface(model, input_signature={"foo": (None, 3), "bar": 1})
    sparse = keras.Input((3,), sparse=True)
    model = keras.Model(sparse, layers.Dense(2)(sparse))
    with pytest.raises(TypeError, match="dense"):
        read_interface(model)


class KeywordOnly(keras.Model):
    @tf.function
    def call(self, query, *, memory):
        return {"sum": query + memory}


def test_keyword_arguments_of_a_decorated_call_can_be_named():
    model = KeywordOnly()
    model(np.ones((2, 5)), memory=np.ones((2, 5)))
    spec = keras.KerasTensor((None, 5))
    interface = read_interface(model, {"query": spec, "memory": spec})
    args, kwargs = interface.pack([tf.ones((2, 5)), tf.zeros((2, 5))])
    assert args == () and set(kwargs) == {"query", "memory"}


def test_nested_outputs_without_names_begin_with_a_letter():
    interface = read_interface(dictionary_model())
    one = tf.ones((2, 1))
    named = interface.name_outputs((one, (one, {"key": one})))
    assert list(named) == ["outputs", "outputs_1", "outputs_1_1_key"]
    with pytest.raises(ValueError, match="Received: b=None"):
        interface.name_outputs({"a": one, "b": None})

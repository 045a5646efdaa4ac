"""Raw strings and `tf.Example`s reach the model as its inputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.served_models import text_classifier, vectorization

from keras_attention.export.interface import read_interface
from keras_attention.export.preprocessing import (
    examples_function,
    text_function,
)
from keras_attention.export.signatures import serving_function, trace

TEXTS = tf.constant(["good film", "", "very bad film good"])
IDS = np.array([[2, 4, 0, 0], [0, 0, 0, 0], [5, 3, 4, 2]], "int32")


def text_of(model, preprocessing):
    interface = read_interface(model)
    serve = serving_function(model, interface)
    return trace(text_function(serve, interface, preprocessing), "text")


def examples_of(model):
    interface = read_interface(model)
    serve = serving_function(model, interface)
    return examples_function(serve, interface)


def echo(*shape, dtype="int32"):
    x = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model(x, {"y": layers.Identity()(x)})


def example(**features):
    def feature(values):
        values = np.asarray(values)
        if values.dtype.kind in "SU":
            values = [str(v).encode() for v in values.ravel()]
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values.dtype.kind == "f":
            numbers = tf.train.FloatList(value=values.ravel())
            return tf.train.Feature(float_list=numbers)
        numbers = tf.train.Int64List(value=values.ravel())
        return tf.train.Feature(int64_list=numbers)

    features = {name: feature(value) for name, value in features.items()}
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


@pytest.mark.parametrize("ragged", [False, True])
def test_one_layer_feeds_the_only_input(ragged):
    text = text_of(echo(None), vectorization(ragged=ragged))
    np.testing.assert_array_equal(text(TEXTS)["y"], IDS)


def test_empty_texts_keep_one_position():
    text = text_of(echo(None), vectorization())
    (ids,) = text(tf.constant(["", ""])).values()
    np.testing.assert_array_equal(ids, [[0], [0]])


def test_a_pipeline_of_layers_is_a_layer():
    pipeline = keras.Sequential(
        [keras.Input((), dtype="string"), vectorization()]
    )
    text = text_of(echo(None), pipeline)
    np.testing.assert_array_equal(text(TEXTS)["y"], IDS)


def test_layers_by_input_leave_the_others_alone():
    title = keras.Input((None,), dtype="int32", name="title")
    size = keras.Input((1,), name="size")
    ids = keras.ops.cast(title, "float32")
    model = keras.Model([title, size], {"y": ids + size})
    text = text_of(model, {"title": vectorization()})
    (y,) = text(TEXTS, tf.constant([[0.0], [1.0], [2.0]])).values()
    np.testing.assert_array_equal(y, IDS + [[0.0], [1.0], [2.0]])
    names = {spec.name for spec in text.structured_input_signature[0]}
    assert names == {"title", "size"}
    with pytest.raises(ValueError, match=r"unknown keys \['body'\]"):
        text_of(model, {"body": vectorization()})
    with pytest.raises(ValueError, match="dictionary of all inputs"):
        text_of(model, vectorization())


def test_a_fixed_length_must_be_met():
    with pytest.raises(ValueError, match="output_sequence_length"):
        text_of(echo(6), vectorization())
    text = text_of(echo(6), vectorization(output_sequence_length=6))
    assert text(TEXTS)["y"].shape == (3, 6)


def test_examples_hold_every_kind_of_input():
    inputs = [
        keras.Input((None,), dtype="int32", name="ids"),
        keras.Input((None, 2), name="steps"),
        keras.Input((2,), dtype="bool", name="flags"),
        keras.Input((None,), dtype="string", name="words"),
    ]
    model = keras.Model(inputs, {x.name: layers.Identity()(x) for x in inputs})
    rows = [
        example(ids=[1, 2], steps=[[1.0, 2.0]], flags=[1, 0], words=["a"]),
        example(ids=[3], steps=np.ones((3, 2)), flags=[0, 0], words=["b", "c"]),
    ]
    parsed = examples_of(model)(tf.constant(rows))
    np.testing.assert_array_equal(parsed["ids"], [[1, 2], [3, 0]])
    assert parsed["steps"].shape == (2, 3, 2)
    np.testing.assert_array_equal(parsed["steps"][0, 0], [1.0, 2.0])
    np.testing.assert_array_equal(parsed["steps"][0, 1:], np.zeros((2, 2)))
    np.testing.assert_array_equal(parsed["flags"], [[True, False], [False] * 2])
    np.testing.assert_array_equal(parsed["words"], [[b"a", b""], [b"b", b"c"]])


def test_two_open_lengths_do_not_fit_into_an_example():
    assert examples_of(echo(None, None, 3, dtype="float32")) is None
    assert examples_of(text_classifier()) is not None

"""A dtype that is not known is told by what layers are given, or asked for."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention.export import check, export_for_serving
from keras_attention.export.interface import read_interface
from keras_attention.export.runner import Runner

FEATURES = np.linspace(-1, 1, 2 * 5 * 3, dtype="float32").reshape(2, 5, 3)
IDS = np.array([[1, 2, 3, 4], [5, 0, 2, 1]], "int32")


class Two(keras.Model):
    """Features and ids, in whatever structure."""

    def __init__(self, pick):
        super().__init__()
        self.pick = pick
        self.embed = layers.Embedding(9, 3)
        self.dense = layers.Dense(2)

    def call(self, inputs):
        features, ids = self.pick(inputs)
        pooled = ops.mean(features, axis=1) + ops.mean(self.embed(ids), axis=1)
        return self.dense(pooled)


STRUCTURES = {
    "list": ([FEATURES, IDS], lambda x: x),
    "tuple": ((FEATURES, IDS), lambda x: x),
    "dictionary": (
        {"features": FEATURES, "ids": IDS},
        lambda x: (x["features"], x["ids"]),
    ),
    "nested": (
        {"a": [FEATURES], "b": {"c": IDS}},
        lambda x: (x["a"][0], x["b"]["c"]),
    ),
    "flags": ([FEATURES > 0, IDS], lambda x: (ops.cast(x[0], "float32"), x[1])),
    "halves": ([FEATURES.astype("float16"), IDS], lambda x: x),
}


def signature(inputs):
    return keras.tree.map_structure(
        lambda x: keras.KerasTensor((None, *x.shape[1:]), x.dtype.name), inputs
    )


@pytest.mark.parametrize("name", STRUCTURES)
def test_several_inputs_are_asked_for_and_never_guessed(name, tmp_path):
    inputs, pick = STRUCTURES[name]
    model = Two(pick)
    expected = model(inputs)
    with pytest.raises(ValueError, match="which dtypes.*`input_signature`"):
        export_for_serving(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    path = export_for_serving(
        model, tmp_path / "m", input_signature=signature(inputs)
    )
    arrays = keras.tree.flatten(inputs)
    specs = read_interface(model, signature(inputs)).specs
    sent = {
        spec.name: array.astype(spec.dtype.as_numpy_dtype)
        for spec, array in zip(specs, arrays, strict=True)
    }
    with Runner(path) as runner:
        (found,) = runner.run("serving_default", sent).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)


class One(keras.Model):
    """An embedding that reads the input, positions, or a part of it."""

    def __init__(self, reads):
        super().__init__()
        self.reads = reads
        self.embed = layers.Embedding(12, 3)
        self.dense = layers.Dense(2)

    def call(self, x):
        if self.reads == "ids":
            return self.dense(self.embed(x))
        if self.reads == "positions":
            return self.dense(x + self.embed(ops.arange(ops.shape(x)[1])))
        if self.reads == "a column":
            return self.dense(self.embed(ops.cast(x[..., 0], "int32")) + x)
        return self.dense(self.embed(ops.cast(x[..., 0] + 3, "int32")) + x)


@pytest.mark.parametrize(
    ("reads", "example", "expected"),
    [
        ("ids", IDS, ((None, None), "int32")),
        ("ids", np.stack([IDS] * 3, 1), ((None, 3, 4), "int32")),
        ("positions", FEATURES, ((None, 5, 3), "float32")),
    ],
)
@pytest.mark.filterwarnings("ignore:The model")
def test_one_input_is_told_by_what_the_embedding_reads(
    reads, example, expected
):
    model = One(reads)
    model(example)
    (spec,) = read_interface(model).specs
    assert (tuple(spec.shape), spec.dtype.name) == expected
    assert "call" not in vars(model.embed)


@pytest.mark.parametrize("reads", ["a column", "a sum"])
def test_one_input_of_two_meanings_is_asked_for(reads):
    model = One(reads)
    model(np.abs(FEATURES))
    with pytest.raises(ValueError, match="which dtypes.*`input_signature`"):
        read_interface(model)


@pytest.mark.filterwarnings("ignore:The model")
def test_images_with_embedded_positions_keep_their_fractions(tmp_path):
    model = One("positions")
    expected = model(FEATURES)
    path = export_for_serving(model, tmp_path / "m")
    assert check(path).ok
    with Runner(path) as runner:
        (found,) = runner.run("serving_default", {"inputs": FEATURES}).values()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The model")
def test_ids_deep_inside_a_sequential_model_are_ids():
    inner = keras.Sequential([layers.Embedding(9, 4), layers.Dense(2)])
    model = keras.Sequential([inner, layers.Dense(2)])
    model(IDS)
    (spec,) = read_interface(model).specs
    assert spec.dtype == "int32"

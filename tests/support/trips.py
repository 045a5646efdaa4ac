"""The ways in which a model leaves memory and comes back."""

import json

import keras
import numpy as np
from support.layer_contract import to_numpy


def keras_file(model, folder):
    """The whole model in one archive."""
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def weights_file(model, folder):
    """The weights, into a model made of the configuration, never called."""
    model.save_weights(folder / "model.weights.h5")
    back = from_json(model)
    back.load_weights(folder / "model.weights.h5")
    return back


def json_config(model, folder):
    """The configuration as text, the weights as a list of arrays."""
    back = from_json(model)
    back.set_weights(model.get_weights())
    return back


def clone(model, folder):
    """The copy that Keras makes in memory."""
    back = keras.models.clone_model(model)
    back.set_weights(model.get_weights())
    return back


def legacy_file(model, folder):
    """The format of Keras 2, which Keras 3 still reads and writes."""
    model.save(folder / "model.h5")
    return keras.saving.load_model(folder / "model.h5")


TRIPS = {
    trip.__name__: trip
    for trip in (
        keras_file,
        weights_file,
        json_config,
        clone,
        legacy_file,
    )
}


def from_json(model):
    """Returns the model that its configuration in JSON describes."""
    config = json.loads(json.dumps(model.get_config()))
    return type(model).from_config(config)


def classes(model):
    """Returns the classes of all layers, nested ones too."""
    return [type(layer) for layer in model._flatten_layers()]


def call(model, arrays):
    """Returns the outputs of a model as one flat list of float64 arrays."""
    return [to_numpy(x) for x in keras.tree.flatten(model(arrays))]


def assert_equal_weights(back, model):
    """Names, order and dtypes are the same, and each bit of the values."""
    assert [(w.path, w.dtype) for w in back.weights] == [
        (w.path, w.dtype) for w in model.weights
    ]
    for one, other in zip(back.weights, model.weights, strict=True):
        np.testing.assert_array_equal(
            to_numpy(one), to_numpy(other), err_msg=one.path
        )


def assert_equal_outputs(back, model, arrays):
    """The same operations run in the same process: each bit is the same."""
    expected = call(model, arrays)
    assert all(np.isfinite(x).all() for x in expected)
    for one, other in zip(call(back, arrays), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_same(back, model, arrays):
    """The model that came back is the one that left."""
    assert back is not model
    assert classes(back) == classes(model)
    assert [x.name for x in back.layers] == [x.name for x in model.layers]
    assert_equal_weights(back, model)
    assert_equal_outputs(back, model, arrays)

"""What every layer keeps, as checks that a layer's own tests call."""

import json

import keras
import numpy as np
from keras import ops

POLICIES = [
    "float32",
    "float16",
    "bfloat16",
    "mixed_float16",
    "mixed_bfloat16",
]
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float64"))


def randomize(layer, seed=11, scale=0.3):
    """Gives a built layer weights that are random throughout, biases too."""
    rng = np.random.default_rng(seed)
    layer.set_weights(
        [rng.normal(size=w.shape, scale=scale) for w in layer.get_weights()]
    )


def assert_close(actual, expected, dtype):
    """Compares with float64 numbers, as closely as `dtype` allows."""
    assert keras.backend.standardize_dtype(actual.dtype) == dtype
    np.testing.assert_allclose(
        to_numpy(actual),
        expected,
        rtol=TOLERANCE[dtype],
        atol=TOLERANCE[dtype],
    )


def rebuilt(layer):
    """Returns the layer that comes back from its configuration in JSON."""
    serialized = keras.saving.serialize_keras_object(layer)
    text = json.dumps(serialized)
    back = keras.saving.deserialize_keras_object(json.loads(text))
    assert type(back) is type(layer)
    assert json.dumps(keras.saving.serialize_keras_object(back)) == text
    return back


def assert_round_trip(layer, **arguments):
    """The configuration holds every argument, at the values given."""
    config = rebuilt(layer).get_config()
    for name, value in arguments.items():
        assert config[name] == value, name


def assert_same_after_rebuild(layer, *inputs, **options):
    """Weights go into a layer that was rebuilt and not yet called."""
    expected = layer(*inputs, **options)
    back = rebuilt(layer)
    assert back.built
    assert [w.shape for w in back.weights] == [w.shape for w in layer.weights]
    back.set_weights(layer.get_weights())
    actual = back(*inputs, **options)
    for one, other in zip(
        keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True
    ):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def assert_symbolic_equals_eager(layer, *inputs, **options):
    """Shapes and dtypes are known before any number is, batch or not."""

    def signature(outputs):
        return [
            (tuple(x.shape), keras.backend.standardize_dtype(x.dtype))
            for x in keras.tree.flatten(outputs)
        ]

    def symbolic(batch_size):
        return [
            keras.KerasTensor((batch_size, *x.shape[1:]), dtype=x.dtype)
            for x in inputs
        ]

    eager = signature(layer(*inputs, **options))
    batch_size = inputs[0].shape[0]
    assert signature(layer(*symbolic(batch_size), **options)) == eager
    open_ended = signature(layer(*symbolic(None), **options))
    assert open_ended == [((None, *s[1:]), dtype) for s, dtype in eager]

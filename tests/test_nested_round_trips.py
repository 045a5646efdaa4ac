"""Every public layer comes back from inside a user's layers and models."""

import functools

import keras
import numpy as np
import pytest
from support import trips
from support.catalogue import LAYERS, symbolic
from support.layer_contract import randomize, to_numpy
from support.peers import KERAS
from support.wrappers import WRAPPERS, Lazy, Network, Proper

ARRAYS = {name: case.arrays for name, case in LAYERS.items()}
RANDOM = [name for name, case in LAYERS.items() if case.has_dropout]

DEEP = pytest.param("Deep", marks=pytest.mark.matrix)
NESTED = pytest.param(
    "Nested",
    marks=[
        pytest.mark.matrix,
        pytest.mark.skipif(
            KERAS < (3, 15), reason="Keras loses lists of lists of layers"
        ),
    ],
)

each_random_layer = pytest.mark.parametrize("name", RANDOM)


@pytest.fixture(scope="module")
def networks():
    """Returns a function from a wrapper to a network and what it gives."""

    @functools.cache
    def get(wrapper):
        model = Network(LAYERS, wrapper)
        model(ARRAYS)
        randomize(model)
        return model, model(ARRAYS)

    return get


def assert_gives(back, expected):
    """Compares layer by layer, so that a difference names its layer."""
    actual = back(ARRAYS)
    for name in LAYERS:
        for one, other in zip(
            keras.tree.flatten(actual[name]),
            keras.tree.flatten(expected[name]),
            strict=True,
        ):
            np.testing.assert_array_equal(
                to_numpy(one), to_numpy(other), err_msg=name
            )


@pytest.mark.parametrize("wrapper", ["Proper", "Deep", NESTED])
def test_in_a_functional_model(wrapper, tmp_path):
    inputs = {name: symbolic(ARRAYS[name], f"{name}_") for name in LAYERS}
    wrap = WRAPPERS[wrapper]
    outputs = {x: wrap(x, name=f"part_{x}")(inputs[x]) for x in LAYERS}
    model = keras.Model(inputs, outputs)
    randomize(model)
    expected = model(ARRAYS)
    for trip in (trips.keras_file, trips.weights_file):
        back = trip(model, tmp_path)
        assert trips.classes(back) == trips.classes(model)
        trips.assert_equal_weights(back, model)
        assert_gives(back, expected)


@pytest.mark.parametrize("wrapper", ["Lazy", DEEP, NESTED])
def test_in_a_subclassed_model(wrapper, networks, tmp_path):
    """Keras rebuilds it without a thought for the dtypes of its inputs."""
    model, expected = networks(wrapper)
    model.save(tmp_path / "model.keras")
    for _ in range(2):
        back = keras.saving.load_model(tmp_path / "model.keras")
        assert trips.classes(back) == trips.classes(model)
        assert_gives(back, expected)


@pytest.mark.parametrize("wrapper", ["Lazy", DEEP])
def test_weights_of_a_subclassed_model(wrapper, networks, tmp_path):
    model, expected = networks(wrapper)
    model.save_weights(tmp_path / "model.weights.h5")
    back = Network(LAYERS, wrapper)
    back(ARRAYS)
    back.load_weights(tmp_path / "model.weights.h5")
    assert_gives(back, expected)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("wrapper", [Lazy, Proper])
def test_weights_stay_the_same_objects(name, wrapper):
    """From the moment that the layer around them was built."""
    case = LAYERS[name]
    layer = wrapper(name)
    if wrapper is Proper:
        layer.build({key: value.shape for key, value in case.arrays.items()})
    else:
        layer(symbolic(case.arrays))
    inner = case.make()
    inner(**case.arrays)
    assert [w.shape for w in layer.weights] == [w.shape for w in inner.weights]
    before = [id(variable) for variable in layer.variables]
    layer(case.arrays)
    if case.has_dropout:
        layer(case.arrays, training=True)
    assert [id(variable) for variable in layer.variables] == before


def drops(call):
    """Whether two calls differ, though nothing changed between them."""
    one, other = (keras.tree.flatten(call()) for _ in range(2))
    return any(
        (to_numpy(x) != to_numpy(y)).any()
        for x, y in zip(one, other, strict=True)
    )


@each_random_layer
@pytest.mark.parametrize("wrapper", ["Lazy", "Explicit", "Deep"])
def test_dropout_exactly_when_training(name, wrapper):
    """Whether the layers around pass `training` on or know nothing of it."""
    model = Network([name], wrapper)
    arrays = {name: ARRAYS[name]}
    assert drops(lambda: model(arrays, training=True))
    for options in ({}, {"training": None}, {"training": False}):
        assert not drops(lambda options=options: model(arrays, **options))
    assert not drops(lambda: model.predict_on_batch(arrays))


@each_random_layer
def test_seeded_dropout_is_the_same_after_loading(name, tmp_path):
    model, arrays = LAYERS[name].model(), ARRAYS[name]
    back = trips.keras_file(model, tmp_path)
    one, other = (m(arrays, training=True)["outputs"] for m in (back, model))
    np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@pytest.mark.parametrize("name", LAYERS)
def test_a_shared_layer_stays_shared(name, tmp_path):
    """One layer, called twice, gives one set of weights again."""
    case = LAYERS[name]
    inputs = symbolic(case.arrays)
    layer = case.make(name="shared")
    outputs = {"one": layer(**inputs), "other": layer(**inputs)}
    model = keras.Model(inputs, outputs)
    randomize(model)
    for trip in trips.TRIPS.values():
        back = trip(model, tmp_path)
        assert len(back.layers) == len(model.layers)
        trips.assert_same(back, model, case.arrays)

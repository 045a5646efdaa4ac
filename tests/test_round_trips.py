"""Everything public comes back: from files, from JSON, in a new process."""

import inspect
import json

import keras
import numpy as np
import pytest
from support import trips
from support.catalogue import CASES, FACTORIES, LAYERS
from support.layer_contract import to_numpy

from keras_attention import layers, models

each_layer = pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)


def test_the_catalogue_is_complete():
    assert sorted(LAYERS) == sorted(layers.__all__)
    not_factories = {
        "DecoderStack",
        "EncoderStack",
        "GenerationSettings",
        "attention_scores_model",
        "generate",
        "stream",
    }
    assert set(FACTORIES) == set(models.__all__) - not_factories


@pytest.fixture(scope="module", params=CASES)
def made(request):
    """A case and its model, which no trip changes."""
    case = CASES[request.param]
    return case, case.model()


@pytest.mark.parametrize("trip", trips.TRIPS.values(), ids=trips.TRIPS)
def test_round_trip(made, trip, tmp_path):
    case, model = made
    trips.assert_same(trip(model, tmp_path), model, case.arrays)


def test_one_file_gives_the_same_model_in_each_generation(made, tmp_path):
    case, model = made
    first = trips.keras_file(model, tmp_path)
    again = keras.saving.load_model(tmp_path / "model.keras")
    trips.assert_same(again, first, case.arrays)
    first.save(tmp_path / "second.keras")
    second = keras.saving.load_model(tmp_path / "second.keras")
    trips.assert_same(second, model, case.arrays)


@each_layer
def test_every_argument_is_in_the_configuration(case):
    parameters = inspect.signature(case.layer_class).parameters.values()
    own = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    assert sorted(p.name for p in own) == sorted(case.arguments)
    for parameter in own:
        assert case.arguments[parameter.name] != parameter.default, parameter
    config = json.loads(json.dumps(case.make().get_config()))
    expected = json.loads(json.dumps(_serialized(case.arguments)))
    assert {name: config[name] for name in expected} == expected


@each_layer
def test_the_configuration_is_the_same_twice_round(case):
    layer = case.make(name="odd", dtype="mixed_bfloat16", trainable=False)
    once = json.dumps(layer.get_config())
    back = case.layer_class.from_config(json.loads(once))
    assert json.dumps(back.get_config()) == once
    assert back.name == "odd" and not back.trainable
    assert back.dtype_policy.name == "mixed_bfloat16"


@each_layer
def test_a_registered_name_gives_its_own_class(case):
    name = f"keras_attention>{case.layer_class.__name__}"
    assert keras.saving.get_registered_object(name) is case.layer_class
    assert keras.saving.get_registered_name(case.layer_class) == name


@each_layer
def test_a_layer_is_whole_before_its_first_call(case):
    """Rebuilt from its configuration, it can be given weights at once."""
    layer = case.make()
    case.model(layer)
    back = case.layer_class.from_config(layer.get_config())
    back.build_from_config(json.loads(json.dumps(layer.get_build_config())))
    shapes = [weight.shape for weight in layer.weights]
    assert back.built and [w.shape for w in back.weights] == shapes
    before = [id(variable) for variable in back.variables]
    back.set_weights(layer.get_weights())
    arrays = case.arrays
    expected = keras.tree.flatten(layer(**arrays))
    for one, other in zip(
        keras.tree.flatten(back(**arrays)), expected, strict=True
    ):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    if case.has_dropout:
        back(**arrays, training=True)
    assert [id(variable) for variable in back.variables] == before


@each_layer
@pytest.mark.parametrize(
    ("own", "ambient"),
    [("mixed_float16", "float32"), ("float32", "mixed_bfloat16")],
)
def test_a_policy_is_kept_under_another_one(case, own, ambient, tmp_path):
    """Whether it was given to the layer or was the one of the day."""
    given = case.model(case.make(name="subject", dtype=own))
    keras.config.set_dtype_policy(own)
    implied = case.model()
    for model in (given, implied):
        keras.config.set_dtype_policy(ambient)
        for trip in (trips.keras_file, trips.weights_file, trips.clone):
            back = trip(model, tmp_path)
            policies = _policies(back.get_layer("subject"))
            assert policies == _policies(model.get_layer("subject"))
            assert policies[0] == own
            trips.assert_same(back, model, case.arrays)


def _policies(layer):
    return [part.dtype_policy.name for part in layer._flatten_layers()]


def _serialized(arguments):
    return {
        name: keras.saving.serialize_keras_object(value)
        if hasattr(value, "get_config")
        else value
        for name, value in arguments.items()
    }

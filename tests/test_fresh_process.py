"""Saved models come back where nothing but the package is imported."""

import json

import keras
import numpy as np
import pytest
from support import fresh_process, trips
from support.catalogue import CASES

FILES = ["model.keras", "model.weights.h5", "model.h5"]

RELOAD = """
import json, pathlib, sys
import keras_attention
import keras
import numpy as np

root, policy, *names = sys.argv[1:]
keras.config.set_dtype_policy(policy)

def load(file):
    if file.name == "model.weights.h5":
        config = json.loads((file.parent / "config.json").read_text())
        model = keras.saving.deserialize_keras_object(config)
        model.load_weights(file)
        return model
    return keras.saving.load_model(file)

classes = {}
for folder in sorted(pathlib.Path(root).iterdir()):
    arrays = dict(np.load(folder / "inputs.npz"))
    for name in names:
        model = load(folder / name)
        outputs = keras.tree.flatten(model(arrays))
        outputs = [keras.ops.convert_to_numpy(x) for x in outputs]
        np.savez(folder / f"{name}.{policy}.npz", *outputs)
        np.savez(folder / f"{name}.{policy}.weights.npz", *model.get_weights())
        if name == "model.keras":
            model.save(folder / f"second.{policy}.keras")
        classes[folder.name + "/" + name] = [
            type(x).__module__ + "." + type(x).__name__
            for x in model._flatten_layers()
        ]
print(json.dumps(classes))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns a folder with one folder for each case, and the models."""
    root = tmp_path_factory.mktemp("saved")
    models = {}
    for name, case in CASES.items():
        folder = root / name
        folder.mkdir()
        models[name] = model = case.model()
        model.save(folder / "model.keras")
        model.save(folder / "model.h5")
        model.save_weights(folder / "model.weights.h5")
        (folder / "config.json").write_text(model.to_json())
        np.savez(folder / "inputs.npz", **case.arrays)
    return root, models


@pytest.fixture(scope="module")
def classes(saved):
    """Returns the classes that one new process read."""
    return reload(saved[0], "float32", FILES)


@pytest.fixture(scope="module")
def classes_under_another_policy(saved):
    """Returns those that a process read whose own models would be others."""
    return reload(saved[0], "mixed_bfloat16", ["model.keras"])


def reload(root, policy, files):
    printed = fresh_process.run(RELOAD, root, policy, *files)
    return json.loads(printed.splitlines()[-1])


def assert_came_back(saved, classes, name, file, policy):
    """Classes and weights are the same, and so are the numbers."""
    root, models = saved
    model = models[name]
    assert classes[f"{name}/{file}"] == [
        f"{c.__module__}.{c.__name__}" for c in trips.classes(model)
    ]
    with np.load(root / name / f"{file}.{policy}.weights.npz") as weights:
        for one, other in zip(
            weights.values(), model.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    with np.load(root / name / f"{file}.{policy}.npz") as outputs:
        for one, other in zip(
            outputs.values(),
            trips.call(model, CASES[name].arrays),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back(saved, classes, name, file):
    assert_came_back(saved, classes, name, file, "float32")


@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back_under_another_policy(
    saved, classes_under_another_policy, name
):
    assert_came_back(
        saved,
        classes_under_another_policy,
        name,
        "model.keras",
        "mixed_bfloat16",
    )


@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_home(saved, classes, classes_under_another_policy, name):
    """Saved again over there, it is here what it was, bit by bit."""
    root, models = saved
    for policy in ("float32", "mixed_bfloat16"):
        back = keras.saving.load_model(root / name / f"second.{policy}.keras")
        trips.assert_same(back, models[name], CASES[name].arrays)

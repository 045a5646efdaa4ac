"""Saved models come back where nothing but the package is imported."""

import json

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

def load(file):
    if file.name == "model.weights.h5":
        config = json.loads((file.parent / "config.json").read_text())
        model = keras.saving.deserialize_keras_object(config)
        model.load_weights(file)
        return model
    return keras.saving.load_model(file)

classes = {}
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    arrays = dict(np.load(folder / "inputs.npz"))
    for name in sys.argv[2:]:
        model = load(folder / name)
        outputs = keras.tree.flatten(model(arrays))
        outputs = [keras.ops.convert_to_numpy(x) for x in outputs]
        np.savez(folder / (name + ".npz"), *outputs)
        np.savez(folder / (name + ".weights.npz"), *model.get_weights())
        classes[folder.name + "/" + name] = [
            type(x).__module__ + "." + type(x).__name__
            for x in model._flatten_layers()
        ]
print(json.dumps(classes))
"""


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    """Returns a folder for each case, and what one new process read there."""
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
    printed = fresh_process.run(RELOAD, root, *FILES)
    return root, models, json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back(reloaded, name, file):
    root, models, classes = reloaded
    model = models[name]
    assert classes[f"{name}/{file}"] == [
        f"{c.__module__}.{c.__name__}" for c in trips.classes(model)
    ]
    with np.load(root / name / f"{file}.weights.npz") as weights:
        for one, other in zip(
            weights.values(), model.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    with np.load(root / name / f"{file}.npz") as outputs:
        for one, other in zip(
            outputs.values(),
            trips.call(model, CASES[name].arrays),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)

"""Archives of every release so far load and give what they gave."""

import hashlib
import json
import pathlib
import runpy
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import trips
from support.catalogue import FACTORIES, LAYERS
from support.layer_contract import to_numpy

import keras_attention

ROOT = pathlib.Path(__file__).parents[1] / "saved_models"
RELEASES = sorted(path.parent for path in ROOT.glob("*/manifest.json"))
ARCHIVES = [
    pytest.param(release / name, id=f"{release.name}/{name}")
    for release in RELEASES
    for name in json.loads((release / "manifest.json").read_text())["archives"]
]
# Other processors and releases of TensorFlow add in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

each_archive = pytest.mark.parametrize("archive", ARCHIVES)


def test_the_present_release_is_whole():
    release = ROOT / keras_attention.__version__
    manifest = json.loads((release / "manifest.json").read_text())
    assert set(manifest["archives"]) == {*LAYERS, *FACTORIES}


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_no_file_has_changed(release):
    manifest = json.loads((release / "manifest.json").read_text())
    assert _hashes(release) == manifest["sha256"]


def test_all_releases_together_stay_small():
    sizes = [path.stat().st_size for path in ROOT.rglob("*") if path.is_file()]
    assert sum(sizes) < 6e6 * len(RELEASES)


@each_archive
def test_the_keras_file_loads(archive):
    model = keras.saving.load_model(archive / "model.keras")
    _assert_outputs(trips.call(model, _arrays(archive / "inputs")), archive)


@each_archive
def test_the_weights_load_into_a_model_that_has_others(archive):
    model = keras.saving.load_model(archive / "model.keras")
    for variable in model.weights:
        variable.assign(keras.ops.ones_like(variable))
    model.load_weights(archive / "model.weights.h5")
    _assert_outputs(trips.call(model, _arrays(archive / "inputs")), archive)


@each_archive
def test_the_export_serves(archive, tmp_path):
    shutil.unpack_archive(archive / "savedmodel.zip", tmp_path)
    served = tf.saved_model.load(tmp_path)
    signature = served.signatures["serving_default"]
    inputs = {
        name: tf.cast(
            array, signature.structured_input_signature[1][name].dtype
        )
        for name, array in _arrays(archive / "inputs").items()
    }
    outputs = signature(**inputs)
    ordered = [to_numpy(outputs[name]) for name in sorted(outputs)]
    _assert_outputs(ordered, archive)


def test_a_release_is_never_made_again():
    make = runpy.run_path(str(ROOT / "make.py"))["main"]
    before = _hashes(ROOT / keras_attention.__version__)
    with pytest.raises(SystemExit, match="exists"):
        make()
    assert _hashes(ROOT / keras_attention.__version__) == before


def _arrays(path):
    with np.load(path.with_suffix(".npz")) as file:
        return dict(file)


def _assert_outputs(outputs, archive):
    expected = list(_arrays(archive / "outputs").values())
    assert len(expected) == len(outputs) > 0
    for one, other in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(one, other, **TOLERANCE)


def _hashes(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }

"""Upgrading a file to a file, and the command that does."""

import zipfile

import keras
import numpy as np
import pytest
from support import fresh_process, old_models
from support.layer_contract import to_numpy
from typer.testing import CliRunner

from keras_attention.commands import app
from keras_attention.upgrading import files
from keras_attention.upgrading.verification import difference, random_inputs


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    model, ids = old_models.make(old_models.bert_like)
    path = tmp_path_factory.mktemp("old") / "old.keras"
    model.save(path)
    return path, ids, to_numpy(model(ids))


def run(*arguments):
    return CliRunner().invoke(app, ["upgrade", *map(str, arguments)])


def test_the_command_writes_an_equal_model(old, tmp_path):
    path, ids, expected = old
    result = run(path, tmp_path / "new.keras")
    assert result.exit_code == 0, result.output
    assert "Replaced: 2 layers" in result.stdout
    assert "Largest difference on random inputs: " in result.stdout
    assert result.stdout.endswith(f"{tmp_path / 'new.keras'}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["new.keras"]
    np.save(tmp_path / "ids.npy", ids)
    actual = fresh_process.run(
        "import sys, keras, numpy, keras_attention\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "assert 'keras_attention' in str(type(model.get_layer('mha_0')))\n"
        "ids = numpy.load(sys.argv[2])\n"
        "print(model.predict(ids, verbose=0).ravel().tolist())",
        tmp_path / "new.keras",
        tmp_path / "ids.npy",
    )
    actual = np.reshape(eval(actual), expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_an_existing_file_is_kept_unless_told_otherwise(old, tmp_path):
    target = tmp_path / "new.keras"
    target.write_text("precious")
    result = run(old[0], target)
    assert result.exit_code == 1 and "exists" in result.stderr
    assert target.read_text() == "precious"
    assert run(old[0], target, "--overwrite").exit_code == 0
    assert keras.saving.load_model(target).name == "bert"


def test_faults_are_told_in_a_line_and_nothing_is_written(old, tmp_path):
    broken = tmp_path / "broken.keras"
    broken.write_text("no archive")
    plain = tmp_path / "plain.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(plain)
    target = tmp_path / "new.keras"
    for arguments, message in (
        ((broken, target), "cannot be loaded as a model of Keras 3"),
        ((tmp_path / "none.keras", target), "There is no file"),
        ((plain, target), "nothing to upgrade"),
        ((old[0], tmp_path / "new.h5"), "must end in `.keras`"),
        ((old[0], tmp_path / "no" / "new.keras"), "does not exist"),
        ((old[0], target, "--import", "no_such_module"), "'no_such_module'"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1, result.output
        assert message in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {broken.name, plain.name}


def test_a_folder_that_is_read_only_is_named_before_loading(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="may not be written to"):
        files.upgrade_file(tmp_path / "old.keras", tmp_path / "new.keras")


def test_a_model_that_comes_out_different_is_not_written(
    old, tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "difference", lambda *_: 2e-5)
    with pytest.raises(ValueError, match="differ by"):
        files.upgrade_file(old[0], tmp_path / "new.keras")
    assert not list(tmp_path.iterdir())


def test_an_archive_that_grows_is_not_read(old, tmp_path):
    bomb = tmp_path / "bomb.keras"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b"0" * (200 << 20))
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(ValueError, match="unpacks to 209,715,200"):
        files.upgrade_file(bomb, tmp_path / "new.keras")


def test_random_inputs_are_those_the_model_knows():
    model, _ = old_models.make(old_models.encoder_decoder)
    inputs = random_inputs(model, batch_size=3, length=4)
    assert {k: v.shape for k, v in inputs.items()} == {
        "source": (3, 4),
        "target": (3, 4),
    }
    ids = np.concatenate([to_numpy(v) for v in inputs.values()])
    assert ids.min() > 0 and 2 < ids.max() < 20
    assert difference(model, model, inputs) == 0
    subclassed, _ = old_models.make(old_models.subclassed)
    with pytest.raises(ValueError, match="does not say what its inputs are"):
        random_inputs(subclassed)


def test_differences_see_what_is_not_a_number():
    identity = keras.Sequential(
        [keras.Input((2,)), keras.layers.Activation("linear")]
    )
    inverse = keras.Sequential([keras.Input((2,)), keras.layers.ReLU()])
    assert difference(identity, identity, np.array([[np.nan, 1.0]])) == 0
    found = difference(identity, inverse, np.array([[-4.0, 1.0]]))
    assert found == 1.0
    assert difference(inverse, identity, np.array([[np.inf, 1.0]])) == 0

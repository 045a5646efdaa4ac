"""The command line: what it prints, and how it exits."""

import json
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from keras import layers
from typer.testing import CliRunner

import keras_attention
from keras_attention import cli
from keras_attention.commands import app


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(9, 4, mask_zero=True)(ids)
    x = layers.MultiHeadAttention(2, 3)(x, x)
    x = layers.GlobalAveragePooling1D()(x)
    keras.Model(ids, layers.Dense(2, name="label")(x)).save(path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_export_then_check(model, tmp_path):
    result = run("export", model, tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(tmp_path / "m" / "1")
    result = run("check", tmp_path / "m", "--length", 5, "--batch-size", 2)
    assert result.exit_code == 0, result.output
    assert "can ship" in result.output
    assert "padding hidden" in result.output


def test_check_as_json_tells_of_faults(tmp_path):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, layers.Dense(2)(inputs))
    tf.saved_model.save(model, str(tmp_path))
    result = run("check", tmp_path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False
    result = run("check", tmp_path, "--skip", "weights restored")
    assert result.exit_code == 0, result.output


def test_the_version_is_told():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == keras_attention.__version__


def test_the_package_runs_as_a_module():
    process = subprocess.run(
        [sys.executable, "-m", "keras_attention", "--help"],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert "upgrade" in process.stdout and "--version" in process.stdout


def test_errors_name_the_flags_of_the_command(model, tmp_path):
    assert run("export", model, tmp_path, "--version", 3).exit_code == 0
    result = run("export", model, tmp_path, "--version", 3)
    assert result.exit_code == 1
    assert "`--overwrite`" in result.stderr and "`--version`" in result.stderr
    assert "=True" not in result.stderr and "=None" not in result.stderr


def test_bad_arguments_print_one_error(model, tmp_path):
    result = run("export", model, tmp_path, "--version", 0)
    assert result.exit_code == 1
    assert "Error: `version` must be at least 1" in result.output
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "no `saved_model.pb`" in result.output


def test_help_lists_the_commands(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-attention", "--help"])
    with pytest.raises(SystemExit) as exit_info:
        cli.main()
    assert exit_info.value.code == 0
    output = capsys.readouterr().out
    assert "export" in output and "check" in output


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "keras_attention.commands", False)
    with pytest.raises(SystemExit, match=r"keras_attention\[cli\]"):
        cli.main()


def test_steps_go_to_stderr_and_reports_are_whole(model, tmp_path):
    result = run("export", model, tmp_path / "m")
    assert result.stdout.strip() == str(tmp_path / "m" / "1")
    for step in ("Loading", "Tracing", "Writing", "Running"):
        assert step in result.stderr
    result = run("export", model, tmp_path / "m", "--version", 1)
    assert result.stdout == "" and "Error: Version 1 is" in result.stderr
    tf.saved_model.save(keras.saving.load_model(model), str(tmp_path / "k"))
    result = run("check", tmp_path / "k")
    assert "…" not in result.stdout
    assert "-> Export it with" in result.stdout

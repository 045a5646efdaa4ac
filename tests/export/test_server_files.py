"""What a server is started with: names, labels, batching."""

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_attention.export.folder import files_beside
from keras_attention.export.server_files import (
    check_label,
    check_name,
    write_server_files,
)


def config_of(base):
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((base / "models.config").read_text(), config)
    (one,) = config.model_config_list.config
    return one


def add_version(base, number, label=None):
    (base / str(number)).mkdir(exist_ok=True)
    with files_beside(base) as write:
        return write_server_files(base, "sentiment", number, label, write)


def test_the_first_version_is_stable_and_the_next_canary(tmp_path):
    assert add_version(tmp_path, 1) == {"stable": 1}
    assert add_version(tmp_path, 2) == {"stable": 1, "canary": 2}
    assert add_version(tmp_path, 5) == {"stable": 1, "canary": 5}
    config = config_of(tmp_path)
    assert config.name == "sentiment"
    assert config.base_path == "/models/sentiment"
    assert config.model_platform == "tensorflow"
    assert list(config.model_version_policy.specific.versions) == [1, 5]
    assert dict(config.version_labels) == {"stable": 1, "canary": 5}


def test_a_version_is_promoted_by_its_label(tmp_path):
    add_version(tmp_path, 1)
    add_version(tmp_path, 2)
    assert add_version(tmp_path, 2, "stable") == {"stable": 2}
    assert add_version(tmp_path, 2) == {"stable": 2}
    assert add_version(tmp_path, 3, "stable") == {"stable": 3}
    versions = config_of(tmp_path).model_version_policy.specific.versions
    assert list(versions) == [3]


def test_labels_of_removed_versions_are_forgotten(tmp_path):
    add_version(tmp_path, 1)
    add_version(tmp_path, 2)
    (tmp_path / "1").rmdir()
    assert add_version(tmp_path, 3) == {"stable": 2, "canary": 3}


def test_batching_never_pads_in_the_server(tmp_path):
    add_version(tmp_path, 1)
    text = (tmp_path / "batching.config").read_text()
    assert "pad_variable_length_inputs: false" in text


def test_names_fit_into_an_address(tmp_path):
    assert check_name(None, tmp_path / "my model") == "my_model"
    assert check_name(None, tmp_path / ".m") == "_m"
    assert check_name("en-de.v2", tmp_path) == "en-de.v2"
    for name in ("a/b", "", ".a", "a b", "../x"):
        with pytest.raises(ValueError, match="Received: name="):
            check_name(name, tmp_path)
    with pytest.raises(TypeError, match="Received: name=3"):
        check_name(3, tmp_path)


def test_labels_are_stable_or_canary():
    check_label(None)
    check_label("canary")
    with pytest.raises(ValueError, match="Received: label='beta'"):
        check_label("beta")

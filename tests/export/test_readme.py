"""Every command of `README.txt` works, and gives what it says."""

import json
import re
import urllib.request

import keras
import numpy as np
from keras import layers
from support.rest_server import serve

from keras_attention.export import export_for_serving


def requests_in(text):
    pattern = r"^curl \S+/(v1/\S+) \\\n  -d (.+)\ngives\n(.+)$"
    return re.findall(pattern, text, re.MULTILINE)


def ask(url, body):
    request = urllib.request.Request(url, body.encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def assert_close(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert_close(value, second[key])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_close(one, other)
    else:
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_requests_and_answers_are_real(exported):
    path = exported("text").path
    text = (path.parent / "README.txt").read_text()
    assert text.startswith("text, version 1 (stable is 1)\n")
    found = requests_in(text)
    assert len(found) == 5
    signatures = set()
    with serve(path, "text") as url:
        for address, body, answer in found:
            assert address == "v1/models/text:predict"
            body = body.strip("'")
            signatures.add(json.loads(body)["signature_name"])
            assert_close(ask(f"{url}:predict", body), json.loads(answer))
    assert signatures == {"attention", "examples", "serving_default", "text"}


def test_the_start_command_names_the_files(exported):
    base = exported("text").path.parent
    text = (base / "README.txt").read_text()
    assert '-v "$PWD:/models/text:ro" tensorflow/serving' in text
    assert "--model_config_file=/models/text/models.config \\" in text
    assert (base / "models.config").exists()
    command = text[text.index("docker run") : text.index("The server reads")]
    assert "--enable_batching" not in command


def test_the_grpc_snippet_builds_a_request(exported):
    text = (exported("text").path.parent / "README.txt").read_text()
    code = text[text.index("import grpc") : text.index("channel =")]
    names: dict = {}
    exec(code, names)
    assert names["request"].model_spec.name == "text"
    assert names["request"].inputs["ids"].tensor_shape.dim[0].size == 2


def test_large_bodies_go_to_files(tmp_path):
    image = keras.Input((16, 16, 3), name="image")
    model = keras.Model(image, layers.Conv2D(4, 3, name="map")(image))
    path = export_for_serving(model, tmp_path / "images")
    base = path.parent
    text = (base / "README.txt").read_text()
    assert "--enable_batching=true" in text
    assert "arrays of the shapes {'map': (2, 14, 14, 4)}" in text
    (rows, columns) = [body for _, body, _ in requests_in(text)][:2]
    assert rows == "@request_serving_default_rows.json"
    body = json.loads((base / rows[1:]).read_text())
    assert np.shape(body["instances"]) == (2, 16, 16, 3)
    assert (base / columns[1:]).exists()

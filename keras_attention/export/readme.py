"""`README.txt` of a served model: what to type, and what comes back."""

import json

import numpy as np

from keras_attention.export.client import Client

_LONGEST_SHOWN = 600

_TEXT = """\
{name}, version {version} ({labels})
{rule}
Run a command in the folder of this file.

SIGNATURES
{signatures}

SERVE
docker run --rm -p 8500:8500 -p 8501:8501 \\
  -v "$PWD:/models/{name}:ro" tensorflow/serving \\
  --model_config_file=/models/{name}/models.config \\
  --model_config_file_poll_wait_seconds=60 \\
  --allow_version_labels_for_unavailable_models=true{batching}

The server reads models.config again every minute: versions and labels change
there without a restart. A label moves to a version once that one is loaded.
.../models/{name}/labels/stable:predict asks the stable version; an address
without a label asks the newest one that is loaded.
{batching_note}
{requests}
GRPC
import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "{name}"
request.model_spec.signature_name = "serving_default"
{grpc_inputs}
channel = grpc.insecure_channel("localhost:8500")
stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
answer = stub.Predict(request, timeout=10.0)
for name, value in answer.outputs.items():
    print(name, tf.make_ndarray(value))
"""

_BATCHING_FLAGS = """ \\
  --enable_batching=true \\
  --batching_parameters_file=/models/{name}/batching.config"""

_FIXED_NOTE = """
Requests that arrive together run as one batch, as batching.config says.
"""

_OPEN_NOTE = """
Batching in the server is off: it cannot join requests whose rows differ in
length, and must not fill them up, since it repeats their first value. Send
many rows in one request. To batch in the server, make all rows equally long,
or use a signature that takes strings, and add
  --enable_batching=true
  --batching_parameters_file=/models/{name}/batching.config
"""


def write_readme(base, name, version, labels, signatures, requests, write):
    """Writes the file, and request bodies too long to be shown in it.

    Args:
        base: Base folder, a `pathlib.Path`.
        name: Name of the model on the server.
        version: Number of the version just written.
        labels: Dictionary from labels to version numbers.
        signatures: As `read_signatures` returns them.
        requests: List of `TrialRequest` to show, one per signature.
        write: Callable that takes a path and the text to put there.
    """
    inputs, _ = signatures["serving_default"]
    open_length = any(None in spec.shape[1:] for spec in inputs.values())
    client = Client(signatures)
    shown = [
        text
        for request in requests
        for text in _requests(base, name, client, request, write)
    ]
    title = ", ".join(f"{k} is {v}" for k, v in sorted(labels.items()))
    text = _TEXT.format(
        name=name,
        version=version,
        labels=title,
        rule="=" * len(f"{name}, version {version} ({title})"),
        signatures=_signature_table(signatures),
        batching="" if open_length else _BATCHING_FLAGS.format(name=name),
        batching_note=(_OPEN_NOTE if open_length else _FIXED_NOTE).format(
            name=name
        ),
        requests="\n".join(shown),
        grpc_inputs=_grpc_inputs(requests, inputs),
    )
    write(base / "README.txt", text)


def _signature_table(signatures):
    lines = []
    for name, (inputs, outputs) in signatures.items():
        lines.append(name)
        for arrow, specs in (("in ", inputs), ("out", outputs)):
            for key, spec in specs.items():
                shape = ["?" if n is None else str(n) for n in spec.shape]
                size = ", ".join(shape)
                lines.append(f"  {arrow} {key}: {spec.dtype.name} ({size})")
    return "\n".join(lines)


def _requests(base, name, client, request, write):
    """Shows a request and its answer, in rows and for one also in columns."""
    inputs = {
        key: _readable(value, key) for key, value in request.inputs.items()
    }
    formats = [("rows", True)]
    if request.signature == "serving_default":
        formats.append(("columns", False))
    for kind, rows in formats:
        body = client.rest_body(inputs, request.signature, rows)
        file_name = f"request_{request.signature}_{kind}.json"
        yield (
            f"REST, {request.signature}, in {kind}\n"
            f"curl http://localhost:8501/v1/models/{name}:predict \\\n"
            f"  -d {_body(base / file_name, body, write)}\n"
            f"gives\n{_answer(request.outputs, rows)}\n"
        )


def _readable(value, key):
    """Texts as strings; what holds any bytes stays bytes."""
    if value.dtype.kind != "O" or key == "examples":
        return value
    texts = [text.decode() for text in value.flat]
    return np.array(texts, object).reshape(value.shape)


def _answer(outputs, rows):
    if sum(value.size for value in outputs.values()) <= _LONGEST_SHOWN:
        text = json.dumps(answer_body(outputs, rows))
        if len(text) <= _LONGEST_SHOWN:
            return text
    shapes = {name: value.shape for name, value in outputs.items()}
    return f"arrays of the shapes {shapes}"


def answer_body(outputs, rows):
    """Writes outputs as a server answers a REST request.

    Args:
        outputs: Dictionary from output names to arrays.
        rows: Whether the request came in rows.

    Returns:
        A dictionary to be sent as JSON.
    """
    columns = {name: _shortest(value) for name, value in outputs.items()}
    if len(columns) == 1:
        values = next(iter(columns.values()))
        return {"predictions" if rows else "outputs": values}
    if not rows:
        return {"outputs": columns}
    instances = zip(*columns.values(), strict=True)
    return {
        "predictions": [
            dict(zip(columns, row, strict=True)) for row in instances
        ]
    }


def _shortest(value):
    """Nested lists; floats with no more digits than their type holds."""
    if value.dtype.kind == "f":
        flat = [float(str(number)) for number in value.ravel()]
        value = np.array(flat).reshape(value.shape)
    if value.dtype.kind == "O":
        value = np.array([x.decode() for x in value.flat]).reshape(value.shape)
    return value.tolist()


def _body(path, body, write):
    text = json.dumps(body)
    if len(text) <= _LONGEST_SHOWN and "'" not in text:
        write(path, None)
        return f"'{text}'"
    write(path, text + "\n")
    return f"@{path.name}"


def _grpc_inputs(requests, specs):
    defaults = [r for r in requests if r.signature == "serving_default"]
    lines = []
    for name, spec in specs.items():
        dtype = f"tf.{spec.dtype.name}"
        if defaults and defaults[0].inputs[name].size <= 32:
            value = f"{defaults[0].inputs[name].tolist()!r}, {dtype}"
        else:
            shape = [size or 1 for size in spec.shape]
            value = f"tf.zeros({shape}, {dtype})"
        lines.append(
            f'request.inputs["{name}"].CopyFrom(\n'
            f"    tf.make_tensor_proto({value}))"
        )
    return "\n".join(lines)

"""A model server for tests: the predict protocol over one version folder.

Reads JSON bodies in its own way, so that a mistake of the client shows.
"""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from google.protobuf import json_format

from keras_attention.export.metadata import read_graph
from keras_attention.export.runner import Runner

DTYPES = {1: "float32", 3: "int32", 7: object, 9: "int64", 10: "bool"}


class Refused(Exception):
    pass


def tensor(name, values, dtype):
    def convert(value):
        if isinstance(value, list):
            return [convert(item) for item in value]
        if isinstance(value, dict):
            return base64.b64decode(value["b64"])
        return value.encode() if isinstance(value, str) else value

    if DTYPES[dtype] is object:
        return np.array(convert(values), object)
    try:
        array = np.array(convert(values))
    except ValueError:
        raise Refused(f"ragged rows in input {name}") from None
    if array.dtype.kind == "f" and "int" in DTYPES[dtype]:
        raise Refused(f"input {name} is not of type {DTYPES[dtype]}")
    return array.astype(DTYPES[dtype])


def inputs_of(body, signature):
    names = sorted(signature.inputs)
    if "instances" in body:
        rows = body["instances"]
        if not isinstance(rows[0], dict) or "b64" in rows[0]:
            columns = dict.fromkeys(names, rows)
        else:
            columns = {name: [row[name] for row in rows] for name in names}
    elif isinstance(body["inputs"], dict):
        columns = body["inputs"]
    else:
        columns = dict.fromkeys(names, body["inputs"])
    if sorted(columns) != names:
        raise Refused(f"expected inputs {names}, got {sorted(columns)}")
    return {
        name: tensor(name, columns[name], signature.inputs[name].dtype)
        for name in names
    }


def answer_to(body, graph, run):
    name = body.get("signature_name", "serving_default")
    signature = graph.signature_def[name]
    outputs = run(name, inputs_of(body, signature))
    columns = {key: value.tolist() for key, value in outputs.items()}
    single = len(columns) == 1
    if "inputs" in body:
        return {"outputs": next(iter(columns.values())) if single else columns}
    rows = list(zip(*columns.values(), strict=True))
    if single:
        return {"predictions": [row[0] for row in rows]}
    return {"predictions": [dict(zip(columns, r, strict=True)) for r in rows]}


def metadata(graph):
    signatures = {
        name: json_format.MessageToDict(
            one,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for name, one in graph.signature_def.items()
    }
    return {"metadata": {"signature_def": {"signature_def": signatures}}}


@contextlib.contextmanager
def serve(path, model_name):
    """Serves a version folder; yields the address of the model."""
    graph = read_graph(path)
    lock = threading.Lock()
    address = f"/v1/models/{model_name}"

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.reply(200, metadata(graph))

        def do_POST(self):
            size = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(size))
            allowed = (f"{address}:predict", f"{address}/labels/stable:predict")
            if self.path not in allowed:
                self.reply(404, {"error": "Servable not found"})
                return
            try:
                with lock:
                    self.reply(200, answer_to(body, graph, runner.run))
            except Exception as error:
                self.reply(400, {"error": str(error)})

        def reply(self, status, content):
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with Runner(path) as runner:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{address}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

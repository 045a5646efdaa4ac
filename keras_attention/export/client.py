"""Requests to a model server: checked, padded and sent.

What a signature cannot take is refused here, with the name of the input,
before it travels.
"""

import dataclasses
import json
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_attention.export.encoding import to_array, to_json
from keras_attention.export.messages import predict_request
from keras_attention.export.metadata import read_graph, read_signatures


@dataclasses.dataclass
class Client:
    """Speaks to one model on a server, by REST or gRPC.

    Args:
        signatures: Dictionary from signature names to pairs of dictionaries,
            inputs and outputs, from names to `tf.TensorSpec`.
        url: Address of the model, such as
            `http://localhost:8501/v1/models/sentiment`; a version or a label
            can follow, as in `.../labels/canary`.

    Example:

    ```python
    client = Client.from_server("http://localhost:8501/v1/models/sentiment")
    client.predict({"ids": [[4, 7, 2], [9]]}, pad_value=0)
    client.predict("a good film", signature="text")
    ```
    """

    signatures: dict
    url: str | None = None

    @classmethod
    def from_folder(cls, path, url=None):
        """Reads the signatures of a version folder."""
        return cls(read_signatures(read_graph(path)), url)

    @classmethod
    def from_server(cls, url, timeout=60.0):
        """Asks a running server for the signatures of a model."""
        answer = _send(f"{url}/metadata", None, timeout)
        found = answer["metadata"]["signature_def"]["signature_def"]
        signatures = {
            name: (_specs(one["inputs"]), _specs(one["outputs"]))
            for name, one in found.items()
            if not name.startswith("__")
        }
        return cls(signatures, url)

    def arrays(self, inputs, signature="serving_default", pad_value=None):
        """Turns inputs into the arrays that a signature takes.

        Args:
            inputs: Dictionary from input names to arrays or nested lists, or
                the value alone where there is one input. Texts may be a
                string or a list of strings.
            signature: Name of the signature.
            pad_value: What fills up rows of different length; None refuses
                them. Use the id that the model masks, most often 0.

        Returns:
            Dictionary from input names to arrays.

        Raises:
            ValueError: an input is missing, unknown, ragged or of a wrong
                shape; the message names it.
            TypeError: an input is of a wrong type; the message names it.
        """
        specs = self._inputs_of(signature)
        if not isinstance(inputs, dict):
            if len(specs) != 1:
                raise ValueError(
                    f"The signature {signature!r} takes the inputs "
                    f"{sorted(specs)}: pass a dictionary. "
                    f"Received: inputs of type {type(inputs).__name__}"
                )
            inputs = dict.fromkeys(specs, inputs)
        if set(inputs) != set(specs):
            raise ValueError(
                f"The signature {signature!r} takes the inputs "
                f"{sorted(specs)}. Received: {sorted(inputs)}"
            )
        arrays = {
            name: to_array(name, inputs[name], spec, pad_value)
            for name, spec in specs.items()
        }
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                "All inputs must have as many rows as each other. "
                f"Received: rows by input {sizes}"
            )
        return arrays

    def rest_body(
        self, inputs, signature="serving_default", rows=True, pad_value=None
    ):
        """Builds the JSON body of a predict request.

        Args:
            inputs: As in `arrays`.
            signature: Name of the signature.
            rows: Whether in row format (`instances`) or in column format
                (`inputs`).
            pad_value: As in `arrays`.

        Returns:
            A dictionary to be sent as JSON.
        """
        arrays = self.arrays(inputs, signature, pad_value)
        columns = {
            name: to_json(array.tolist()) for name, array in arrays.items()
        }
        body = {"signature_name": signature}
        if not rows:
            return {**body, "inputs": columns}
        if len(columns) == 1:
            return {**body, "instances": next(iter(columns.values()))}
        instances = zip(*columns.values(), strict=True)
        return {
            **body,
            "instances": [
                dict(zip(columns, row, strict=True)) for row in instances
            ],
        }

    def grpc_request(
        self,
        inputs,
        model_name,
        signature="serving_default",
        pad_value=None,
        version=None,
        label=None,
    ):
        """Builds a `PredictRequest` for `PredictionService.Predict`.

        Args:
            inputs: As in `arrays`.
            model_name: Name of the model on the server.
            signature: Name of the signature.
            pad_value: As in `arrays`.
            version: Number of a version; None for the server's choice.
            label: Label of a version, instead of its number.

        Returns:
            A `tensorflow_serving.apis.predict_pb2.PredictRequest`.
        """
        arrays = self.arrays(inputs, signature, pad_value)
        specs = self._inputs_of(signature)
        request = predict_request(arrays, specs, model_name, signature)
        if version is not None:
            request.model_spec.version.value = version
        if label is not None:
            request.model_spec.version_label = label
        return request

    def predict(
        self,
        inputs,
        signature="serving_default",
        rows=False,
        pad_value=None,
        timeout=60.0,
    ):
        """Sends a REST request.

        Args:
            inputs: As in `arrays`.
            signature: Name of the signature.
            rows: Whether to send rows or columns; the answer is the same.
            pad_value: As in `arrays`.
            timeout: Seconds to wait.

        Returns:
            Dictionary from output names to arrays.

        Raises:
            RuntimeError: the server refuses; with its message.
        """
        if self.url is None:
            raise ValueError("The client has no `url` to send requests to.")
        body = self.rest_body(inputs, signature, rows, pad_value)
        answer = _send(f"{self.url}:predict", body, timeout)
        specs = self.signatures[signature][1]
        if "outputs" in answer:
            columns = answer["outputs"]
            if len(specs) == 1:
                columns = dict.fromkeys(specs, columns)
        elif len(specs) == 1:
            columns = dict.fromkeys(specs, answer["predictions"])
        else:
            columns = {
                name: [row[name] for row in answer["predictions"]]
                for name in specs
            }
        return {
            name: np.array(columns[name], _numpy_dtype(spec))
            for name, spec in specs.items()
        }

    def _inputs_of(self, signature):
        if signature not in self.signatures:
            raise ValueError(
                f"The model has the signatures {sorted(self.signatures)}. "
                f"Received: signature={signature!r}"
            )
        return self.signatures[signature][0]


def _specs(infos):
    """Reads tensor specs from the JSON form of a signature."""
    return {
        name: tf.TensorSpec(
            None
            if info["tensor_shape"].get("unknown_rank")
            else [
                None if int(dim["size"]) < 0 else int(dim["size"])
                for dim in info["tensor_shape"].get("dim", ())
            ],
            tf.dtypes.as_dtype(types_pb2.DataType.Value(info["dtype"])),
            name=name,
        )
        for name, info in sorted(infos.items())
    }


def _numpy_dtype(spec):
    return object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype


def _send(url, body, timeout):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise RuntimeError(f"The server answers {error.code}: {text}") from None

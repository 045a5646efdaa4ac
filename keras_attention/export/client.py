"""Requests to a model server: checked, padded and sent.

What a signature cannot take is refused here, with the name of the input,
before it travels.
"""

import dataclasses
import json

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_attention.export.encoding import from_json, to_array, to_json
from keras_attention.export.messages import predict_request
from keras_attention.export.metadata import read_graph, read_signatures
from keras_attention.export.transport import ServerError, send

# Of an answer, in bytes: scores of attention for 512 tokens and 64 heads in
# JSON are within it.
_MAX_BYTES = 1 << 28


@dataclasses.dataclass
class Client:
    """Speaks to one model on a server, by REST or gRPC.

    Args:
        signatures: Dictionary from signature names to pairs of dictionaries,
            inputs and outputs, from names to `tf.TensorSpec`.
        url: Address of the model, such as
            `http://localhost:8501/v1/models/sentiment`; a version or a label
            can follow, as in `.../labels/canary`.
        max_bytes: Largest answer to read.

    Raises:
        ServerError: the server cannot be reached, refuses, or answers what
            is no answer; it has the attributes `url`, `status` and `text`.

    Example:

    ```python
    client = Client.from_server("http://localhost:8501/v1/models/sentiment")
    client.predict({"ids": [[4, 7, 2], [9]]}, pad_value=0)
    client.predict("a good film", signature="text")
    ```
    """

    signatures: dict
    url: str | None = None
    max_bytes: int = _MAX_BYTES

    @classmethod
    def from_folder(cls, path, url=None):
        """Reads the signatures of a version folder."""
        return cls(read_signatures(read_graph(path)), url)

    @classmethod
    def from_server(cls, url, timeout=60.0):
        """Asks a running server for the signatures of a model."""
        address = f"{url}/metadata"
        answer = send(address, None, timeout, _MAX_BYTES)
        try:
            found = answer["metadata"]["signature_def"]["signature_def"]
            signatures = {
                name: (_specs(one["inputs"]), _specs(one["outputs"]))
                for name, one in found.items()
                if not name.startswith("__")
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ServerError(
                address, "The answer has no signatures.", 200, str(answer)
            ) from None
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
            ServerError: the server cannot be reached, refuses, or answers
                what is no answer.
            ValueError: the inputs are none of the signature, see `arrays`.
            TypeError: likewise.
        """
        if self.url is None:
            raise ValueError("The client has no `url` to send requests to.")
        body = self.rest_body(inputs, signature, rows, pad_value)
        address = f"{self.url}:predict"
        answer = send(address, body, timeout, self.max_bytes)
        specs = self.signatures[signature][1]
        try:
            columns = _columns(answer, specs)
            return {
                name: from_json(name, columns[name], spec)
                for name, spec in specs.items()
            }
        except (KeyError, TypeError, ValueError) as error:
            reason = "The answer is not one of this signature: "
            reason += str(error) or type(error).__name__
            text = json.dumps(answer)
            raise ServerError(address, reason, 200, text) from error

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


def _columns(answer, specs):
    """Returns the outputs of an answer by name, as they came.

    Args:
        answer: `{"outputs": ...}` by column or `{"predictions": ...}` by row.
        specs: Dictionary of the outputs.
    """
    if ("outputs" in answer) == ("predictions" in answer):
        raise ValueError("it has neither `outputs` nor `predictions`")
    if "outputs" in answer:
        outputs = answer["outputs"]
        by_name = isinstance(outputs, dict) and outputs.keys() == specs.keys()
        if len(specs) == 1 and not by_name:
            return dict.fromkeys(specs, outputs)
        return _with_names(outputs, specs)
    rows = answer["predictions"]
    if not isinstance(rows, list):
        raise ValueError("`predictions` is no list")
    if len(specs) == 1:
        return dict.fromkeys(specs, rows)
    rows = [_with_names(row, specs) for row in rows]
    return {name: [row[name] for row in rows] for name in specs}


def _with_names(outputs, specs):
    """Returns outputs by name, if they are all those of a signature."""
    if not isinstance(outputs, dict) or outputs.keys() != specs.keys():
        names = sorted(outputs) if isinstance(outputs, dict) else outputs
        raise ValueError(f"the outputs are {sorted(specs)}, not {names}")
    return outputs

"""Requests are built right, and wrong ones are refused by input name."""

import concurrent.futures
import json

import grpc
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.rest_server import serve
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from keras_attention.export import Client, export_for_serving
from keras_attention.export.runner import Runner
from keras_attention.export.transport import send

RAGGED = [[2, 4], [5, 3, 4, 2]]
PADDED = np.array([[2, 4, 0, 0], [5, 3, 4, 2]], "int32")
TEXTS = ["good film", "very bad film good"]


@pytest.fixture(scope="module")
def address(exported):
    with serve(exported("text").path, "text") as url:
        yield url


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A model of two inputs and two outputs, one with a dash in its name."""
    ids = keras.Input((None,), dtype="int64", name="ids")
    flags = keras.Input((3,), dtype="bool", name="flags-set")
    size = keras.Input((4,), name="size")
    pooled = layers.GlobalMaxPooling1D()(layers.Embedding(9, 4)(ids))
    joined = layers.Concatenate()(
        [pooled, size, keras.ops.cast(flags, "float32")]
    )
    outputs = {"b": layers.Dense(2)(joined), "a": layers.Dense(1)(joined)}
    model = keras.Model([ids, flags, size], outputs)
    return export_for_serving(model, tmp_path_factory.mktemp("m") / "several")


@pytest.mark.parametrize("rows", [True, False])
def test_every_signature_answers_over_rest(exported, address, rows):
    client = Client.from_server(address)
    expected = exported("text").model.predict(PADDED, verbose=0)
    for inputs, signature in (
        ({"ids": RAGGED}, "serving_default"),
        (TEXTS, "text"),
        ({"ids": PADDED}, "attention"),
    ):
        answer = client.predict(inputs, signature, rows, pad_value=0)
        np.testing.assert_allclose(answer["label"], expected, atol=1e-6)
        assert answer["label"].dtype == np.float32
    assert answer["reader_scores"].shape == (2, 2, 4, 4)
    one = client.predict("good film", "text", rows)["label"]
    np.testing.assert_allclose(one, expected[:1], atol=1e-6)


def test_serialized_examples_travel_as_base64(exported, address):
    client = Client.from_folder(exported("text").path, address)
    values = [
        tf.train.Feature(int64_list=tf.train.Int64List(value=row))
        for row in RAGGED
    ]
    examples = [
        tf.train.Example(
            features=tf.train.Features(feature={"ids": value})
        ).SerializeToString()
        for value in values
    ]
    body = client.rest_body(examples, "examples")
    assert set(body["instances"][0]) == {"b64"}
    answer = client.predict(examples, "examples")
    expected = exported("text").model.predict(PADDED, verbose=0)
    np.testing.assert_allclose(answer["label"], expected, atol=1e-6)


def test_zero_bytes_at_the_end_of_strings_arrive(exported, address):
    """An example whose row ends on the id 0 ends on a zero byte."""
    client = Client.from_folder(exported("text").path, address)
    rows = [[2, 4, 0, 0], [5, 3, 4, 2], [7, 0, 0, 0]]
    examples = []
    for row in rows:
        ids = tf.train.Feature(int64_list=tf.train.Int64List(value=row))
        features = tf.train.Features(feature={"ids": ids})
        examples.append(tf.train.Example(features=features).SerializeToString())
    assert examples[0].endswith(b"\0")
    assert client.arrays(examples, "examples")["examples"].tolist() == examples
    for as_rows in (True, False):
        answer = client.predict(examples, "examples", as_rows)["label"]
        expected = client.predict({"ids": rows})["label"]
        np.testing.assert_array_equal(answer, expected)
    request = client.grpc_request(examples, "text", "examples")
    assert list(request.inputs["examples"].string_val) == examples


def test_zero_bytes_survive_filling_up():
    specs = {"words": tf.TensorSpec((None, None), "string")}
    client = Client({"serving_default": (specs, {})})
    rows = [[b"a\0", b"\0\0"], [b"c\0\0"]]
    found = client.arrays(rows, pad_value=b"\0")["words"]
    assert found.tolist() == [[b"a\0", b"\0\0"], [b"c\0\0", b"\0"]]


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        ("float32", 1e300, "1e\\+300"),
        ("float32", 2**24 + 1, "16777217"),
        ("float64", 2**53 + 1, "9007199254740993"),
        ("float16", 70000.0, "70000"),
        ("bfloat16", 257, "257"),
        ("uint8", 256, "256"),
        ("uint8", -1, "-1"),
        ("int64", 2**63, "9223372036854775808"),
        ("int32", 2**31, "2147483648"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_name(dtype, value, shown):
    client = Client(
        {"serving_default": ({"x": tf.TensorSpec((None,), dtype)}, {})}
    )
    with pytest.raises(ValueError, match=f"'x' is {dtype}.*{shown}"):
        client.arrays([value])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 0.1),
        ("float32", float("inf")),
        ("float32", float("nan")),
        ("float32", 2**24 + 2),
        ("float64", -(2**53)),
        ("bfloat16", 256),
        ("uint8", 255),
        ("int64", 2**63 - 1),
        ("uint64", 2**64 - 1),
    ],
)
def test_numbers_that_fit_are_taken(dtype, value):
    client = Client(
        {"serving_default": ({"x": tf.TensorSpec((None,), dtype)}, {})}
    )
    found = client.arrays([value])["x"]
    expected = np.array([value]).astype(found.dtype)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "value", [["a", 1], [1, "a"], ["a", None], [b"a", 2.5]]
)
def test_strings_mixed_with_others_are_refused(value):
    specs = {"words": tf.TensorSpec((None,), "string")}
    client = Client({"serving_default": (specs, {})})
    with pytest.raises(TypeError, match="'words' takes strings.*Received"):
        client.arrays(value)


def test_server_and_folder_tell_the_same_signatures(exported, address):
    folder = Client.from_folder(exported("text").path)
    server = Client.from_server(address + "/labels/stable")
    assert server.signatures == folder.signatures
    answer = server.predict({"ids": PADDED})
    assert answer["label"].shape == (2, 3)


def test_bodies_of_several_inputs(several):
    client = Client.from_folder(several)
    inputs = {
        "ids": [[1, 2], [3, 4]],
        "flags-set": np.eye(2, 3, dtype=bool),
        "size": np.ones((2, 4)),
    }
    body = client.rest_body(inputs)
    assert body["instances"][1] == {
        "flags-set": [False, True, False],
        "ids": [3, 4],
        "size": [1.0, 1.0, 1.0, 1.0],
    }
    columns = client.rest_body(inputs, rows=False)["inputs"]
    assert columns["ids"] == [[1, 2], [3, 4]]
    json.dumps([body, columns])
    with serve(several, "several") as url:
        client.url = url
        rows = client.predict(inputs, rows=True)
        columns = client.predict(inputs, rows=False)
    assert sorted(rows) == ["a", "b"] and rows["b"].shape == (2, 2)
    for name, value in rows.items():
        np.testing.assert_array_equal(value, columns[name])


@pytest.mark.parametrize("rows", [True, False])
def test_ragged_rows_are_refused_by_name(exported, address, rows):
    client = Client.from_folder(exported("text").path, address)
    with pytest.raises(ValueError, match="input 'ids' has rows of different"):
        client.rest_body({"ids": RAGGED}, rows=rows)
    key = "instances" if rows else "inputs"
    value = RAGGED if rows else {"ids": RAGGED}
    with pytest.raises(RuntimeError, match="400.*ragged rows in input ids"):
        send(f"{address}:predict", {key: value}, 60.0, 1 << 20)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"ids": [[1.5]]}, TypeError, "'ids' takes integers"),
        ({"ids": [["a"]]}, TypeError, "'ids' takes integers"),
        ({"ids": [[2**40]]}, ValueError, "'ids' is int32"),
        ({"ids": [1, 2]}, ValueError, "'ids' takes the shape.*batch axis"),
        ({"ids": []}, ValueError, "'ids'"),
        ({"words": [[1]]}, ValueError, r"takes the inputs \['ids'\]"),
        ({"ids": [[1, [2]]]}, ValueError, "'ids' has rows of different"),
        ({"ids": [["1", 2]]}, TypeError, "'ids' takes integers"),
    ],
)
def test_what_a_signature_cannot_take_is_refused(
    exported, inputs, error, message
):
    client = Client.from_folder(exported("text").path)
    with pytest.raises(error, match=message):
        client.arrays(inputs)


def test_wrong_types_and_sizes_of_several_inputs(several):
    client = Client.from_folder(several)
    good = {"ids": [[1]], "flags-set": [[True] * 3], "size": [[1, 2, 3, 4]]}
    assert client.arrays(good)["size"].dtype == np.float32
    for name, value, error, message in (
        ("flags-set", [[1, 0, 1]], TypeError, "'flags-set' takes booleans"),
        ("size", [[1, 2, 3]], ValueError, "'size' takes the shape"),
        ("size", [["1", "2", "3", "4"]], TypeError, "'size' takes numbers"),
        ("ids", [[1], [2]], ValueError, "rows by input"),
    ):
        with pytest.raises(error, match=message):
            client.arrays({**good, name: value})
    with pytest.raises(ValueError, match="pass a dictionary"):
        client.arrays([[1]])
    with pytest.raises(ValueError, match="Received: signature='none'"):
        client.arrays(good, "none")


def test_padding_fills_up_to_a_fixed_length(tmp_path):
    ids = keras.Input((6,), dtype="int32", name="ids")
    x = layers.Flatten()(layers.Embedding(9, 2)(ids))
    path = export_for_serving(keras.Model(ids, x), tmp_path)
    arrays = Client.from_folder(path).arrays(RAGGED, pad_value=0)
    expected = [[2, 4, 0, 0, 0, 0], [5, 3, 4, 2, 0, 0]]
    np.testing.assert_array_equal(arrays["ids"], expected)


def test_grpc_requests_run(exported):
    served = exported("text")

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            outputs = runner.run(request.model_spec.signature_name, inputs)
            answer = predict_pb2.PredictResponse()
            for name, value in outputs.items():
                answer.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return answer

    client = Client.from_folder(served.path)
    request = client.grpc_request(
        {"ids": RAGGED}, "text", pad_value=0, label="canary"
    )
    assert request.model_spec.version_label == "canary"
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    server = grpc.server(pool)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Service(), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    with Runner(served.path) as runner:
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            answer = stub.Predict(request, timeout=60.0)
        server.stop(None).wait()
    expected = served.model.predict(PADDED, verbose=0)
    label = tf.make_ndarray(answer.outputs["label"])
    np.testing.assert_allclose(label, expected, atol=1e-6)


def test_a_client_without_address_says_so(exported):
    client = Client.from_folder(exported("text").path)
    with pytest.raises(ValueError, match="no `url`"):
        client.predict({"ids": PADDED})


@pytest.mark.parametrize(
    ("ids", "pad_value", "error", "message"),
    [
        (None, 0, ValueError, "'ids' has no rows"),
        ([], 0, ValueError, "'ids' has no rows"),
        ([], None, ValueError, "'ids' has no rows"),
        (5, 0, ValueError, "'ids' takes the shape"),
        ([[1, None]], None, TypeError, "'ids' takes int32"),
        (RAGGED, -1.5, TypeError, "pad_value.*takes integers"),
        (RAGGED, "a", TypeError, "pad_value.*takes integers"),
        (RAGGED, 2**40, ValueError, "pad_value.*is int32"),
    ],
)
def test_what_cannot_be_filled_up_is_refused(
    exported, ids, pad_value, error, message
):
    client = Client.from_folder(exported("text").path)
    with pytest.raises(error, match=message):
        client.arrays({"ids": ids}, pad_value=pad_value)


def test_one_filler_does_for_inputs_of_every_type():
    specs = {
        "ids": tf.TensorSpec((None, None), "int32"),
        "mask": tf.TensorSpec((None, None), "bool"),
        "words": tf.TensorSpec((None, None), "string"),
    }
    client = Client({"serving_default": (specs, {})})
    arrays = client.arrays(
        {
            "ids": [[1, 2], [3]],
            "mask": [[True, True], [True]],
            "words": [["a", "b"], ["c"]],
        },
        pad_value=0,
    )
    assert arrays["ids"].tolist() == [[1, 2], [3, 0]]
    assert arrays["mask"].tolist() == [[True, True], [True, False]]
    assert arrays["words"].tolist() == [["a", "b"], ["c", ""]]

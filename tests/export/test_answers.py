"""Whatever a server answers is read rightly or named in one error."""

import base64
import json
import socket

import numpy as np
import pytest
import tensorflow as tf
from support.odd_server import answering, http

from keras_attention.export import Client, ServerError

FLOATS = {"x": tf.TensorSpec((None, 2), "float32")}
PAIR = {
    "x": tf.TensorSpec((None, 2), "float32"),
    "n": tf.TensorSpec((None,), "int32"),
}
WORDS = {"words": tf.TensorSpec((None,), "string")}
GOOD = '{"predictions": [[1, 2.5], [3, 4]]}'


def client(url, outputs=FLOATS, **options):
    inputs = {"ids": tf.TensorSpec((None, None), "int32")}
    return Client({"serving_default": (inputs, outputs)}, url, **options)


def ask(answer, outputs=FLOATS, **options):
    with answering(answer) as (url, _):
        return client(url, outputs, **options).predict([[1, 2]])


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        '{"outputs": [[1, 2.5], [3, 4]]}',
        '{"outputs": {"x": [[1, 2.5], [3, 4]]}}',
        '  {"predictions":\n[[1.0, 2.5], [3e0, 4]], "more": null}',
    ],
)
def test_one_output_is_read_in_every_form(body):
    np.testing.assert_array_equal(ask(http(body))["x"], [[1, 2.5], [3, 4]])


def test_several_outputs_are_read_by_row_and_by_column():
    rows = {"predictions": [{"x": [1, 2], "n": 7}, {"x": [3, 4], "n": 8}]}
    columns = {"outputs": {"x": [[1, 2], [3, 4]], "n": [7, 8]}}
    for body in (rows, columns):
        found = ask(http(json.dumps(body)), PAIR)
        assert found["n"].tolist() == [7, 8] and found["n"].dtype == np.int32
        assert found["x"].tolist() == [[1, 2], [3, 4]]


def test_strings_and_base64_are_read_with_their_zero_bytes():
    raw = b"\xff\x00a\x00\x00"
    encoded = {"b64": base64.b64encode(raw).decode()}
    found = ask(http(json.dumps({"outputs": [encoded, "plain"]})), WORDS)
    assert found["words"].tolist() == [raw, "plain"]


def test_numbers_that_are_none_of_json_are_read():
    found = ask(http('{"predictions": [[NaN, -Infinity]]}'))["x"]
    assert np.isnan(found[0, 0]) and found[0, 1] == -np.inf


ODD = {
    "HTML": (http("<html>Welcome</html>"), "is no JSON.*<html>Welcome"),
    "empty": (http(""), "answer is empty"),
    "a list": (http("[[1, 2]]"), r"no JSON object.*\[\[1, 2\]\]"),
    "a number": (http("3"), "no JSON object"),
    "null": (http("null"), "no JSON object"),
    "cut JSON": (http(GOOD[:20]), "is no JSON"),
    "a short body": (http(GOOD, length=500), "is cut.*predictions"),
    "no body at all": (http("", length=500), "is cut"),
    "an error with status 200": (
        http('{"error": "out of memory"}'),
        "refuses: out of memory.*200",
    ),
    "an error": (
        http('{"error": "Servable not found"}', "404 Not Found"),
        "refuses: Servable not found.*404",
    ),
    "an error of HTML": (
        http("<h1>Bad Gateway</h1>", "502 Bad Gateway"),
        "refuses.*502.*<h1>Bad Gateway",
    ),
    "a cut error": (http("gone", "500 Oh", length=99), "refuses.*500"),
    "sent on": (
        http("", "302 Found", "Location: http://localhost:1/other\r\n"),
        "sends on to http://localhost:1/other.*302",
    ),
    "sent on for good": (
        http("", "308 Moved", "Location: /v2\r\n"),
        "sends on to /v2.*308",
    ),
    "no HTTP": (b"220 mail ready\r\n", "cannot be reached"),
    "nothing": (b"", "cannot be reached"),
    "null for a number": (http('{"predictions": [[1, null]]}'), "'x' takes"),
    "a string for a number": (http('{"predictions": [[1, "2"]]}'), "'x' takes"),
    "a flag for a number": (http('{"outputs": [[true, false]]}'), "'x' takes"),
    "too few numbers": (http('{"outputs": [[1], [2]]}'), r"'x' has the shape"),
    "too many axes": (http('{"outputs": [[[1, 2]]]}'), "'x' has the shape"),
    "rows of two lengths": (
        http('{"predictions": [[1, 2], [3]]}'),
        "'x' has rows of different lengths",
    ),
    "a number too large": (http('{"outputs": [[1e300, 2]]}'), "cannot hold"),
    "neither key": (http('{"result": 1}'), "neither `outputs` nor"),
    "no list": (http('{"predictions": 5}'), "`predictions` is no list"),
    "another output": (http('{"outputs": {"y": [[1, 2]]}}'), "'x' takes"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_is_one_error_that_shows_it(name):
    answer, words = ODD[name]
    with answering(answer) as (url, _):
        with pytest.raises(ServerError, match=f"(?s){words}") as caught:
            client(url).predict([[1, 2]])
    assert f"{url}:predict: " in str(caught.value)
    assert caught.value.url == f"{url}:predict"
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize(
    "body",
    [
        {"predictions": [[1, 2]]},
        {"predictions": [{"x": [1, 2]}]},
        {"predictions": [{"x": [1, 2], "n": 1, "z": 2}]},
        {"outputs": {"x": [[1, 2]]}},
        {"outputs": [[1, 2]]},
        {"predictions": [{"x": [1, 2], "n": 1.5}]},
        {"predictions": [{"x": [1, 2], "n": 2**40}]},
        {"outputs": {"x": [[1, 2]], "n": [None]}},
    ],
)
def test_answers_that_lack_an_output_or_distort_one(body):
    with pytest.raises(ServerError, match="not one of this signature"):
        ask(http(json.dumps(body)), PAIR)


@pytest.mark.parametrize("value", [{"b64": "!"}, {"b64": 5}, {"c": "a"}, 3])
def test_what_is_no_string(value):
    with pytest.raises(ServerError, match="not one of this signature"):
        ask(http(json.dumps({"outputs": [value]})), WORDS)


def test_an_answer_has_an_upper_size():
    body = json.dumps({"predictions": [[0.5, 0.25]] * 1000})
    assert ask(http(body), max_bytes=len(body))["x"].shape == (1000, 2)
    with pytest.raises(ServerError, match="larger than 500 bytes.*max_bytes"):
        ask(http(body), max_bytes=500)


def test_a_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/models/none"
    with pytest.raises(ServerError, match=f"{url}:predict: .*reached.*refused"):
        client(url).predict([[1]])
    with pytest.raises(ServerError, match=f"{url}/metadata: .*reached"):
        Client.from_server(url)
    with pytest.raises(ServerError, match="nowhere.invalid"):
        client("http://nowhere.invalid/v1/models/m").predict([[1]])


def test_a_server_that_does_not_answer_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/m"
        with pytest.raises(ServerError, match="No answer within 0.2 s"):
            client(url).predict([[1]], timeout=0.2)


@pytest.mark.parametrize(
    "body",
    ['{"metadata": {}}', "{}", '{"metadata": {"signature_def": []}}'],
)
def test_answers_without_signatures(body):
    with answering(http(body)) as (url, _):
        with pytest.raises(ServerError, match="has no signatures"):
            Client.from_server(url)


def test_a_request_is_sent_once():
    answer = http("", "307 Other", "Location: http://localhost:1/other\r\n")
    with answering(answer) as (url, requests):
        with pytest.raises(ServerError):
            client(url).predict([[1]])
    assert len(requests) == 1 and requests[0][0].startswith(b"POST")

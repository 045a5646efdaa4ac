"""Warm-up records are requests that the version answers."""

import sys

import keras
import pytest
import tensorflow as tf
from keras import layers
from tensorflow_serving.apis import prediction_log_pb2

from keras_attention.export import export_for_serving
from keras_attention.export.runner import Runner


def small_model():
    return keras.Sequential([keras.Input((3,)), layers.Dense(2)])


def warm_up_file(path):
    return path / "assets.extra" / "tf_serving_warmup_requests"


def test_warm_up_requests_run(exported):
    path = exported("text").path
    records = tf.data.TFRecordDataset(str(warm_up_file(path)))
    seen = set()
    with Runner(path) as runner:
        for record in records.as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            assert request.model_spec.name == "text"
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            name = request.model_spec.signature_name
            assert runner.run(name, inputs)["label"].shape == (1, 3)
            length = inputs["ids"].shape[1] if "ids" in inputs else None
            seen.add((name, length))
    assert {name for name, _ in seen} == {
        "attention",
        "examples",
        "serving_default",
        "text",
    }
    lengths = {n for name, n in seen if name == "serving_default"}
    assert lengths == {8, 32, 128}


def test_the_extra_is_needed_only_where_asked_for(tmp_path, monkeypatch):
    missing = "tensorflow_serving.apis.prediction_log_pb2"
    monkeypatch.setitem(sys.modules, missing, None)
    path = export_for_serving(small_model(), tmp_path / "m")
    assert not warm_up_file(path).exists()
    with pytest.raises(ImportError, match=r"keras_attention\[serving\]"):
        export_for_serving(small_model(), tmp_path / "n", warm_up=True)
    assert not (tmp_path / "n").exists()


def test_warm_up_can_be_left_out(tmp_path):
    path = export_for_serving(small_model(), tmp_path, warm_up=False)
    assert not warm_up_file(path).exists()

"""A good folder passes, and each planted fault is named."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.served_models import encoded_ids, text_classifier

from keras_attention.export import check, export_for_serving
from keras_attention.export.checks import CHECKS

IDS_SPEC = tf.TensorSpec((None, None), "int32", name="ids")


def save(model, folder, function, spec=IDS_SPEC):
    """Saves a signature as someone without this package would."""
    module = tf.Module()
    module.state = [variable.value for variable in model.variables]
    serve = tf.function(function, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(folder), {"serving_default": serve})


def saved_keras_model(folder):
    tf.saved_model.save(text_classifier(), str(folder))


def dropout_on(folder):
    model = text_classifier()
    save(model, folder, lambda ids: {"y": model(ids, training=True)})


def length_in_the_signature(folder):
    model = text_classifier()
    spec = tf.TensorSpec((None, 5), "int32", name="ids")
    save(model, folder, lambda ids: {"y": model(ids, training=False)}, spec)


def length_in_the_graph(folder):
    model = text_classifier()

    def serve(ids):
        return {"y": model(tf.reshape(ids, (-1, 5)), training=False)}

    save(model, folder, serve)


def mask_dropped(folder):
    ids, x = encoded_ids()
    model = keras.Model(ids, layers.Dense(3)(keras.ops.mean(x, axis=1)))
    save(model, folder, lambda ids: {"y": model(ids, training=False)})


def not_a_number(folder):
    model = text_classifier()
    save(model, folder, lambda ids: {"y": tf.math.log(-tf.exp(model(ids)))})


def python_inside(folder):
    model = text_classifier()

    def serve(ids):
        result = tf.py_function(lambda x: x, [model(ids)], tf.float32)
        return {"y": tf.ensure_shape(result, (None, 3))}

    save(model, folder, serve)


def weights_twice(folder):
    text_classifier().export(folder, verbose=False)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (saved_keras_model, ["weights restored"]),
        (dropout_on, ["dropout off"]),
        (length_in_the_signature, ["any size"]),
        (length_in_the_graph, ["any size"]),
        (mask_dropped, ["padding hidden"]),
        (not_a_number, ["finite"]),
        (python_inside, ["plain ops", "runs"]),
        (weights_twice, ["weights stored once"]),
    ],
)
def test_planted_faults_are_found(tmp_path, plant, found):
    plant(tmp_path)
    report = check(tmp_path, batch_sizes=(1, 3), lengths=(5, 9))
    assert report.failures == found
    assert not report.ok
    advice = {r.name: r.advice for r in report.results}
    assert all(advice[name] for name in found)
    assert not check(tmp_path, skip=CHECKS, lengths=(5,)).failures


@pytest.mark.parametrize(
    "kind", ["text", "tagger", "image", "mixed_float16", "mixed_bfloat16"]
)
def test_exports_of_this_package_pass(exported, kind):
    report = check(exported(kind).path)
    assert report.ok, str(report)
    assert [result.name for result in report.results] == list(CHECKS)


def test_the_python_session_finds_the_same(exported):
    path = exported("text").path
    session = check(path, cpp=False, batch_sizes=(2,), lengths=(5, 9))
    assert session.runtime == "Python session"
    assert session.ok, str(session)


def test_lengths_that_the_model_declares_are_no_fault(tmp_path):
    ids = keras.Input((6,), dtype="int32", name="ids")
    x = layers.Flatten()(layers.Embedding(20, 3)(ids))
    model = keras.Model(ids, layers.Dense(2)(x))
    report = check(export_for_serving(model, tmp_path / "m"))
    assert report.ok, str(report)
    fixed = keras.Input((6,), batch_size=2, dtype="int32", name="ids")
    model = keras.Model(fixed, model(fixed))
    report = check(export_for_serving(model, tmp_path / "m"))
    assert report.failures == ["runs"]


def test_empty_texts_without_an_answer_are_a_warning(tmp_path):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(20, 3, mask_zero=True)(ids)
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(ids, layers.Dense(2)(x))
    report = check(export_for_serving(model, tmp_path))
    assert report.ok
    warned = [r.name for r in report.results if r.status == "warn"]
    assert warned == ["empty rows"]


def test_reports_are_for_people_and_programs(tmp_path):
    saved_keras_model(tmp_path)
    report = check(tmp_path)
    content = json.loads(report.to_json())
    assert content["ok"] is False
    failed = [x["name"] for x in content["results"] if x["status"] == "fail"]
    assert failed == ["weights restored"]
    assert "export_for_serving(model, base_path)" in str(report)
    assert str(tmp_path) in str(report)


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no `saved_model.pb`"):
        check(tmp_path)
    with pytest.raises(ValueError, match=r"Received: \['speed'\]"):
        check(tmp_path, skip=["speed"])


def test_large_identical_zeros_are_no_copies(tmp_path):
    inputs = keras.Input((3,))
    x = inputs
    for _ in range(4):
        x = layers.Dense(3, kernel_initializer="zeros")(x)
    model = keras.Model(inputs, x + np.float32(1.0))
    assert check(export_for_serving(model, tmp_path)).ok


def test_outputs_without_rows_are_named(tmp_path):
    model = text_classifier()

    def serve(ids):
        y = model(ids, training=False)
        return {"y": y, "size": tf.shape(ids)[0], "table": tf.eye(4)}

    save(model, tmp_path, serve)
    report = check(tmp_path)
    assert report.failures == ["rows alone"]
    assert "size has not one row" in str(report)
    assert check(tmp_path, skip=["rows alone"]).ok


def test_layers_that_share_a_seed_are_no_copies(tmp_path):
    inputs = keras.Input((8,))
    x = inputs
    for _ in range(3):
        seeded = keras.initializers.GlorotUniform(seed=3)
        x = layers.Dense(8, kernel_initializer=seeded)(x)
    model = keras.Model(inputs, x)
    kernels = [w for w in model.get_weights() if w.ndim == 2]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    report = check(export_for_serving(model, tmp_path))
    assert report.ok, str(report)


def test_weights_that_are_nan_are_called_nan(tmp_path):
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(8)(layers.Dense(8)(inputs)))
    model.set_weights([w * np.nan for w in model.get_weights()])
    report = check(export_for_serving(model, tmp_path))
    assert report.failures == ["finite"], str(report)

"""One call, one folder, every signature."""

import concurrent.futures
import contextlib
import os
import resource
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.served_models import text_classifier, vectorization

from keras_attention.export import check, export_for_serving, versions
from keras_attention.export.metadata import read_graph, read_signatures
from keras_attention.export.runner import Runner

IDS = np.array([[2, 4, 0, 0], [5, 3, 4, 2]], "int32")
TEXTS = np.array([b"good film", b"very bad film good"], object)


def example(row):
    ids = tf.train.Int64List(value=[x for x in row if x])
    features = tf.train.Features(
        feature={"ids": tf.train.Feature(int64_list=ids)}
    )
    return tf.train.Example(features=features).SerializeToString()


def signature_of(path, name="serving_default"):
    inputs, outputs = read_signatures(read_graph(path))[name]
    return {
        key: (tuple(spec.shape), spec.dtype.name)
        for key, spec in {**inputs, **outputs}.items()
    }


def folder_bytes(folder):
    files = (file for file in folder.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def test_text_ids_and_examples_give_equal_numbers(exported):
    served = exported("text")
    examples = np.array([example(row) for row in IDS], object)
    with Runner(served.path) as runner:
        from_ids = runner.run("serving_default", {"ids": IDS})["label"]
        from_text = runner.run("text", {"text": TEXTS})["label"]
        from_example = runner.run("examples", {"examples": examples})["label"]
        with_scores = runner.run("attention", {"ids": IDS})
        empty = runner.run("text", {"text": np.array([b""], object)})
    np.testing.assert_array_equal(from_ids, from_text)
    np.testing.assert_array_equal(from_ids, from_example)
    np.testing.assert_array_equal(from_ids, with_scores["label"])
    np.testing.assert_allclose(
        from_ids, served.model.predict(IDS, verbose=0), atol=1e-6
    )
    assert empty["label"].shape == (1, 3)
    scores = with_scores["reader_scores"]
    assert scores.shape == (2, 2, 4, 4)
    np.testing.assert_allclose(scores[1].sum(-1), 1.0, atol=1e-6)
    assert not scores[0, :, :, 2:].any()


def test_text_classifier_declares_open_sizes(exported):
    path = exported("text").path
    assert signature_of(path) == {
        "ids": ((None, None), "int32"),
        "label": ((None, 3), "float32"),
    }
    assert sorted(read_signatures(read_graph(path))) == [
        "attention",
        "examples",
        "serving_default",
        "text",
    ]


@pytest.mark.parametrize("kind", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_keeps_a_float32_signature(exported, kind):
    assert signature_of(exported(kind).path, "attention") == {
        "features": ((None, None, 6), "float32"),
        "score": ((None, None, 3), "float32"),
        "reader_scores": ((None, 2, None, None), "float32"),
    }


def test_weights_are_on_disk_once(tmp_path):
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(4000, 256)(inputs)
    model = keras.Model(inputs, layers.Dense(256)(x))
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((2, 3)), np.zeros((2, 3, 256)))
    path = export_for_serving(model, tmp_path)
    parameters = 4 * model.count_params()
    assert folder_bytes(path) < 1.1 * parameters


def resident_bytes(field):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return 1024 * int(lines[field].split()[0])


def test_export_holds_no_second_copy_of_the_weights(tmp_path):
    inputs = keras.Input((None,), dtype="int32")
    # Drawing random numbers takes memory of its own, which a later copy of
    # the weights could reuse unseen.
    embedding = layers.Embedding(40_000, 512, embeddings_initializer="ones")
    model = keras.Model(inputs, layers.Dense(512)(embedding(inputs)))
    before = resident_bytes("VmRSS")
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")  # Resets the peak.
    export_for_serving(model, tmp_path)
    used = resident_bytes("VmHWM") - before
    assert used < 0.75 * 4 * model.count_params()


def test_versions_count_up_and_replace(tmp_path):
    base = tmp_path / "models" / "m"
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    x = np.ones((2, 3), "float32")
    assert export_for_serving(model, base) == base / "1"
    assert export_for_serving(model, str(base), version=5).name == "5"
    assert export_for_serving(model, base).name == "6"
    with pytest.raises(ValueError, match="overwrite=True"):
        export_for_serving(model, base, version=5)
    model.layers[0].bias.assign([1.0, 2.0])
    export_for_serving(model, base, version=5, overwrite=True)
    assert versions(base) == [1, 5, 6]
    reloaded = tf.saved_model.load(str(base / "5"))
    np.testing.assert_allclose(reloaded.serve(x)["dense"], model(x), atol=1e-6)


def test_a_served_folder_becomes_a_layer_and_is_exported_again(tmp_path):
    model = text_classifier()
    first = export_for_serving(model, tmp_path / "first")
    ids = keras.Input((None,), dtype="int32", name="ids")
    again = keras.Model(ids, keras.layers.TFSMLayer(str(first))(ids))
    expected = model.predict(IDS, verbose=0)
    np.testing.assert_allclose(again.predict(IDS)["label"], expected, atol=1e-6)
    again.save(tmp_path / "again.keras")
    loaded = keras.saving.load_model(tmp_path / "again.keras", safe_mode=False)
    second = export_for_serving(loaded, tmp_path / "second")
    assert signature_of(second) == signature_of(first)
    with Runner(second) as runner:
        outputs = runner.run("serving_default", {"ids": IDS})
    np.testing.assert_allclose(outputs["label"], expected, atol=1e-6)


def test_several_inputs_make_a_layer_too(tmp_path):
    model = two_inputs()
    path = export_for_serving(model, tmp_path)
    values = {"foo": IDS, "bar": np.ones((2, 3), "float32")}
    outputs = keras.layers.TFSMLayer(str(path))(values)
    expected = model.predict(values, verbose=0)
    np.testing.assert_allclose(outputs["b"], expected["b"], atol=1e-6)


def two_inputs():
    foo = keras.Input((None,), dtype="int32", name="foo")
    bar = keras.Input((3,), name="bar")
    pooled = layers.GlobalMaxPooling1D()(layers.Embedding(9, 4)(foo))
    joined = layers.Concatenate()([pooled, bar])
    outputs = {"b": layers.Dense(2)(joined), "a": layers.Dense(1)(bar)}
    return keras.Model({"foo": foo, "bar": bar}, outputs)


LOAD_WITHOUT_THE_PACKAGE = """
import sys
sys.modules["keras_attention"] = None
import numpy as np, tensorflow as tf
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = serve(ids=tf.constant([[2, 4, 0, 0], [5, 3, 4, 2]]))
np.save(sys.argv[2], outputs["label"].numpy())
"""


def test_runs_where_the_package_cannot_be_imported(exported, tmp_path):
    served = exported("text")
    result = tmp_path / "result.npy"
    subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_THE_PACKAGE, served.path, result],
        check=True,
        cwd=tmp_path,
    )
    np.testing.assert_allclose(
        np.load(result), served.model.predict(IDS, verbose=0), atol=1e-5
    )


def test_vocabularies_inside_a_model_come_along(tmp_path):
    text = keras.Input((1,), dtype="string", name="text")
    x = layers.Embedding(9, 4, mask_zero=True)(vectorization()(text))
    model = keras.Model(text, layers.Dense(2)(layers.GlobalMaxPooling1D()(x)))
    path = export_for_serving(model, tmp_path)
    with Runner(path) as runner:
        outputs = runner.run("serving_default", {"text": TEXTS[:, None]})
    expected = model.predict(tf.constant(TEXTS[:, None]), verbose=0)
    np.testing.assert_allclose(outputs["dense"], expected, atol=1e-6)


@contextlib.contextmanager
def largest_file(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path):
    model = keras.Sequential([keras.Input((300,)), layers.Dense(300)])
    export_for_serving(model, tmp_path)
    with largest_file(100_000):
        with pytest.raises(ValueError, match="could not write"):
            export_for_serving(model, tmp_path)
    assert versions(tmp_path) == [1]
    assert not list(tmp_path.glob(".*"))


class Untraceable(layers.Layer):
    def call(self, inputs):
        return inputs * float(np.asarray(inputs).mean())

    def compute_output_shape(self, input_shape):
        return input_shape


class NeedsPython(layers.Layer):
    def call(self, inputs):
        result = tf.py_function(lambda x: x, [inputs], tf.float32)
        return tf.ensure_shape(result, inputs.shape)


class NeedsXla(layers.Layer):
    def call(self, inputs):
        return tf.function(lambda x: x * 2.0, jit_compile=True)(inputs)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Untraceable, "cannot be traced"),
        (NeedsPython, "Python op EagerPyFunc"),
        (NeedsXla, "XLA-only"),
    ],
)
def test_what_a_server_cannot_run_is_refused_first(tmp_path, layer, message):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, layer()(inputs))
    with pytest.raises(ValueError, match=message):
        export_for_serving(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"version": 0}, ValueError, "at least 1"),
        ({"version": "1/2"}, TypeError, "must be an integer"),
        ({"base_path": 3}, TypeError, "must be a path"),
        ({"model": "m.keras"}, TypeError, "must be a `keras.Model`"),
        ({"model": keras.Sequential([layers.Dense(2)])}, ValueError, "built"),
        ({"attention": True}, ValueError, "return_attention_scores"),
        ({"preprocessing": len}, TypeError, "must be a Keras layer"),
        ({"name": "a/b"}, ValueError, "Received: name='a/b'"),
        ({"label": "beta"}, ValueError, "Received: label='beta'"),
    ],
)
def test_bad_arguments_are_refused_first(tmp_path, kwargs, error, message):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    defaults = {"model": model, "base_path": tmp_path / "m"}
    with pytest.raises(error, match=message):
        export_for_serving(**{**defaults, **kwargs})
    assert os.listdir(tmp_path) == []


def test_half_precision_inputs_are_taken_as_float32(tmp_path):
    inputs = keras.Input((4,), dtype="float16", name="x")
    model = keras.Model(inputs, layers.Dense(2, dtype="float16")(inputs))
    path = export_for_serving(model, tmp_path)
    assert signature_of(path) == {
        "x": ((None, 4), "float32"),
        "dense": ((None, 2), "float32"),
    }


class Constant(keras.Model):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def call(self, inputs):
        return {"x": inputs * 2.0, "c": keras.ops.ones(self.shape)}


@pytest.mark.parametrize("shape", [(), (5,), (1, 3)])
def test_outputs_without_a_batch_axis_are_refused_first(tmp_path, shape):
    model = Constant(shape)
    model(np.ones((2, 3)))
    with pytest.raises(ValueError, match="Give the output 'c' a batch axis"):
        export_for_serving(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_a_fixed_batch_size_is_served_and_named_by_the_check(tmp_path):
    inputs = keras.Input((3,), batch_size=1, name="x")
    model = keras.Model(inputs, layers.Dense(2, name="y")(inputs))
    path = export_for_serving(model, tmp_path / "m")
    assert '"instances": [[' in (tmp_path / "m" / "README.txt").read_text()
    report = check(path)
    assert report.failures == ["any size"], str(report)


def test_exports_at_once_take_the_next_numbers(tmp_path):
    made = [
        keras.Sequential([keras.Input((3,)), layers.Dense(2)]) for _ in range(3)
    ]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        paths = list(pool.map(lambda m: export_for_serving(m, tmp_path), made))
    assert sorted(path.name for path in paths) == ["1", "2", "3"]
    config = (tmp_path / "models.config").read_text()
    assert 'key: "stable" value: 1' in config
    assert 'key: "canary" value: 3' in config


class Counting(keras.layers.Layer):
    """Updates a metric in every call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, inputs):
        self.seen.update_state(inputs)
        return inputs + self.seen.result()


def test_a_metric_that_is_updated_in_a_call_is_served(tmp_path):
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, Counting()(inputs))
    path = export_for_serving(model, tmp_path)
    x = np.ones((1, 3), "float32")
    with Runner(path) as runner:
        (first,) = runner.run("serving_default", {"x": x}).values()
        (again,) = runner.run("serving_default", {"x": x}).values()
    # The requests that are tried at export have been counted by then.
    np.testing.assert_array_equal(again - first, np.full((1, 3), 3.0))


def test_a_layer_with_state_is_served(tmp_path):
    inputs = keras.Input(batch_shape=(2, 5, 3), name="x")
    x = layers.GRU(4, stateful=True)(inputs)
    model = keras.Model(inputs, layers.Dense(2)(x))
    path = export_for_serving(model, tmp_path)
    x = np.linspace(-1, 1, 30, dtype="float32").reshape(2, 5, 3)
    with Runner(path) as runner:
        runs = [runner.run("serving_default", {"x": x}) for _ in range(2)]
    first, again = (next(iter(run.values())) for run in runs)
    assert np.abs(first - again).max() > 1e-4

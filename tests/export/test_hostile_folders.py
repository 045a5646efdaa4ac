"""A check reads before it runs, and survives whatever a folder holds."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf import saved_model_pb2
from typer.testing import CliRunner

from keras_attention.commands import app
from keras_attention.export import check, export_for_serving
from keras_attention.export.metadata import read_graph
from keras_attention.export.safety import unsafe_ops

SPEC = tf.TensorSpec((None, 3), tf.float32, name="x")
DRAWS = 500 if "KERAS_ATTENTION_DRAWS" in os.environ else 100


def save(folder, function, module=None, spec=SPEC):
    serve = tf.function(function, input_signature=[spec], autograph=False)
    signatures = {"serving_default": serve}
    tf.saved_model.save(module or tf.Module(), str(folder), signatures)
    return folder


def writes(x):
    tf.io.write_file("touched", "a")
    return {"y": x}


def reads(x):
    size = tf.strings.length(tf.io.read_file("secret"))
    return {"y": x + tf.cast(size, tf.float32)}


def prints(x):
    tf.print(x, output_stream="file://touched")
    return {"y": x}


def lists(x):
    found = tf.size(tf.io.matching_files("*"))
    return {"y": x + tf.cast(found, tf.float32)}


def saves(x):
    tf.raw_ops.SaveV2(
        prefix="touched", tensor_names=["x"], shape_and_slices=[""], tensors=[x]
    )
    return {"y": x}


def restores(x):
    (found,) = tf.raw_ops.RestoreV2(
        prefix="touched",
        tensor_names=["x"],
        shape_and_slices=[""],
        dtypes=[tf.float32],
    )
    return {"y": x + found}


def writes_on_a_condition(x):
    def write():
        tf.io.write_file("touched", "a")
        return x

    return {"y": tf.cond(tf.size(x) > 1000, write, lambda: x)}


def writes_in_a_loop(x):
    def body(i, x):
        tf.io.write_file("touched", "a")
        return i + 1, x

    return {"y": tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]}


def reads_lines(x):
    lines = tf.data.TextLineDataset("secret")
    count = lines.reduce(np.int32(0), lambda n, _: n + 1)
    return {"y": x + tf.cast(count, tf.float32)}


def keeps_a_cache(x):
    data = tf.data.Dataset.range(3).cache("touched")
    count = data.reduce(np.int64(0), lambda n, _: n + 1)
    return {"y": x + tf.cast(count, tf.float32)}


def logs(x):
    writer = tf.raw_ops.SummaryWriter(shared_name="w", container="")
    tf.raw_ops.CreateSummaryFileWriter(
        writer=writer,
        logdir="touched",
        max_queue=1,
        flush_millis=1,
        filename_suffix="a",
    )
    return {"y": x}


ATTACKS = [
    writes,
    reads,
    prints,
    lists,
    saves,
    restores,
    writes_on_a_condition,
    writes_in_a_loop,
    reads_lines,
    keeps_a_cache,
    logs,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_a_model_that_touches_files_is_not_run(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("secret").write_text("a\nb\n")
    folder = save(tmp_path / "1", attack)
    report = check(folder)
    assert report.failures == ["no files touched"]
    status = {result.name: result.status for result in report.results}
    assert status["loads"] == status["runs"] == "skip"
    assert sorted(os.listdir()) == ["1", "secret"]
    assert "trust" in str(report)


def test_what_is_trusted_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "1", writes)
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert result.exit_code == 1 and not os.path.exists("touched")
    result = CliRunner().invoke(app, ["check", str(folder), "--trust"])
    assert os.path.exists("touched")
    assert result.exit_code == 0, result.output


def with_vocabulary(folder):
    words = folder.with_name("words.txt")
    words.write_text("a\nb\nc\n")
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        1,
    )
    module = tf.Module()
    module.table = table
    spec = tf.TensorSpec((None,), tf.string, name="words")
    return save(folder, lambda x: {"y": table.lookup(x)}, module, spec)


def altered(folder, change):
    """Rewrites the graph of a folder."""
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(saved.meta_graphs[0])
    path.write_bytes(saved.SerializeToString())


def test_a_vocabulary_in_the_folder_is_no_fault(tmp_path):
    folder = with_vocabulary(tmp_path / "1")
    assert not unsafe_ops(read_graph(folder))
    assert check(folder).ok
    ids = keras.Input((1,), dtype="string")
    words = tmp_path / "words.txt"
    x = layers.StringLookup(vocabulary=str(words))(ids)
    model = keras.Model(ids, layers.Flatten()(layers.Embedding(9, 2)(x)))
    model.export(tmp_path / "keras", verbose=False)
    assert not unsafe_ops(read_graph(tmp_path / "keras"))


@pytest.mark.parametrize("path", ["/etc/hosts", "../words.txt", ""])
def test_a_vocabulary_beside_the_folder_is_a_fault(path, tmp_path):
    folder = with_vocabulary(tmp_path / "1")

    def change(graph):
        graph.asset_file_def[0].filename = path

    altered(folder, change)
    report = check(folder)
    assert report.failures == ["no files touched"]
    assert "leaves the folder" in str(report)


def test_a_table_filled_from_another_path_is_a_fault(tmp_path):
    folder = with_vocabulary(tmp_path / "1")
    altered(folder, lambda graph: graph.ClearField("asset_file_def"))
    assert check(folder).failures == ["no files touched"]


def test_restoring_from_a_place_of_its_own_is_a_fault(tmp_path):
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0, 3.0])
    folder = save(tmp_path / "1", lambda x: {"y": x * module.v}, module)
    assert check(folder).ok

    def change(graph):
        (restore,) = (
            f
            for f in graph.graph_def.library.function
            if any(n.op == "RestoreV2" for n in f.node_def)
        )
        for node in restore.node_def:
            if node.op == "RestoreV2":
                node.input[0] = "elsewhere:output:0"
        node = restore.node_def.add(name="elsewhere", op="Const")
        node.attr["dtype"].type = tf.string.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/tmp/other"))

    altered(folder, change)
    assert check(folder).failures == ["no files touched"]


def test_functions_that_call_each_other_come_to_an_end(tmp_path):
    folder = save(tmp_path / "1", lambda x: {"y": x})

    def change(graph):
        for f in graph.graph_def.library.function:
            node = f.node_def.add(name="again", op="PartitionedCall")
            node.attr["f"].func.name = f.signature.name
            node = f.node_def.add(name="more", op="PartitionedCall")
            node.attr["f"].func.name = f.signature.name

    altered(folder, change)
    assert check(folder).failures == ["no files touched"]


# Rows that know of each other.
INFLUENCES = {
    "mean": lambda x: {"y": x - tf.reduce_mean(x, 0, keepdims=True)},
    "first": lambda x: {"y": x + x[:1]},
    "reverse": lambda x: {"y": tf.reverse(x, [0])},
    "lost": lambda x: {"y": x[:1]},
    "scalar": lambda x: {"y": tf.reduce_sum(x)},
    "sorted": lambda x: {"y": tf.sort(x, 0)},
    "softmax": lambda x: {"y": tf.nn.softmax(x, axis=0)},
    "size": lambda x: {"y": x * tf.cast(tf.shape(x)[0], tf.float32)},
    "twice": lambda x: {"y": tf.repeat(x, 2, axis=0)},
    "one of two": lambda x: {"y": x, "z": x - tf.reduce_max(x)},
}


@pytest.mark.parametrize("name", INFLUENCES)
def test_rows_that_influence_each_other_are_found(name, tmp_path):
    folder = save(tmp_path / "1", INFLUENCES[name])
    report = check(folder, batch_sizes=(1, 3))
    assert "rows alone" in report.failures, str(report)


def test_statistics_of_the_batch_are_found(tmp_path):
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, layers.BatchNormalization()(inputs))
    module = tf.Module()
    module.state = [variable.value for variable in model.variables]
    folder = save(
        tmp_path / "1", lambda x: {"y": model(x, training=True)}, module
    )
    assert "rows alone" in check(folder).failures
    good = export_for_serving(model, tmp_path / "good")
    assert check(good).ok


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    inputs = keras.Input((3,), name="x")
    model = keras.Model(inputs, layers.Dense(2, name="d")(inputs))
    folder = export_for_serving(model, tmp_path_factory.mktemp("good") / "m")
    assert check(folder).ok
    return folder


@pytest.fixture
def copy(good, tmp_path):
    return pathlib.Path(shutil.copytree(good, tmp_path / "copy"))


def assert_reported(folder, *, damaged=True):
    """One report, as text and as JSON, whatever there is."""
    report = check(folder, batch_sizes=(1, 2), lengths=(2,), timeout=60.0)
    content = json.loads(report.to_json())
    assert content["ok"] == report.ok == (not report.failures)
    assert len(str(report)) < 10_000
    passed = [r for r in report.results if r.status == "pass"]
    if damaged:
        assert report.failures, str(report)
    if report.ok:
        assert len(passed) >= 9, str(report)
    return report


FILES = ["saved_model.pb", "variables/variables.index"]
DATA = "variables/variables.data-00000-of-00001"


@pytest.mark.parametrize("name", [*FILES, DATA])
@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "missing"])
def test_damaged_files_end_in_a_report(copy, name, damage):
    path = copy / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "cut": whole[: len(whole) // 2],
                "garbage": os.urandom(len(whole)),
            }[damage]
        )
    if name == "saved_model.pb" and damage == "missing":
        with pytest.raises(ValueError, match="no `saved_model.pb`"):
            check(copy)
        return
    assert_reported(copy)


def no_signatures(graph):
    graph.signature_def.clear()


def another_tag(graph):
    graph.meta_info_def.tags[:] = ["train"]


def unknown_rank(graph):
    info = graph.signature_def["serving_default"].inputs["x"]
    info.tensor_shape.ClearField("dim")
    info.tensor_shape.unknown_rank = True


def impossible_size(graph):
    info = graph.signature_def["serving_default"].inputs["x"]
    info.tensor_shape.dim[1].size = 2**40


def impossible_dtype(graph):
    graph.signature_def["serving_default"].inputs["x"].dtype = 20


def no_such_tensor(graph):
    graph.signature_def["serving_default"].inputs["x"].name = "nowhere:0"


def no_outputs(graph):
    graph.signature_def["serving_default"].outputs.clear()


def no_nodes(graph):
    graph.graph_def.ClearField("node")


@pytest.mark.parametrize(
    "change",
    [
        no_signatures,
        another_tag,
        unknown_rank,
        impossible_size,
        impossible_dtype,
        no_such_tensor,
        no_outputs,
        no_nodes,
    ],
    ids=lambda f: f.__name__,
)
def test_odd_graphs_end_in_a_report(copy, change):
    altered(copy, change)
    assert_reported(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"declared": 7}', "null"])
def test_odd_metadata_ends_in_a_report(copy, text):
    (copy / "assets.extra" / "keras_attention.json").write_text(text)
    assert_reported(copy, damaged=False)


def test_a_check_of_nothing_says_what_is_missing(tmp_path):
    result = CliRunner().invoke(app, ["check", str(tmp_path / "nowhere")])
    assert result.exit_code == 1 and "There is no folder" in result.stderr


@pytest.mark.parametrize("seed", range(DRAWS))
def test_mutations_end_in_a_report(copy, seed):
    random = np.random.default_rng((7, seed))
    path = copy / random.choice([*FILES, FILES[0], DATA])
    data = bytearray(path.read_bytes())
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(len(data)))
        kind = random.integers(4)
        if kind == 0:
            data[place] ^= 1 << int(random.integers(8))
        elif kind == 1:
            data[place : place + 8] = random.bytes(8)
        elif kind == 2:
            del data[place : place + int(random.integers(1, 200))]
        else:
            data[place:place] = random.bytes(int(random.integers(1, 20)))
    path.write_bytes(bytes(data))
    assert_reported(copy, damaged=False)

"""What is served, with no Python in the process, equals `predict`."""

import keras
import numpy as np
import pytest
from support.arrays import normal
from support.served_models import BUILDERS

from keras_attention.export import export_for_serving
from keras_attention.export.metadata import read_graph, read_signatures
from keras_attention.export.runner import RunError, Runner
from keras_attention.export.samples import Samples
from keras_attention.layers import MultiHeadAttention


def default_samples(path):
    inputs, _ = read_signatures(read_graph(path))["serving_default"]
    return Samples(inputs, bounds={"ids": 30, "token_ids": 30})


def ragged(samples, batch_size, length):
    lengths = [max(1, length - 2 * row) for row in range(batch_size)]
    return samples.batch(samples.rows(lengths))


def predict(kind, model, inputs):
    value = inputs if kind == "tagger" else next(iter(inputs.values()))
    outputs = model.predict(value, verbose=0)
    if isinstance(outputs, dict):
        return outputs
    return {model.output_names[0]: outputs}


@pytest.mark.parametrize("kind", BUILDERS)
def test_served_numbers_equal_predict(exported, kind):
    served = exported(kind)
    samples = default_samples(served.path)
    lengths = [1, 5, 9, 257] if samples.has_length else [8]
    # Keras makes one graph for all sizes from the second size on; a graph of
    # one size alone rounds half precision in other places.
    for size in (2, 4):
        predict(kind, served.model, samples.make(size, size))
    with Runner(served.path) as runner:
        for batch_size in (1, 3, 17):
            for length in lengths:
                inputs = ragged(samples, batch_size, length)
                expected = predict(kind, served.model, inputs)
                outputs = runner.run("serving_default", inputs)
                assert set(outputs) == set(expected)
                for name, array in expected.items():
                    assert outputs[name].dtype == np.float32
                    np.testing.assert_allclose(
                        outputs[name], array, atol=1e-5, rtol=1e-5
                    )


def test_no_python_runs_beside_the_model(exported):
    with Runner(exported("text").path) as runner:
        if not runner.runtime.startswith("C++"):
            pytest.skip("no compiler: the model runs in a bare Python")
        process = f"/proc/{runner._process.pid}"
        with open(f"{process}/environ", "rb") as stream:
            variables = stream.read().split(b"\0")
        assert all(not each or each.startswith(b"TF_") for each in variables)
        with open(f"{process}/maps") as stream:
            libraries = stream.read()
    assert "libtensorflow_cc" in libraries
    assert "libpython" not in libraries
    assert "_pywrap" not in libraries


def test_one_row_twice_gives_equal_bits_though_trained_with_dropout(exported):
    served = exported("text")
    row = np.array([[4, 9, 2, 7, 1]], "int32")
    with Runner(served.path) as runner:
        runs = [runner.run("serving_default", {"ids": row}) for _ in range(2)]
    np.testing.assert_array_equal(runs[0]["label"], runs[1]["label"])
    np.testing.assert_allclose(
        runs[0]["label"], served.model.predict(row, verbose=0), atol=1e-6
    )


def test_errors_come_back_and_the_process_goes_on(exported):
    row = np.array([[4, 9]], "int32")
    with Runner(exported("text").path) as runner:
        for signature, inputs, message in (
            ("missing", {"ids": row}, "no signature missing"),
            ("serving_default", {"words": row}, "no input words"),
            ("serving_default", {"ids": row + 90}, "is not in"),
        ):
            with pytest.raises(RunError, match=message):
                runner.run(signature, inputs)
        runner.run("serving_default", {"ids": row})


def test_a_folder_that_does_not_load_says_why(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"not a model")
    with pytest.raises(RunError):
        Runner(tmp_path)


def test_long_sequences_are_served_in_linear_memory(tmp_path):
    """Of a model of unknown lengths; scores alone would take 2.1 GB."""
    features = keras.Input((None, 16), name="features")
    attention = MultiHeadAttention(2, 16)
    outputs = attention(features, features, use_causal_mask=True)
    model = keras.Model(features, outputs)
    path = export_for_serving(model, tmp_path / "long", warm_up=False)
    inputs = {"features": normal((1, 16384, 16)).astype("float32")}
    with Runner(path) as runner:
        (output,) = runner.run("serving_default", inputs).values()
        with open(f"/proc/{runner._process.pid}/status") as stream:
            status = dict(line.split(":", 1) for line in stream)
    assert np.isfinite(output).all()
    beginning = model(inputs["features"][:, :100])
    np.testing.assert_allclose(output[:, :100], beginning, atol=1e-5)
    assert 1024 * int(status["VmHWM"].split()[0]) < 1.5e9

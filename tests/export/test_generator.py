"""A folder that writes, with no Python in the process."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.writers import (
    END,
    PROMPTS,
    SOURCES,
    language_model,
    padded,
    translator,
)

from keras_attention import models
from keras_attention.export import Client, check, export_generator
from keras_attention.export.generator_signatures import GeneratorSignatures
from keras_attention.export.runner import RunError, Runner
from keras_attention.models.compiled_loop import cached_decoder

COUNT = 10
WORDS = [f"w{number}" for number in range(2, 20)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A language model, its folder, and a process that has loaded it."""
    keras.utils.set_random_seed(7)
    model = language_model(num_key_value_heads=2, num_layers=2)
    path = export_generator(
        model,
        tmp_path_factory.mktemp("served") / "writer",
        max_new_tokens=COUNT,
        end_token=END,
        cache_length=16,
        preprocessing=keras.layers.TextVectorization(vocabulary=WORDS),
        postprocessing=keras.layers.StringLookup(
            vocabulary=WORDS, mask_token="", invert=True
        ),
    )
    with Runner(path) as runner:
        yield model, path, runner


@pytest.mark.parametrize("rows", [1, 5])
def test_served_tokens_are_those_of_generate(served, rows):
    model, _, runner = served
    prompts = PROMPTS[-rows:]
    tokens = runner.run("generate", {"token_ids": padded(prompts)})
    expected = models.generate(model, prompts, COUNT, end_token=END)
    np.testing.assert_array_equal(tokens["token_ids"], expected)


def test_texts_go_in_and_come_out(served):
    model, _, runner = served
    texts = np.array([b"w3 w4 w9", b"w7"], object)
    outputs = runner.run("generate_text", {"text": texts})
    # Ids 0 and 1 are padding and unknown words.
    expected = models.generate(model, [[3, 4, 9], [7]], COUNT, end_token=END)
    np.testing.assert_array_equal(outputs["token_ids"], expected)
    words = {0: b"", 1: b"[UNK]", **{n: b"w%d" % n for n in range(2, 20)}}
    np.testing.assert_array_equal(
        outputs["text"], [[words[n] for n in row] for row in expected]
    )


def test_each_row_has_its_own_settings(served):
    model, _, runner = served
    limits = np.array([3, 1, 99, 0, 5], "int32")
    drawn = np.array([0.0, 1.5, 1.5, 1.5, 0.0], "float32")
    top_p = np.array([1.0, 0.9, 0.9, 0.9, -1.0], "float32")
    seeds = np.array([1, 2, 3, 4, 5], "int32")
    tokens = runner.run(
        "generate_with_settings",
        {
            "token_ids": padded(PROMPTS),
            "max_new_tokens": limits,
            "temperature": drawn,
            "top_p": top_p,
            "seed": seeds,
        },
    )["token_ids"]
    for row, prompt in enumerate(PROMPTS):
        count = min(int(limits[row]), COUNT)
        draw = {"temperature": 1.5, "top_p": 0.9} if drawn[row] else {}
        expected = np.zeros(COUNT, "int32")
        if count:
            expected[:count] = models.generate(
                model,
                [prompt],
                count,
                end_token=END,
                seed=[seeds[row]],
                **draw,
            )[0]
        np.testing.assert_array_equal(tokens[row], expected)


def test_requests_that_are_no_prompts(served):
    """One row must not end the batch, nor be taken for another."""
    _, _, runner = served
    empty = runner.run("generate", {"token_ids": np.zeros((2, 0), "int32")})
    assert empty["token_ids"].shape == (2, COUNT)
    assert not empty["token_ids"].any()
    hot = {
        "token_ids": padded(PROMPTS[:1]),
        "max_new_tokens": np.array([2], "int32"),
        "temperature": np.array([np.inf], "float32"),
        "top_p": np.array([1.0], "float32"),
        "seed": np.array([1], "int32"),
    }
    assert runner.run("generate_with_settings", hot)["token_ids"][:, :2].all()
    for name in ("generate", "prefill"):
        with pytest.raises(RunError, match="count from 0"):
            runner.run(name, {"token_ids": np.array([[3, -1]], "int32")})


def test_a_client_can_write_step_by_step(served):
    model, _, runner = served
    outputs = runner.run("prefill", {"token_ids": padded(PROMPTS)})
    np.testing.assert_array_equal(outputs["position"], [5, 1, 3, 2, 4])
    assert outputs["cache"].shape == (5, 2, 2, 16, 2, 4)
    # Padding leaves nothing behind.
    assert not outputs["cache"][1, :, :, 1:].any()
    position, tokens = outputs["position"], []
    for _ in range(4):
        logits = outputs["logits"]
        logits[:, 0] = -np.inf
        tokens.append(logits.argmax(-1).astype("int32"))
        outputs = runner.run(
            "decode_step",
            {
                "token": tokens[-1],
                "position": position,
                "cache": outputs["cache"],
            },
        )
        position = position + 1
    expected = models.generate(model, PROMPTS, 4)
    np.testing.assert_array_equal(np.stack(tokens, 1), expected)


def test_the_folder_passes_its_check(served):
    _, path, _ = served
    report = check(path, batch_sizes=(1, 5), lengths=(1, 9))
    assert report.ok, str(report)
    tried = {r.name for r in report.results if r.status == "pass"}
    assert {"repeatable", "padding hidden", "any size", "runs"} <= tried


def test_the_files_beside_it_are_small_and_say_how(served):
    _, path, _ = served
    text = (path.parent / "README.txt").read_text()
    for name in ("generate_with_settings", "prefill", "decode_step"):
        assert f"\n{name}\n" in text
    assert '"signature_name": "generate"' in text
    for file in path.parent.glob("*.json"):
        assert file.stat().st_size < 1 << 18, file
    body = Client.from_folder(path).rest_body(
        {"token_ids": [[3, 4]]}, "generate"
    )
    assert body["instances"] == [[3, 4]]


def test_a_translator_is_served_with_its_end(tmp_path):
    model = translator(positions="learned", max_length=16)
    path = export_generator(
        model,
        tmp_path / "translator",
        max_new_tokens=6,
        start_token=1,
        end_token=END,
        num_beams=3,
        warm_up=False,
    )
    expected = models.generate(
        model, 1, 6, source_ids=SOURCES, end_token=END, num_beams=3
    )
    with Runner(path) as runner:
        tokens = runner.run("generate", {"source_ids": padded(SOURCES)})
        np.testing.assert_array_equal(tokens["token_ids"], expected)
        with pytest.raises(RunError, match="no signature"):
            runner.run("generate_with_settings", {})


def test_the_positions_there_are_bound_what_is_written(short):
    generate = GeneratorSignatures(
        cached_decoder(short),
        models.GenerationSettings(),
        size=6,
        seed=0,
        start_token=None,
    ).generate()
    tokens = generate(padded(PROMPTS[:2]))["token_ids"].numpy()
    expected = models.generate(short, PROMPTS[:1], 4)
    np.testing.assert_array_equal(tokens[0, :4], expected[0])
    assert not tokens[0, 4:].any() and tokens[1].all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="8 positions"):
        generate(np.ones((1, 9), "int32"))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens=0"),
        ({"max_new_tokens": 9}, ValueError, "8 positions"),
        ({"end_token": 0}, ValueError, "never written"),
        ({"cache_length": 9}, ValueError, "8 positions.*cache_length=9"),
        ({"start_token": 1}, ValueError, "Leave out `start_token`"),
        ({"seed": "x"}, TypeError, "seed='x'"),
        ({"beams": 2}, TypeError, "num_beams"),
        ({"preprocessing": len}, TypeError, "Keras layer"),
    ],
)
def test_bad_arguments_are_refused(short, tmp_path, arguments, error, words):
    with pytest.raises(error, match=words):
        export_generator(
            short, tmp_path / "no", **{"max_new_tokens": 2, **arguments}
        )
    assert not (tmp_path / "no").exists()


@pytest.fixture(scope="module")
def short():
    return language_model(positions="learned", max_length=8)


def test_a_translator_wants_its_start(tmp_path):
    with pytest.raises(ValueError, match="start_token=None"):
        export_generator(translator(), tmp_path / "no", max_new_tokens=2)

"""The examples do what they say, if only for a second."""

import json
import math

import language_model
import numpy as np
import tensorflow as tf
import word_to_phoneme

from keras_attention import models

TINY = ["--minutes", "0.02", "--layers", "1", "--hidden-dim", "16"]


def test_words_become_phonemes(tmp_path, capsys):
    figures = word_to_phoneme.main(
        [*TINY, "--words", "600", f"--output={tmp_path}"]
    )
    assert figures["phoneme_error_rate"] > 0
    assert 0 < figures["word_error_rate"] <= 1
    assert (tmp_path / "word_to_phoneme.keras").is_file()
    for name in ("alignment.png", "learning_curve.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "564 words to learn from, 30 held out" in printed


def test_the_text_signature_says_what_generate_does(tmp_path, capsys):
    args = word_to_phoneme.read_arguments(TINY)
    words = {"cab": [["K", "AE", "B"]], "ooze": [["UW", "Z"]]}
    letters, phonemes = word_to_phoneme.vocabularies(words)
    model = word_to_phoneme.build(letters, phonemes, args)
    said = word_to_phoneme.pronounce(model, letters, phonemes, list(words))
    word_to_phoneme.export(model, letters, phonemes, tmp_path / "g2p")
    request = json.loads(capsys.readouterr().out.split("'")[-2])
    assert request["signature_name"] == "generate_text"
    served = tf.saved_model.load(tmp_path / "g2p" / "1")
    text = served.signatures["generate_text"](text=tf.constant(list(words)))
    for row, expected in zip(text["text"].numpy(), said.values(), strict=True):
        row = [x.decode() for x in row if x not in (b"", b"<end>")]
        assert row == expected


def test_words_are_split_without_overlap():
    args = word_to_phoneme.read_arguments(["--words", "1000"])
    dictionary = word_to_phoneme.read_dictionary()
    assert dictionary["live"] == [["L", "AY", "V"], ["L", "IH", "V"]]
    assert not any("'" in word for word in dictionary)
    parts = word_to_phoneme.split(dictionary, args)
    assert [len(part) for part in parts] == [940, 10, 50]
    assert len(set().union(*parts)) == 1000


def test_errors_count_against_the_nearest_pronunciation():
    said = {"live": ["L", "IH", "F"], "cat": ["K", "AE", "T"]}
    right = {
        "live": [["L", "AY", "V"], ["L", "IH", "V"]],
        "cat": [["K", "AE", "T"]],
    }
    assert word_to_phoneme.error_rates(said, right) == {
        "phoneme_error_rate": 1 / 6,
        "word_error_rate": 1 / 2,
    }
    assert word_to_phoneme.edit_distance("kitten", "sitting") == 3
    assert word_to_phoneme.edit_distance("", "abc") == 3


def test_batches_hold_whole_pairs_of_like_lengths():
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.repeat([3, 9], 2 * word_to_phoneme.BATCH))
    source = np.where(np.arange(12) < lengths[:, None], 7, 0)
    target = np.where(np.arange(15) < lengths[:, None] + 2, 8, 0)
    widths = set()
    for inputs, labels in word_to_phoneme.batches(source, target).take(8):
        widths.add((inputs["source_ids"].shape[1], labels.shape[1]))
        assert np.all(inputs["source_ids"] == 7)
        assert inputs["target_ids"].shape == labels.shape
    assert widths == {(3, 4), (9, 10)}


def test_a_language_model_learns_and_writes(tmp_path, capsys):
    bits = language_model.main(
        [*TINY, "--pages=12", "--characters=9", f"--output={tmp_path}"]
    )
    assert (tmp_path / "language_model.keras").is_file()
    _, written, _ = capsys.readouterr().out.split(f"{'-' * 72}\n")
    assert written.startswith("The ") and len(written) == 4 + 9 + 1
    assert len(bits) == 4
    assert all(0 < value < 9 for value in bits.values())


def test_held_out_paragraphs_are_not_learnt():
    known, held_out = language_model.read_manual(
        language_model.read_arguments([])
    )
    shared = set(known.split("\n\n")) & set(held_out.split("\n\n"))
    assert not {paragraph.strip() for paragraph in shared} - {""}


def test_bits_are_those_of_the_counts():
    ids = np.array([2, 3] * 500)
    counted = language_model.counted_bits
    assert math.isclose(counted(ids, ids, 0), 1, abs_tol=1e-2)
    assert math.isclose(counted(ids, ids, 1), 0, abs_tol=1e-2)
    model = models.causal_language_model(
        4, hidden_dim=8, num_heads=2, num_layers=1
    )
    for weight in model.weights:
        weight.assign(0 * weight)
    assert math.isclose(
        language_model.model_bits(model, ids, 8), 2, rel_tol=1e-5
    )

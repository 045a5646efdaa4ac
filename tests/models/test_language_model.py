"""The factories of models that write."""

import keras
import numpy as np
import pytest
from support.writers import STACK, language_model, translator

from keras_attention import models


def test_a_language_model_learns_to_count():
    rng = np.random.default_rng(2)
    ids = (np.arange(9) + rng.integers(0, 9, (256, 1))) % 9 + 1
    ids[::2, 6:] = 0
    model = models.causal_language_model(
        10, hidden_dim=16, num_heads=2, num_layers=1, dropout=0.0
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(ids[:, :-1], ids[:, 1:], epochs=12, batch_size=32, verbose=0)
    tokens = models.generate(model, [[3], [7, 8]], 4)
    assert tokens.tolist() == [[4, 5, 6, 7], [9, 1, 2, 3]]


@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned", None])
def test_a_token_sees_no_later_one(positions):
    model = language_model(positions=positions)
    ids = np.array([[3, 4, 5, 6, 7]], "int32")
    changed = np.array([[3, 4, 5, 9, 2]], "int32")
    before, after = model(ids), model(changed)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before[:, 3:] - after[:, 3:]) > 1e-3).all(-1).all()


def test_a_window_ends_what_is_seen():
    model = language_model(sliding_window=2, num_layers=1)
    before = np.array(model(np.array([[3, 4, 5, 6]], "int32")))
    after = np.array(model(np.array([[9, 4, 5, 6]], "int32")))
    assert (before[:, 1] != after[:, 1]).any()
    np.testing.assert_array_equal(before[:, 2:], after[:, 2:])


def test_padding_changes_nothing():
    model = translator()
    alone = model(
        {
            "source_ids": np.array([[3, 4]]),
            "target_ids": np.array([[1, 7, 2]]),
        }
    )
    padded = model(
        {
            "source_ids": np.array([[3, 4, 0, 0]]),
            "target_ids": np.array([[1, 7, 2, 0]]),
        }
    )
    np.testing.assert_allclose(padded[:, :3], alone, atol=1e-5)


def test_tied_tables_are_one():
    def tables(tied):
        stack = {**STACK, "tie_embeddings": tied}
        model = models.causal_language_model(20, **stack)
        return [v.path for v in model.variables if 20 in v.shape]

    assert len(tables(True)) == 1
    # A kernel and a bias beside the table.
    assert len(tables(False)) == 3


def test_outputs_are_named_and_float32():
    for tied in (True, False):
        stack = {**STACK, "tie_embeddings": tied, "dtype": "mixed_float16"}
        model = models.causal_language_model(20, **stack)
        assert model.output_names == ["logits"]
        assert model.output.dtype == "float32"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"positions": "absolute"}, "rotary"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"pad_id": 20}, "pad_id=20"),
        ({"hidden_dim": 18}, "hidden_dim=18"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        models.causal_language_model(20, **{**STACK, **options})
    if "pad_id" in options:
        words = "target_vocabulary_size=20"
    with pytest.raises(ValueError, match=words):
        models.sequence_to_sequence(50, 20, **{**STACK, **options})


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="tie_embeddings"):
        models.causal_language_model(20, tied=True)

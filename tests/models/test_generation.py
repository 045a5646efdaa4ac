"""What is written with caches is what would be written without."""

import gc
import weakref

import keras
import numpy as np
import pytest
from support.peers import where_keras_can
from support.toy_decoder import run
from support.writers import (
    END,
    PAD,
    PROMPTS,
    SOURCES,
    language_model,
    padded,
    scatter,
    translator,
    write_anew,
)

from keras_attention import layers, models
from keras_attention.models import compiled_loop
from keras_attention.models.compiled_loop import cached_decoder

COUNT = 8


@pytest.mark.parametrize(
    "stack",
    [
        {"positions": "rotary", "num_key_value_heads": 2, "num_layers": 2},
        {"positions": "alibi", "tie_embeddings": True},
        {"positions": "learned", "max_length": 12},
        {"positions": "sinusoidal", "normalize_first": False},
        {"positions": None, "sliding_window": 3},
        {"sliding_window": 40},
    ],
)
def test_ragged_prompts_go_on_as_each_would_alone(stack):
    model = language_model(**stack)
    tokens = models.generate(model, PROMPTS, COUNT, end_token=END)
    assert tokens.shape == (5, COUNT) and tokens.dtype == "int32"
    expected = [write_anew(model, p, COUNT, END) for p in PROMPTS]
    assert tokens.tolist() == expected
    # Padding may stand anywhere in an array.
    left = np.fliplr(padded([row[::-1] for row in PROMPTS]))
    again = models.generate(model, left, COUNT, end_token=END)
    np.testing.assert_array_equal(again, tokens)


def test_what_is_written_is_no_single_token():
    """Else the tests here could not tell one position from another."""
    tokens = models.generate(language_model(), PROMPTS, COUNT)
    assert len(np.unique(tokens)) > 4


@pytest.mark.parametrize(
    "stack",
    [{"num_layers": 2}, {"positions": "rotary", "num_key_value_heads": 2}],
)
def test_a_translation_looks_at_its_source(stack):
    model = translator(**stack)
    prompts = [[1, 2], [1], [1, 6, 4]]
    tokens = models.generate(model, prompts, COUNT, source_ids=SOURCES)
    assert tokens.tolist() == [
        write_anew(model, prompt, COUNT, source=source)
        for prompt, source in zip(prompts, SOURCES, strict=True)
    ]
    started = models.generate(model, 1, COUNT, source_ids=SOURCES)
    assert started[1].tolist() == tokens[1].tolist()


def test_a_reloaded_model_writes_the_same(tmp_path):
    model = language_model()
    expected = models.generate(model, PROMPTS, COUNT)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        models.generate(again, PROMPTS, COUNT), expected
    )


def test_training_on_changes_what_is_written():
    model = language_model()
    before = models.generate(model, PROMPTS, COUNT)
    scatter(model, seed=9)
    after = models.generate(model, PROMPTS, COUNT)
    assert (before != after).any()
    assert after[0].tolist() == write_anew(model, PROMPTS[0], COUNT)


def test_other_variables_make_another_loop():
    model = language_model()
    before = models.generate(model, PROMPTS, COUNT)
    model.quantize("int8")
    head = model.get_layer("logits")
    noise = np.random.default_rng(1).integers(-99, 99, head.kernel.shape)
    head._kernel.assign(noise)
    after = models.generate(model, PROMPTS, COUNT)
    assert (before != after).any()
    assert after.tolist() == [write_anew(model, p, COUNT) for p in PROMPTS]


def test_no_room_is_made_for_more_than_positions_can_count():
    with pytest.raises(ValueError, match="max_new_tokens=2147483648"):
        models.generate(language_model(), [[3]], 2**31)


def test_no_call_traces_the_loop_again():
    model = language_model()
    for rows, count in ((2, 3), (5, 9), (1, 1)):
        models.generate(
            model, PROMPTS[:rows], count, temperature=0.7, top_k=5, seed=count
        )
    for _ in models.stream(model, PROMPTS, 4, temperature=0.7, top_k=5):
        pass
    assert traces(model) == [1, 1]


def test_numbers_are_inputs_of_one_loop():
    model = language_model()
    draw = {"max_new_tokens": COUNT, "seed": 4}
    written = {}
    for heat in np.linspace(0.3, 4.0, 12):
        draws = {"temperature": float(heat), "top_p": 1 - 0.03 * float(heat)}
        written[heat] = models.generate(model, PROMPTS, **draw, **draws)
        columns = models.stream(model, PROMPTS, **draw, **draws)
        assert [*next(columns)] == [*written[heat][:, 0]]
        # What a loop made for these numbers alone writes.
        if len(written) in (1, 12):
            settings = models.GenerationSettings(**draws)
            loop = settings.loop(cached_decoder(model))
            limits = np.full(len(PROMPTS), COUNT)
            seeds = [[4, row] for row in range(len(PROMPTS))]
            tokens, _ = run(loop, padded(PROMPTS), limits, COUNT, seeds=seeds)
            assert tokens == written[heat].tolist()
    assert len({tokens.tobytes() for tokens in written.values()}) > 6
    assert traces(model) == [1, 1]


def test_length_penalties_are_inputs_of_one_loop():
    model = language_model()
    penalties = (0.0, 3.0, 0.0)
    written = [
        models.generate(
            model, PROMPTS, 6, end_token=END, num_beams=3, length_penalty=power
        )
        for power in penalties
    ]
    assert (written[0] != written[1]).any()
    np.testing.assert_array_equal(written[0], written[2])
    assert traces(model) == [1, 1]


def test_the_loops_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(compiled_loop, "_MOST_LOOPS", 2)
    monkeypatch.setattr(compiled_loop, "CompiledLoop", _NoLoop)
    model = language_model()
    for top_k in (2, 3, 2, 4):
        settings = models.GenerationSettings(temperature=1.0, top_k=top_k)
        compiled_loop.compiled_loop(model, settings)
    assert [kind.top_k for kind in model._decoding_loops.by_kind] == [2, 4]


class _NoLoop:
    def __init__(self, decoder, kind):
        pass


def test_dropped_loops_leave_the_memory(monkeypatch):
    monkeypatch.setattr(compiled_loop, "_MOST_LOOPS", 1)
    model = language_model()
    loops = []
    for top_k in (2, 3):
        models.generate(model, [[3]], 2, temperature=1.0, top_k=top_k)
        kept = model._decoding_loops.by_kind
        loops += [weakref.ref(loop) for loop in kept.values()]
    gc.collect()
    assert [loop() is None for loop in loops] == [True, False]
    del model, kept
    gc.collect()
    assert loops[1]() is None


def traces(model):
    """Numbers of graphs of both parts of all loops that a model keeps."""
    return [
        function.experimental_get_tracing_count()
        for loop in model._decoding_loops.by_kind.values()
        for function in (loop.start, loop.advance)
    ]


def test_the_hottest_draws_are_of_tokens():
    tokens = models.generate(
        language_model(), PROMPTS, 20, temperature=1e300, seed=1
    )
    assert (tokens != PAD).all() and len(np.unique(tokens)) > 10


def test_draws_repeat_by_seed_and_row():
    model = language_model(positions="alibi")
    draw = {"max_new_tokens": COUNT, "temperature": 1.5, "top_p": 0.9}
    same = [[3, 4]] * 3
    first = models.generate(model, same, seed=4, **draw)
    np.testing.assert_array_equal(
        models.generate(model, same, seed=4, **draw), first
    )
    assert len(np.unique(first, axis=0)) == 3
    assert (models.generate(model, same, seed=5, **draw) != first).any()
    # A row with a seed of its own is the same in any company.
    rows = models.generate(model, [[9], *same], seed=[1, 4, 2, 4], **draw)
    np.testing.assert_array_equal(rows[[1, 3]], first[[0, 0]])


@where_keras_can
def test_draws_without_a_seed_follow_that_of_keras():
    model = language_model(positions="alibi")
    draw = {"max_new_tokens": COUNT, "temperature": 1.5, "top_p": 0.9}
    same = [[3, 4]] * 3
    keras.utils.set_random_seed(3)
    one = models.generate(model, same, **draw)
    other = models.generate(model, same, **draw)
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(models.generate(model, same, **draw), one)
    assert (one != other).any()


def test_beams_find_what_is_likelier_than_the_greedy_tokens():
    model = language_model()
    greedy = models.generate(model, PROMPTS, COUNT)
    beams = models.generate(
        model, PROMPTS, COUNT, num_beams=4, length_penalty=0.0
    )
    for prompt, first, second in zip(PROMPTS, greedy, beams, strict=True):
        assert _score(model, prompt, second) >= _score(model, prompt, first)
    alone = models.generate(
        model, PROMPTS[2:3], COUNT, num_beams=4, length_penalty=0.0
    )
    np.testing.assert_array_equal(alone[0], beams[2])


def _score(model, prompt, tokens):
    ids = np.array([[*prompt, *tokens]], "int32")
    logits = model(ids)[:, len(prompt) - 1 : -1]
    without = keras.ops.where(np.arange(logits.shape[-1]) == PAD, -1e9, logits)
    choices = keras.ops.log_softmax(without, axis=-1)
    chosen = keras.ops.take_along_axis(
        choices, tokens[None, :, None].astype("int32"), axis=-1
    )
    return float(keras.ops.sum(chosen)) + 1e-4


def test_a_stream_gives_the_columns_and_stops_early():
    model = language_model()
    expected = models.generate(model, PROMPTS[:2], 40, end_token=END)
    columns = list(models.stream(model, PROMPTS[:2], 40, end_token=END))
    assert len(columns) == max((row != PAD).sum() for row in expected)
    np.testing.assert_array_equal(
        np.stack(columns, 1), expected[:, : len(columns)]
    )


def test_progress_is_shown_on_demand(capsys):
    model = language_model()
    expected = models.generate(model, PROMPTS, 20)
    keras.config.enable_interactive_logging()
    shown = models.generate(model, PROMPTS, 20, verbose=1)
    np.testing.assert_array_equal(shown, expected)
    assert "20/20" in capsys.readouterr().out


def test_half_precision_writes_what_it_would_write_anew():
    model = language_model(dtype="mixed_bfloat16")
    tokens = models.generate(model, PROMPTS[:1], 4)
    assert tokens[0].tolist() == write_anew(model, PROMPTS[0], 4)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"prompts": []}, ValueError, "one row"),
        ({"prompts": [3, 4]}, ValueError, r"\[\[4, 7, 2\]\]"),
        ({"prompts": "text"}, TypeError, "list of lists"),
        ({"prompts": [[3], []]}, ValueError, "row 1"),
        ({"prompts": [[3], [PAD]]}, ValueError, "padding"),
        ({"prompts": [[0.5]]}, TypeError, "integer"),
        ({"prompts": [[20]]}, ValueError, "0 to 19"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens=0"),
        ({"end_token": PAD}, ValueError, "never written"),
        ({"end_token": 20}, ValueError, "0 to 19"),
        ({"end_token": 3.7}, TypeError, "end_token=3.7"),
        ({"end_token": [2, 3]}, TypeError, "one id"),
        ({"temperature": -1.0}, ValueError, "temperature=-1"),
        ({"top_k": 3}, ValueError, "temperature=1.0"),
        ({"top_p": 1.5, "temperature": 1.0}, ValueError, "top_p=1.5"),
        ({"num_beams": 2, "temperature": 1.0}, ValueError, "draws nothing"),
        ({"beams": 2}, TypeError, "num_beams"),
        ({"seed": [1, 2, 3]}, ValueError, "2 rows"),
        ({"seed": 0.5}, TypeError, "seed=0.5"),
        ({"source_ids": [[3]]}, ValueError, "no `source_ids`"),
        ({"verbose": 7}, ValueError, "verbose"),
        # 3 + 11 tokens, of which the last is not read.
        ({"max_new_tokens": 11}, ValueError, "12 positions.*3 tokens"),
    ],
)
def test_bad_arguments_are_refused(learned, arguments, error, words):
    arguments = {"prompts": [[3, 4, 1], [7]], "max_new_tokens": 2, **arguments}
    with pytest.raises(error, match=words):
        models.generate(learned, **arguments)


def test_all_positions_can_be_used(learned):
    tokens = models.generate(learned, [[3, 4, 1]], 10)
    assert tokens[0].tolist() == write_anew(learned, [3, 4, 1], 10)


def test_a_stream_refuses_beams_at_once(learned):
    with pytest.raises(ValueError, match="at its end only"):
        models.stream(learned, [[3]], 2, num_beams=2)


@pytest.fixture(scope="module")
def learned():
    return language_model(positions="learned", max_length=12)


def test_models_that_cannot_write_are_refused():
    ids = keras.Input((None,), dtype="int32")
    x = layers.ReversibleEmbedding(9, 8)(ids)
    with pytest.raises(ValueError, match="self_attention_cache"):
        models.generate(keras.Model(ids, x), [[3]], 2)
    block = layers.DecoderBlock(2, 12)
    pooled = keras.layers.GlobalAveragePooling1D()(block(x))
    with pytest.raises(ValueError, match="logits"):
        models.generate(keras.Model(ids, pooled), [[3]], 2)
    open_block = layers.DecoderBlock(2, 12, name="open")
    seen = open_block(x, use_causal_mask=False)
    with pytest.raises(ValueError, match="'open'.*use_causal_mask"):
        models.generate(keras.Model(ids, seen), [[3]], 2)
    placed = layers.PositionEmbedding(9, name="placed")
    steps = keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1
    marked = open_block(placed(x, positions=steps))
    with pytest.raises(ValueError, match="'placed'.*positions"):
        models.generate(keras.Model(ids, marked), [[3]], 2)
    with pytest.raises(ValueError, match="subclassed"):
        models.generate(keras.Model(), [[3]], 2)


def test_a_model_of_ones_own_blocks_writes():
    """One block called twice, a mask from the embedding, plain layers."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(20, 8, mask_zero=True)(ids)
    x = layers.PositionEmbedding(30)(x)
    block = layers.DecoderBlock(2, 12)
    x = block(block(x))
    model = scatter(keras.Model(ids, keras.layers.Dense(20)(x)))
    tokens = models.generate(model, PROMPTS, COUNT)
    assert tokens.tolist() == [write_anew(model, p, COUNT) for p in PROMPTS]

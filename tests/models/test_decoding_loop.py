"""The loops against plain Python, on a decoder that is a table."""

import numpy as np
import pytest
from keras import ops
from support.toy_decoder import (
    END,
    IDS,
    PAD,
    PROMPTS,
    ToyDecoder,
    log_probabilities,
    run,
)

from keras_attention.models.decoding_loop import SamplingLoop, compact


def greedy(prompt, size):
    tokens = []
    while prompt and len(tokens) < size and END not in tokens:
        tokens.append(int(np.argmax(log_probabilities(prompt + tokens))))
    return tokens + [PAD] * (size - len(tokens))


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_greedy_tokens_are_the_likeliest_ones(chunk):
    tokens, _ = run(SamplingLoop(ToyDecoder(), END), IDS, [6] * 5, 6, chunk)
    assert tokens == [greedy(prompt, 6) for prompt in PROMPTS]


def test_each_row_has_its_own_limit():
    limits = [0, 1, 5, 2, 3]
    tokens, _ = run(SamplingLoop(ToyDecoder()), IDS, limits, 5)
    for row, prompt, limit in zip(tokens, PROMPTS, limits, strict=True):
        written = [token for token in row if token != PAD]
        assert len(written) == (limit if prompt else 0)
        assert row[: len(written)] == written


def test_the_loop_stops_when_all_rows_have_ended():
    rows = [IDS[0], IDS[3]]
    expected = [greedy(prompt, 50) for prompt in (PROMPTS[0], PROMPTS[3])]
    tokens, steps = run(SamplingLoop(ToyDecoder(), END), rows, [50] * 2, 50)
    assert tokens == expected
    assert steps == 1 + max(row.index(END) for row in expected)


def test_drawn_tokens_hang_on_the_seed_of_the_row():
    loop = SamplingLoop(ToyDecoder(), temperature=2.0)
    rows, limits = [IDS[0]] * 3, [20] * 3
    tokens, _ = run(loop, rows, limits, 20, 3, [[1, 0], [1, 1], [1, 0]])
    assert tokens[0] == tokens[2] != tokens[1]
    alone, _ = run(loop, rows[:1], limits[:1], 20, 100, [[1, 1]])
    assert alone[0] == tokens[1] and PAD not in alone[0]


def test_no_tokens_are_one_column_of_padding():
    ids, lengths = compact(np.zeros((2, 0), "int32"), 3)
    assert ids.numpy().tolist() == [[3], [3]]
    assert lengths.numpy().tolist() == [0, 0]


def test_padding_goes_to_the_end():
    ids, lengths = compact(ops.convert_to_tensor(IDS, "int32"), PAD)
    expected = [row + [0] * (3 - len(row)) for row in PROMPTS]
    assert ops.convert_to_numpy(ids).tolist() == expected
    assert ops.convert_to_numpy(lengths).tolist() == [3, 1, 2, 2, 0]

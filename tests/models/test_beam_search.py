"""Beam search against every sequence there is."""

import itertools

import numpy as np
import pytest
from keras import ops
from support.toy_decoder import (
    END,
    IDS,
    PAD,
    PROMPTS,
    VOCABULARY,
    ToyDecoder,
    log_probabilities,
    run,
)

from keras_attention.models.beam_search import BeamLoop

SIZE = 4


def sequences(size):
    """All sequences that end with the end token or at the limit."""
    for length in range(1, size + 1):
        for tokens in itertools.product(range(1, VOCABULARY), repeat=length):
            complete = length == size or tokens[-1] == END
            if complete and END not in tokens[:-1]:
                yield list(tokens)


def score(prompt, tokens, length_penalty):
    total = sum(
        log_probabilities(prompt + tokens[:n])[token]
        for n, token in enumerate(tokens)
    )
    return total / len(tokens) ** length_penalty


def best(prompt, size, length_penalty):
    if not prompt or not size:
        return [PAD] * SIZE
    tokens = max(
        sequences(size), key=lambda x: score(prompt, x, length_penalty)
    )
    return tokens + [PAD] * (SIZE - len(tokens))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_beams_for_all_prefixes_find_the_best_sequence(length_penalty):
    loop = BeamLoop(ToyDecoder(), END, VOCABULARY**3, length_penalty)
    limits = [4, 3, 4, 0, 4]
    tokens, _ = run(loop, IDS, limits, SIZE, chunk=2)
    assert tokens == [
        best(prompt, limit, length_penalty)
        for prompt, limit in zip(PROMPTS, limits, strict=True)
    ]


def test_few_beams_keep_the_likeliest_prefixes():
    """Step by step as in plain Python, with no end token in the way."""
    tokens, _ = run(BeamLoop(ToyDecoder(), None, 2), IDS[:4], [6] * 4, 6)
    for row, prompt in zip(tokens, PROMPTS, strict=False):
        beams = [[]]
        for _ in range(6):
            longer = [b + [t] for b in beams for t in range(1, VOCABULARY)]
            longer.sort(key=lambda x: -score(prompt, x, 0.0))
            beams = longer[:2]
        assert row == beams[0]


def test_a_row_gets_the_same_alone_and_ends_early():
    loop = BeamLoop(ToyDecoder(), END, 2)
    together, _ = run(loop, IDS, [30] * 5, 30)
    steps = []
    for row, ids in zip(together, IDS, strict=True):
        alone, count = run(loop, [ids], [30], 30)
        assert alone[0] == row
        steps.append(count)
    assert min(steps[:4]) < 30 == max(steps)


def test_probability_of_a_result_is_that_of_its_tokens():
    loop = BeamLoop(ToyDecoder(), END, 3, length_penalty=1.0)
    request, state = loop.start(
        ops.convert_to_tensor(IDS[:2], "int32"),
        ops.convert_to_tensor([SIZE, SIZE], "int32"),
        ops.zeros((2, 2), "int32"),
        ops.convert_to_tensor(SIZE, "int32"),
    )
    state = loop.advance(request, state, ops.convert_to_tensor(SIZE))
    scores = ops.convert_to_numpy(state.result_scores)
    results = ops.convert_to_numpy(state.results)
    for row, prompt in enumerate(PROMPTS[:2]):
        for tokens, found in zip(results[row], scores[row], strict=True):
            tokens = [int(token) for token in tokens if token != PAD]
            expected = score(prompt, tokens, 1.0)
            np.testing.assert_allclose(found, expected, rtol=1e-5)

"""Random shapes, masks and poison, each against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import reference
from keras_attention.ops import dot_product_attention


def draw_case(seed):
    """Returns query, key, value and options; any mask axis may be 1."""
    rng = np.random.default_rng(seed)
    batch, groups, length_q, length_k, width, width_v = rng.integers(1, 6, 6)
    heads = groups * rng.integers(1, 4)

    def some(*sizes):
        return tuple(1 if rng.random() < 0.3 else size for size in sizes)

    def pairs():
        lead = [(), (batch,), (batch, heads)][rng.integers(3)]
        return some(*lead, length_q, length_k)

    inputs = [
        rng.normal(size=(batch, n, length, size)).astype("float32")
        for n, length, size in [
            (heads, length_q, width),
            (groups, length_k, width),
            (groups, length_k, width_v),
        ]
    ]
    shapes = {
        "attention_mask": pairs(),
        "query_mask": some(batch, length_q),
        "key_mask": some(batch, length_k),
    }
    masks = {
        name: rng.random(shape) < 0.6
        for name, shape in shapes.items()
        if rng.random() < 0.5
    }
    if rng.random() < 0.4:
        bias = rng.normal(size=pairs()).astype("float32")
        bias[rng.random(bias.shape) < 0.3] = -np.inf
        masks["attention_bias"] = bias
    positions = {
        "use_causal_mask": bool(rng.random() < 0.3),
        "sliding_window": [None, 1, 3][rng.integers(3)],
    }
    return inputs, masks, positions


def poison(inputs, masks):
    """Puts NaN and infinity where masks, positions aside, hide all."""
    query, key, value = (x.copy() for x in inputs)
    _, weights = reference.dot_product_attention(*inputs, **masks)
    seen = weights > 0
    query[~seen.any(axis=-1)] = np.nan
    by_group = (*key.shape[:2], -1, key.shape[2])
    unseen = ~seen.any(axis=-2).reshape(by_group).any(axis=2)
    key[unseen], value[unseen] = np.nan, np.inf
    return query, key, value


@pytest.mark.parametrize("seed", range(80))
def test_equals_the_reference_and_keeps_poison_out(seed):
    inputs, masks, positions = draw_case(seed)
    expected = reference.dot_product_attention(*inputs, **masks, **positions)
    for given in (inputs, poison(inputs, masks)):
        given = [tf.constant(x) for x in given]
        with tf.GradientTape() as tape:
            tape.watch(given)
            results = dot_product_attention(
                *given, **masks, **positions, return_attention_scores=True
            )
        for one, other in zip(results, expected, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=2e-5)
        for gradient in tape.gradient(results[0], given):
            assert np.isfinite(gradient).all()
        alone = dot_product_attention(*given, **masks, **positions)
        np.testing.assert_allclose(alone, expected[0], atol=2e-5)


def test_the_cases_hide_whole_rows_and_columns_often_enough():
    rows = columns = 0
    for seed in range(80):
        inputs, masks, _ = draw_case(seed)
        query, key, _ = poison(inputs, masks)
        rows += np.isnan(query).any()
        columns += np.isnan(key).any()
    assert min(rows, columns) > 20

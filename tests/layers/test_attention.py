"""Attention without projections, against its definition in float64."""

import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import Attention

B, T, S, D, DV = 2, 3, 5, 8, 6
QUERY, VALUE, KEY = normal((B, T, D), (B, S, DV), (B, S, D))


def definition(layer, query, key):
    """The scores that Keras documents, before masks and softmax."""
    scale = 1.0 if layer.scale is None else to_numpy(layer.scale)
    if layer.score_mode == "dot":
        return scale * reference.multiplicative_scores(query, key)
    factor = to_numpy(layer.concat_score_weight)
    return reference.additive_scores(scale * query, scale * key, factor)


@pytest.mark.parametrize("score_mode", ["dot", "concat"])
@pytest.mark.parametrize("use_scale", [False, True])
@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_equals_the_reference(policy, use_scale, score_mode):
    layer = Attention(use_scale, score_mode, dtype=policy)
    layer.build([x.shape for x in (QUERY, VALUE, KEY)])
    for weight in layer.weights:
        weight.assign(0.375)
    full, padding = coins(B, T, S), np.arange(S) < [[5], [4]]
    bias = np.linspace(-1, 1, T * S).reshape(T, S).astype("float32")
    context, scores = layer(
        [ops.cast(x, layer.compute_dtype) for x in (QUERY, VALUE, KEY)],
        mask=[None, padding],
        attention_mask=full,
        attention_bias=bias,
        return_attention_scores=True,
    )
    expected = reference.attention_from_scores(
        definition(layer, QUERY, KEY) + bias, VALUE, full & padding[:, None]
    )
    layer_contract.assert_close(context, expected[0], layer.compute_dtype)
    layer_contract.assert_close(scores, expected[1], layer.compute_dtype)


@pytest.mark.parametrize("score_mode", ["dot", "concat"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_row_without_keys_is_zero(dropout, score_mode):
    layer = Attention(score_mode=score_mode, dropout=dropout)
    mask = [np.arange(T) < [[2], [3]], np.arange(S) < [[5], [0]]]
    options = {"mask": mask, "training": True}
    context, scores = layer(
        [QUERY, VALUE, KEY], return_attention_scores=True, **options
    )
    for result in (context, layer([QUERY, VALUE, KEY], **options)):
        assert not to_numpy(result)[1].any()
        assert not to_numpy(result)[0, 2].any()
        assert to_numpy(result)[0, :2].any()
    assert not to_numpy(scores)[1].any()
    np.testing.assert_allclose(
        (to_numpy(scores) @ VALUE)[0, :2], to_numpy(context)[0, :2], atol=1e-5
    )


@pytest.mark.parametrize("score_mode", ["dot", "concat"])
def test_scores_in_training_are_those_of_keras(score_mode):
    """After dropout, number by number, since the seed is the same."""
    ours, theirs = (
        layer_class(score_mode=score_mode, dropout=0.4, seed=3)(
            [QUERY, VALUE, KEY], return_attention_scores=True, training=True
        )
        for layer_class in (Attention, keras.layers.Attention)
    )
    assert 0 < (to_numpy(ours[1]) == 0).sum() < B * T * S
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("score_mode", ["dot", "concat"])
def test_asking_for_scores_in_training_changes_no_context(score_mode):
    context, (same, scores) = (
        Attention(
            score_mode=score_mode, dropout=0.4, seed=3, dtype="mixed_float16"
        )([QUERY, VALUE, KEY], return_attention_scores=asked, training=True)
        for asked in (False, True)
    )
    assert same.dtype == scores.dtype == "float16"
    np.testing.assert_allclose(to_numpy(context), to_numpy(same), atol=2e-3)


@pytest.mark.parametrize("score_mode", ["dot", "concat"])
def test_dropped_scores_keep_nan_at_padding_out(score_mode):
    padding = np.arange(S) < [[4], [5]]
    inputs = [np.where(padding[..., None], x, np.nan) for x in (VALUE, KEY)]
    layer = Attention(True, score_mode, dropout=0.4)
    results = layer(
        [QUERY, *inputs],
        mask=[None, padding],
        return_attention_scores=True,
        training=True,
    )
    for result in results:
        assert np.isfinite(to_numpy(result)).all()


def test_logits_beyond_float16_stay_finite():
    x = np.full((B, T, 64), 60.0, "float32")
    context = Attention(True, dtype="mixed_float16")([x, x])
    np.testing.assert_array_equal(to_numpy(context), x)


def test_keras_gives_a_function_for_a_name_in_its_old_format():
    config = {**Attention().get_config(), "score_mode": keras.ops.dot}
    assert Attention.from_config(config).score_mode == "dot"

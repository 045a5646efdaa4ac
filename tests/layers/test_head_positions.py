"""Heads know their positions, as the reference defines it."""

import keras
import numpy as np
import pytest
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import assert_close, randomize, to_numpy

from keras_attention import reference
from keras_attention.layers import (
    AlibiBias,
    MultiHeadAttention,
    RotaryEmbedding,
)

B, T, S, D, N, H = 2, 4, 5, 12, 6, 8
QUERY, VALUE = normal((B, T, D), (B, S, D))


def built(**options):
    layer = MultiHeadAttention(N, H, num_key_value_heads=2, **options)
    layer.build((B, T, D), (B, S, D))
    randomize(layer)
    return layer


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("position", [None, "rotary", "alibi"])
def test_equals_the_reference(position, qk_norm):
    layer = built(position=position, qk_norm=qk_norm)
    options = {
        "attention_mask": coins(B, T, S, true=0.8),
        "attention_bias": normal((B, 1, T, S)),
    }
    results = layer(QUERY, VALUE, return_attention_scores=True, **options)
    expected = reference.multi_head_attention(
        QUERY,
        VALUE,
        weights=layer.get_weights(),
        position=position,
        qk_norm=qk_norm,
        **options,
    )
    for one, other in zip(results, expected, strict=True):
        assert_close(one, other, "float32")


@pytest.mark.parametrize("position", ["rotary", "alibi"])
@pytest.mark.parametrize("flash_attention", [True, False])
def test_either_kernel_gives_the_same(position, flash_attention):
    layer = built(position=position)
    expected = layer(QUERY, VALUE, use_causal_mask=True)
    other = built(position=position, flash_attention=flash_attention)
    np.testing.assert_allclose(
        other(QUERY, VALUE, use_causal_mask=True), expected, atol=1e-5
    )


def test_norms_of_heads_stand_behind_all_other_weights():
    plain, normed = built(), built(qk_norm=True)
    names = [
        w.path.split("/")[-2:] for w in normed.weights[len(plain.weights) :]
    ]
    assert names == [["query_norm", "scale"], ["key_norm", "scale"]]
    assert [w.shape for w in normed.weights[-2:]] == [(H,), (H,)]


def test_norms_do_not_overflow_in_half_precision():
    layer = built(qk_norm=True, dtype="float16")
    output = to_numpy(layer(1e3 * QUERY, VALUE))
    expected, _ = reference.multi_head_attention(
        1e3 * QUERY, VALUE, weights=layer.get_weights(), qk_norm=True
    )
    np.testing.assert_allclose(output, expected, atol=2e-2)


@pytest.mark.parametrize(
    "position",
    [
        "rotary",
        "alibi",
        AlibiBias(N, alibi_bias_max=4),
        RotaryEmbedding(50, pairing="interleaved"),
    ],
)
def test_comes_back_from_its_configuration(position):
    layer = built(position=position)
    assert layer.position is position
    layer_contract.assert_same_after_rebuild(layer, QUERY, VALUE)


@pytest.mark.parametrize("position", ["learned", 3, RotaryEmbedding])
def test_refuses_what_is_no_position(position):
    with pytest.raises(ValueError, match='"rotary", "alibi", or a layer'):
        MultiHeadAttention(2, 4, position=position)


def test_refuses_odd_heads_and_more_axes():
    with pytest.raises(ValueError, match="even"):
        MultiHeadAttention(2, 3, position="rotary")(QUERY, VALUE)
    with pytest.raises(ValueError, match="one axis of positions"):
        MultiHeadAttention(2, 4, position="alibi")(
            keras.ops.ones((1, 2, 3, 4)), keras.ops.ones((1, 2, 3, 4))
        )
    with pytest.raises(ValueError, match="a slope for each"):
        MultiHeadAttention(2, 4, position=AlibiBias(3))

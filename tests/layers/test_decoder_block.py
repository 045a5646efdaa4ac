"""A decoder block is its definition, in one pass or step by step."""

import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import assert_close, randomize, to_numpy

from keras_attention import reference
from keras_attention.layers import (
    DecoderBlock,
    EncoderBlock,
    MultiHeadAttention,
    ScaledDotProductAttention,
)

B, T, S, D, DE, N = 2, 7, 5, 12, 8, 3
DECODER, ENCODER = normal((B, T, D), (B, S, DE))
PADDING = np.arange(T) < np.array([[T], [T - 2]])
ENCODER_PADDING = np.arange(S) < np.array([[S - 2], [S]])


def built(encoder_shape=(B, S, DE), **options):
    block = DecoderBlock(N, 16, **options)
    block.build((B, T, D), encoder_shape)
    randomize(block)
    return block


def weights_of(block):
    names = (
        "attention",
        "attention_norm",
        "cross_attention",
        "cross_attention_norm",
        "feed_forward",
        "feed_forward_norm",
    )
    layers = [getattr(block, name, None) for name in names]
    return reference.DecoderWeights(
        *[layer.get_weights() if layer else [] for layer in layers]
    )


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("has_encoder", [False, True])
def test_equals_the_reference(normalize_first, has_encoder):
    encoder = ENCODER if has_encoder else None
    block = built(
        (B, S, DE) if has_encoder else None, normalize_first=normalize_first
    )
    call = {
        "decoder_padding_mask": PADDING,
        "decoder_attention_mask": coins(B, T, T, true=0.8),
    }
    if has_encoder:
        call["encoder_padding_mask"] = ENCODER_PADDING
        call["encoder_attention_mask"] = coins(B, T, S, true=0.8, seed=4)
    results = block(DECODER, encoder, return_attention_scores=True, **call)
    expected, scores = reference.decoder_block(
        np.where(PADDING[..., None], DECODER, 0),
        encoder,
        weights_of(block),
        normalize_first=normalize_first,
        **{
            name.replace("decoder_", "").replace("encoder_", "encoded_"): mask
            for name, mask in call.items()
        },
    )
    assert len(results) == 1 + len(scores) == (3 if has_encoder else 2)
    for one, other in zip(results, [expected, *scores], strict=True):
        assert_close(one, other, "float32")
    np.testing.assert_array_equal(block(DECODER, encoder, **call), results[0])


def test_a_later_position_and_padding_change_nothing():
    block = built()
    masks = {
        "decoder_padding_mask": PADDING,
        "encoder_padding_mask": ENCODER_PADDING,
    }
    expected = to_numpy(block(DECODER, ENCODER, **masks))
    decoder = np.where(PADDING[..., None], DECODER, np.nan)
    encoder = np.where(ENCODER_PADDING[..., None], ENCODER, np.nan)
    np.testing.assert_array_equal(block(decoder, encoder, **masks), expected)
    decoder[:, 4:] = 9.0
    changed = to_numpy(block(decoder, encoder, **masks))
    np.testing.assert_allclose(changed[:, :4], expected[:, :4], atol=1e-6)
    assert np.abs(changed[0, 4:] - expected[0, 4:]).max() > 0.1
    free = block(DECODER, ENCODER, use_causal_mask=False, **masks)
    assert np.abs(to_numpy(free) - expected)[:, :4].max() > 0.01


@pytest.mark.parametrize("prefill", [1, 3, 17])
@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("grouped", [False, True])
def test_steps_equal_one_pass(prefill, dtype, atol, grouped):
    length = 19
    decoder = normal((B, length, D))
    attention = None
    if grouped:
        attention = MultiHeadAttention(
            4, 6, num_key_value_heads=2, position="rotary", dtype=dtype
        )
    block = built(attention=attention, normalize_first=True, dtype=dtype)
    full, self_scores, cross_scores = block(
        decoder,
        ENCODER,
        encoder_padding_mask=ENCODER_PADDING,
        return_attention_scores=True,
    )
    cache = block.make_cache(B, length + 2)
    cross_cache = block.compute_cross_cache(ENCODER, ENCODER_PADDING)
    for start in [0, *range(prefill, length)]:
        stop = start + (1 if start else prefill)
        step = slice(start, stop)
        output, scores, over_encoder, cache, cross_cache = block(
            decoder[:, step],
            encoder_padding_mask=ENCODER_PADDING,
            self_attention_cache=cache,
            self_attention_cache_update_index=ops.convert_to_tensor(start),
            cross_attention_cache=cross_cache,
            return_attention_scores=True,
        )
        for one, other in (
            (output, full[:, step]),
            (scores[..., :length], self_scores[:, :, step]),
            (over_encoder, cross_scores[:, :, step]),
        ):
            np.testing.assert_allclose(
                to_numpy(one), to_numpy(other), atol=atol
            )
        assert not to_numpy(scores)[..., length:].any()


@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_of_ragged_prompts_gets_what_it_gets_alone(side):
    block, steps, lengths = built(None), 3, [4, 2]
    width = max(lengths)
    size = width + steps
    prompts = np.zeros((B, width, D), "float32")
    padding = np.zeros((B, size), bool)
    for row, length in enumerate(lengths):
        place = (
            slice(width - length, width) if side == "left" else slice(length)
        )
        prompts[row, place] = DECODER[row, :length]
        padding[row, place] = True
        padding[row, width:] = True
    padded = padding[:, :width]
    prompts[~padded] = np.nan
    mask = padding if side == "left" else padded
    output, cache = block(
        prompts,
        decoder_padding_mask=mask,
        self_attention_cache=block.make_cache(B, size),
        self_attention_cache_update_index=0,
    )
    for row, length in enumerate(lengths):
        alone = block(DECODER[row : row + 1, :length])
        np.testing.assert_allclose(
            to_numpy(output)[row][padded[row]], alone[0], atol=1e-5
        )
    for step in range(steps):
        at = np.array(lengths) + step
        index = width + step if side == "left" else at
        output, cache = block(
            DECODER[np.arange(B), at][:, None],
            decoder_padding_mask=mask if side == "left" else None,
            self_attention_cache=cache,
            self_attention_cache_update_index=index,
        )
        for row in range(B):
            alone = block(DECODER[row : row + 1, : at[row] + 1])
            np.testing.assert_allclose(output[row, 0], alone[0, -1], atol=1e-5)


def test_the_cache_of_the_encoder_can_be_filled_by_a_call():
    block = built()
    expected = block(DECODER, ENCODER, encoder_padding_mask=ENCODER_PADDING)
    output, cache = block(
        DECODER,
        ENCODER,
        encoder_padding_mask=ENCODER_PADDING,
        cross_attention_cache=np.zeros((B, 2, S, N, D // N), "float32"),
        cross_attention_cache_update_index=0,
    )
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_array_equal(
        cache, block.compute_cross_cache(ENCODER, ENCODER_PADDING)
    )


def test_symbolic_shapes_are_those_of_numbers():
    block = built()
    layer_contract.assert_symbolic_equals_eager(
        block, DECODER, ENCODER, return_attention_scores=True
    )


def test_masks_and_caches_are_inputs_of_a_functional_model():
    shapes = {
        "decoder_sequence": ((None, D), "float32"),
        "decoder_padding_mask": ((None,), "bool"),
        "encoder_padding_mask": ((None,), "bool"),
        "self_attention_cache": ((2, 9, N, D // N), "float32"),
        "self_attention_cache_update_index": ((), "int32"),
        "cross_attention_cache": ((2, None, N, D // N), "float32"),
    }
    inputs = {
        name: keras.Input(shape, dtype=dtype, name=name)
        for name, (shape, dtype) in shapes.items()
    }
    block = built()
    outputs = block(**inputs, return_attention_scores=True)
    assert [x.shape for x in outputs] == [
        (None, None, D),
        (None, N, None, 9),
        (None, N, None, None),
        (None, 2, 9, N, D // N),
        (None, 2, None, N, D // N),
    ]
    model = keras.Model(inputs, outputs[0])
    step = DECODER[:, :1]
    arrays = {
        "decoder_sequence": step,
        "decoder_padding_mask": np.ones((B, 9), bool),
        "encoder_padding_mask": ENCODER_PADDING,
        "self_attention_cache": block.make_cache(B, 9),
        "self_attention_cache_update_index": np.zeros(B, "int32"),
        "cross_attention_cache": block.compute_cross_cache(ENCODER),
    }
    expected = block(step, ENCODER, encoder_padding_mask=ENCODER_PADDING)
    arrays = {name: ops.convert_to_tensor(x) for name, x in arrays.items()}
    np.testing.assert_allclose(model(arrays), expected, atol=1e-5)


def test_masks_that_keras_carries_are_used():
    ids = np.array([[3, 7, 2, 0], [5, 1, 4, 6]])
    embedding = keras.layers.Embedding(8, D, mask_zero=True)
    block = DecoderBlock(N, 16)
    x = embedding(ids)
    output = block(x, x)
    alone = block(x[:1, :3], x[:1, :3])
    np.testing.assert_allclose(output[0, :3], alone[0], atol=1e-5)
    np.testing.assert_array_equal(output._keras_mask, ids > 0)


def test_dropout_falls_in_training_at_each_part():
    block = built(dropout=0.5, seed=3)
    expected = to_numpy(block(DECODER, ENCODER))
    np.testing.assert_array_equal(
        block(DECODER, ENCODER, training=False), expected
    )
    dropped = to_numpy(block(DECODER, ENCODER, training=True))
    assert np.abs(dropped - expected).max() > 0.1
    again = built(dropout=0.5, seed=3)
    np.testing.assert_array_equal(
        again(DECODER, ENCODER, training=True), dropped
    )


def test_trains_through_every_weight():
    block = built()
    x, y = keras.Input((T, D)), keras.Input((S, DE))
    model = keras.Model([x, y], block(x, y))
    before = model.get_weights()
    model.compile("sgd", "mse")
    model.fit([DECODER, ENCODER], DECODER, epochs=1, verbose=0)
    moved = [
        np.abs(a - b).max() > 0
        for a, b in zip(before, model.get_weights(), strict=True)
    ]
    # Softmax does not see what is added to all keys.
    unmoved = [
        w.path for w, m in zip(model.weights, moved, strict=True) if not m
    ]
    assert all(path.endswith("key/bias") for path in unmoved)


def test_without_an_encoder_it_is_a_causal_encoder_block():
    block = built(None)
    encoder_block = EncoderBlock(N, 16)
    encoder_block.build((B, T, D))
    encoder_block.set_weights(block.get_weights())
    np.testing.assert_array_equal(
        block(DECODER), encoder_block(DECODER, use_causal_mask=True)
    )


def test_comes_back_from_its_configuration():
    block = DecoderBlock(
        N,
        16,
        normalize_first=True,
        attention=MultiHeadAttention(4, 6, position="alibi"),
        cross_attention=MultiHeadAttention(2, 5, num_key_value_heads=1),
    )
    block(DECODER, ENCODER)
    layer_contract.assert_same_after_rebuild(block, DECODER, ENCODER)
    layer_contract.assert_same_after_rebuild(built(), DECODER, ENCODER)
    layer_contract.assert_same_after_rebuild(built(None), DECODER)


@pytest.mark.parametrize(
    "has_encoder, inputs, options, words",
    [
        (False, (DECODER, ENCODER), {}, "built without"),
        (True, (DECODER,), {}, "needs `encoder_sequence`"),
        (True, (DECODER[..., :9], ENCODER), {}, "12"),
        (
            True,
            (DECODER, ENCODER),
            {"cross_attention_cache_update_index": 0},
            "go with",
        ),
        (
            True,
            (DECODER, ENCODER),
            {
                "self_attention_cache": np.zeros((B, 2, T - 1, N, 4)),
                "self_attention_cache_update_index": 0,
            },
            "over the end",
        ),
    ],
)
def test_refuses_what_does_not_fit(has_encoder, inputs, options, words):
    block = built((B, S, DE) if has_encoder else None)
    with pytest.raises(ValueError, match=words):
        block(*inputs, **options)


def test_refuses_attention_layers_that_do_not_do():
    attention = MultiHeadAttention(2, 4)
    with pytest.raises(ValueError, match="two layers"):
        DecoderBlock(2, 4, attention=attention, cross_attention=attention)
    with pytest.raises(ValueError, match="`cross_attention` must be a Keras"):
        DecoderBlock(2, 4, cross_attention=ScaledDotProductAttention())
    with pytest.raises(ValueError, match=r"must be at least.*\(50\)"):
        DecoderBlock(50, 4)(DECODER)
    block = DecoderBlock(2, 4)
    for ask in (
        lambda: block.make_cache(1, 2),
        lambda: block.compute_cross_cache(ENCODER),
    ):
        with pytest.raises(ValueError, match="no weights yet"):
            ask()
    with pytest.raises(ValueError, match="no cross-attention"):
        built(None).compute_cross_cache(ENCODER)

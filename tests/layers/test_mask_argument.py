"""`mask=`, the name that Keras and its wrappers have for padding masks."""

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

from keras_attention import layers
from keras_attention.ops.masks import get_implicit_mask, set_implicit_mask

B, R, T, S, D = 2, 3, 5, 4, 8
IDS = np.array(
    [
        [[5, 2, 0, 0, 0], [1, 2, 3, 4, 5], [7, 0, 0, 0, 0]],
        [[0, 3, 6, 0, 0], [0, 0, 0, 2, 1], [6, 5, 4, 3, 0]],
    ]
)
X, Y = normal((B, T, D), (B, S, D))
SEEN, OTHER = np.arange(T) < [[3], [4]], np.arange(T) < [[5], [2]]
OF_VALUE = np.arange(S) < [[4], [1]]

# Layers on one sequence, with the name of their own argument.
BLOCKS = {
    "EncoderBlock": (lambda: layers.EncoderBlock(2, 12), "padding_mask"),
    "DecoderBlock": (
        lambda: layers.DecoderBlock(2, 12),
        "decoder_padding_mask",
    ),
    "SequencePooling": (lambda: layers.SequencePooling("max"), "mask"),
}
# Layers on query, key and value, and how these are called on two sequences.
ATTENTION = {
    "ScaledDotProductAttention": (
        layers.ScaledDotProductAttention,
        lambda layer, x, y, **m: layer(x, y, y, **m),
    ),
    "MultiplicativeAttention": (
        layers.MultiplicativeAttention,
        lambda layer, x, y, **m: layer(x, key=y, value=y, **m),
    ),
    "AdditiveAttention": (
        lambda: layers.AdditiveAttention(units=6),
        lambda layer, x, y, **m: layer(x, y, y, **m),
    ),
    "Attention": (
        layers.Attention,
        lambda layer, x, y, **m: layer(query=x, key=y, value=y, **m),
    ),
    "MultiHeadAttention": (
        lambda: layers.MultiHeadAttention(2, 3),
        lambda layer, x, y, **m: layer(x, y, **m),
    ),
    "GroupedQueryAttention": (
        lambda: layers.GroupedQueryAttention(3, 4, 2),
        lambda layer, x, y, **m: layer(x, y, key=y, **m),
    ),
}
each_block = pytest.mark.parametrize("name", BLOCKS)
each_attention = pytest.mark.parametrize("name", ATTENTION)


def in_rows(layer, rows=R, length=T):
    """A model that runs `layer` on each sequence of a row of sequences."""
    ids = keras.Input((rows, length), dtype="int32")
    x = keras.layers.Embedding(9, D, mask_zero=True)(ids)
    model = keras.Model(ids, keras.layers.TimeDistributed(layer)(x))
    randomize(model)
    return model


@each_block
@pytest.mark.parametrize("rows", [R, None])
def test_time_distributed_leaves_padding_out(name, rows, tmp_path):
    make, _ = BLOCKS[name]
    model = in_rows(make(), rows)
    embed, wrapper = model.layers[1:]
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    for run in (model, back, lambda ids: wrapper(embed(ids))):
        outputs = to_numpy(run(IDS))
        for place in np.ndindex(B, R):
            tokens = IDS[place][None, IDS[place] > 0]
            alone = to_numpy(wrapper.layer(embed(tokens)))[0]
            padded = outputs[place]
            if padded.ndim == 2:
                padded = padded[IDS[place] > 0]
            np.testing.assert_allclose(padded, alone, atol=1e-5)


@each_block
def test_mask_is_the_padding_mask_of_a_block(name):
    make, own = BLOCKS[name]
    layer = make()
    expected = layer(X, **{own: SEEN})
    assert np.abs(to_numpy(layer(X) - expected)).max() > 1e-3
    np.testing.assert_array_equal(layer(X, mask=SEEN), expected)
    np.testing.assert_array_equal(layer(X, mask=SEEN.tolist()), expected)
    carrying = ops.convert_to_tensor(X)
    set_implicit_mask(carrying, OTHER)
    np.testing.assert_array_equal(layer(carrying, mask=SEEN), expected)
    if own == "mask":
        return
    both = layer(carrying, mask=OTHER, **{own: SEEN})
    np.testing.assert_array_equal(both, expected)
    np.testing.assert_array_equal(get_implicit_mask(both), SEEN)
    np.testing.assert_array_equal(get_implicit_mask(layer(X, mask=SEEN)), SEEN)
    symbol, mask = keras.Input((T, D)), keras.Input((T,), dtype="bool")
    output = layer(symbol, mask=mask)
    assert get_implicit_mask(output).shape == (None, T)
    model = keras.Model([symbol, mask], output)
    back = keras.Model.from_config(model.get_config())
    back.set_weights(model.get_weights())
    for made in (model, back):
        np.testing.assert_allclose(made([X, SEEN]), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"`mask`.*\(2, 4\)"):
        layer(X, mask=OF_VALUE)


@each_block
def test_scores_get_no_mask(name):
    make, own = BLOCKS[name]
    if own != "mask":
        for mask in (SEEN, SEEN.tolist()):
            output, scores = make()(X, mask=mask, return_attention_scores=True)
            np.testing.assert_array_equal(get_implicit_mask(output), SEEN)
            assert get_implicit_mask(scores) is None


@each_attention
def test_one_mask_serves_self_attention(name):
    make, call = ATTENTION[name]
    layer = make()
    expected = call(layer, X, X, query_mask=SEEN, value_mask=SEEN)
    assert np.abs(to_numpy(call(layer, X, X) - expected)).max() > 1e-3
    for mask in (SEEN, ops.convert_to_tensor(SEEN), SEEN.tolist()):
        output = call(layer, X, X, mask=mask)
        np.testing.assert_array_equal(output, expected)
        np.testing.assert_array_equal(get_implicit_mask(output), SEEN)
    np.testing.assert_array_equal(
        call(layer, X, X, mask=None), call(layer, X, X)
    )
    symbol, mask = keras.Input((T, D)), keras.Input((T,), dtype="bool")
    model = keras.Model([symbol, mask], call(layer, symbol, symbol, mask=mask))
    back = keras.Model.from_config(model.get_config())
    back.set_weights(model.get_weights())
    for made in (model, back):
        np.testing.assert_allclose(made([X, SEEN]), expected, atol=1e-6)


@each_attention
def test_a_list_of_masks_serves_two_sequences(name):
    make, call = ATTENTION[name]
    layer = make()
    expected = call(layer, X, Y, query_mask=SEEN, value_mask=OF_VALUE)
    np.testing.assert_array_equal(
        call(layer, X, Y, mask=[SEEN, OF_VALUE]), expected
    )
    three = (None, OF_VALUE, np.ones_like(OF_VALUE))
    np.testing.assert_array_equal(
        call(layer, X, Y, mask=three, query_mask=SEEN), expected
    )
    wins = call(layer, X, Y, mask=[OTHER, ~OF_VALUE], query_mask=SEEN)
    np.testing.assert_array_equal(get_implicit_mask(wins), SEEN)
    with pytest.raises(ValueError, match="two tensors.*query_mask, value_mask"):
        call(layer, X, Y, mask=SEEN)
    with pytest.raises(ValueError, match="one to three.*len"):
        call(layer, X, Y, mask=[SEEN] * 4)
    with pytest.raises(ValueError, match=r"query_mask.*\(2, 4\)"):
        call(layer, X, Y, mask=[OF_VALUE, OF_VALUE])


class Masked(keras.layers.Layer):
    """A user's wrapper that hands on the mask that Keras gives it."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.layer = layer

    def build(self, input_shape):
        self.layer.build(input_shape, input_shape)

    def call(self, inputs, mask=None):
        return self.layer(inputs, inputs, mask=mask)


def test_a_wrapper_may_hand_its_mask_on():
    layer = Masked(layers.MultiHeadAttention(2, 3))
    embed = keras.layers.Embedding(9, D, mask_zero=True)
    outputs = layer(embed(IDS[:, 0]))
    for row, output in zip(IDS[:, 0], to_numpy(outputs), strict=True):
        tokens = embed(row[None, row > 0])
        alone = to_numpy(layer.layer(tokens, tokens))[0]
        np.testing.assert_allclose(output[row > 0], alone, atol=1e-5)

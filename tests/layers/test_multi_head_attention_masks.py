"""What multi-head attention sees of its inputs, and what it never does."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import coins, normal
from support.layer_contract import randomize, to_numpy

from keras_attention.layers import MultiHeadAttention
from keras_attention.ops.masks import get_implicit_mask

B, T, S, D, DV = 2, 4, 5, 16, 8
QUERY, VALUE, KEY = normal((B, T, D), (B, S, DV), (B, S, DV))
IDS = np.array([[3, 7, 2, 0, 0], [5, 1, 4, 6, 0]])


def built(num_heads, key_dim, *shapes, **options):
    layer = MultiHeadAttention(num_heads, key_dim, **options)
    layer.build(*shapes)
    randomize(layer)
    return layer


# Padding on the right axis.


@pytest.mark.parametrize("size, heads", [(3, 8), (2, 2)])
def test_each_row_equals_itself_alone_at_its_own_length(size, heads):
    x = normal((2, size, D))
    layer = built(heads, 6, x.shape, x.shape)
    lengths = [size - 1, size]
    padding = np.arange(size) < np.array(lengths)[:, None]
    full = coins(2, size, size) | np.eye(size, dtype=bool)
    batch, scores = layer(
        x,
        x,
        query_mask=padding,
        value_mask=padding,
        attention_mask=full,
        return_attention_scores=True,
    )
    for row, length in enumerate(lengths):
        part = x[row : row + 1, :length]
        alone, scores_alone = layer(
            part,
            part,
            attention_mask=full[row, :length, :length],
            return_attention_scores=True,
        )
        np.testing.assert_allclose(batch[row, :length], alone[0], atol=1e-5)
        np.testing.assert_allclose(
            scores[row, :, :length, :length], scores_alone[0], atol=1e-5
        )
        assert not scores[row, :, :, length:].numpy().any()


@pytest.mark.parametrize(
    "shape, axes",
    [((2, 3, 4, D), (2,)), ((2, 3, 4, D), (1,)), ((2, 3, 2, 4, D), (1, 3))],
)
def test_padding_of_inputs_with_more_axes(shape, axes):
    x, mask = normal(shape), coins(*shape[:-1], true=0.6, seed=7)
    layer = built(3, 6, shape, shape, attention_axes=axes)
    output = to_numpy(layer(x, x, query_mask=mask, value_mask=mask))
    poisoned = np.where(mask[..., None], x, np.nan)
    np.testing.assert_array_equal(
        output, layer(poisoned, poisoned, query_mask=mask, value_mask=mask)
    )
    # Each slice along the free axes is a sequence of its own.
    flat = MultiHeadAttention(3, 6)
    flat.build((None, None, D), (None, None, D))
    flat.set_weights(layer.get_weights())
    free = [a for a in range(1, len(shape) - 1) if a not in axes]
    order = (0, *free, *axes)

    def sequences(array, *features):
        moved = array.transpose((*order, *range(len(order), array.ndim)))
        length = np.prod([shape[a] for a in axes])
        return moved.reshape(-1, length, *features)

    rows, row_mask = sequences(x, D), sequences(mask)
    expected = flat(rows, rows, query_mask=row_mask, value_mask=row_mask)
    np.testing.assert_allclose(sequences(output, D), expected, atol=1e-5)


def test_a_mask_with_free_axes_equal_to_the_batch():
    x = normal((2, 2, 2, D))
    layer = built(2, 6, x.shape, x.shape, attention_axes=(2,))
    mask = np.array(
        [[[True, False], [True, True]], [[True, True], [False, True]]]
    )
    _, scores = layer(x, x, value_mask=mask, return_attention_scores=True)
    expected = np.broadcast_to(mask[:, :, None, None], (2, 2, 2, 2, 2))
    np.testing.assert_array_equal(to_numpy(scores) > 0, expected)


# Tokens.

MASKS = {
    "value_mask": {"value_mask": np.arange(S) != [[3], [9]]},
    "key_mask": {"key_mask": np.arange(S) != [[3], [9]]},
    "attention_mask (B, T, S)": {
        "attention_mask": np.broadcast_to(
            (np.arange(S) != [[3], [9]])[:, None], (B, T, S)
        )
    },
    "attention_bias": {
        "attention_bias": np.where(np.arange(S) != [[3], [9]], 0, -np.inf)[
            :, None, None
        ].astype("float32")
    },
    "attention_mask (B, 1, 1, S)": {
        "attention_mask": (np.arange(S) != [[3], [9]])[:, None, None]
    },
}
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@every_mask
def test_hidden_tokens_change_nothing_and_visible_ones_do(mask):
    layer = built(3, 6, QUERY.shape, VALUE.shape)
    changed_value, changed_key = VALUE.copy(), KEY.copy()
    changed_value[:, 3] += 1.0
    changed_key[:, 3] += 1.0
    before = to_numpy(layer(QUERY, VALUE, KEY, **mask))
    for value, key in [(changed_value, KEY), (VALUE, changed_key)]:
        after = to_numpy(layer(QUERY, value, key, **mask))
        np.testing.assert_array_equal(before[0], after[0])
        assert np.abs(before[1] - after[1]).max(axis=-1).min() > 1e-3


@every_mask
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("use_gate", [False, True])
def test_poison_at_padding_reaches_nothing(mask, poison, use_gate):
    layer = built(3, 6, QUERY.shape, VALUE.shape, use_gate=use_gate)
    query_mask = np.arange(T) != [[9], [1]]

    def run(filler):
        query, value, key = QUERY.copy(), VALUE.copy(), KEY.copy()
        value[0, 3] = key[0, 3] = query[1, 1] = filler
        inputs = [tf.constant(x) for x in (query, value, key)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = layer(
                *inputs,
                query_mask=query_mask,
                return_attention_scores=True,
                **mask,
            )
        weights = [w.value for w in layer.trainable_weights]
        return *results, *tape.gradient(results[0], [*inputs, *weights])

    for one, other in zip(run(poison), run(0.0), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("scores", [False, True])
def test_a_row_that_sees_nothing_gives_the_bias_of_the_output(
    policy, dropout, scores
):
    layer = built(3, 6, QUERY.shape, VALUE.shape, dtype=policy, dropout=dropout)
    full = np.ones((T, S), bool)
    full[2] = False
    with tf.GradientTape() as tape:
        outputs = layer(
            QUERY,
            VALUE,
            attention_mask=full,
            training=True,
            return_attention_scores=scores,
        )
        output = outputs[0] if scores else outputs
    bias = ops.cast(layer.output_dense.bias, layer.compute_dtype)
    np.testing.assert_array_equal(output[:, 2], [bias] * B)
    assert np.abs(to_numpy(output[:, 1]) - to_numpy(bias)).max() > 0.05
    if scores:
        assert not to_numpy(outputs[1])[:, :, 2].any()
    weights = [w.value for w in layer.trainable_weights]
    for gradient in tape.gradient(output, weights):
        assert np.isfinite(to_numpy(gradient)).all()


def test_causal_outputs_do_not_know_the_future():
    x = normal((B, T, D))
    layer = built(3, 6, x.shape, x.shape)
    before = to_numpy(layer(x, x, use_causal_mask=True))
    x[:, 2] += 1.0
    after = to_numpy(layer(x, x, use_causal_mask=True))
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert np.abs(before - after)[:, 2:].max(axis=-1).min() > 1e-3


# Masks that Keras carries.


class SelfAttention(keras.layers.Layer):
    """Attends to itself, and leaves every mask to Keras."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True
        self.attention = MultiHeadAttention(2, 6)

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, inputs):
        return self.attention(inputs, inputs)

    def compute_output_shape(self, shape):
        return shape


class Subclassed(keras.Model):
    def __init__(self, layers):
        super().__init__()
        self.steps = layers

    def call(self, ids):
        for step in self.steps:
            ids = step(ids)
        return ids


def functional(layers):
    ids = outputs = keras.Input((None,), dtype="int32")
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(ids, outputs)


@pytest.mark.parametrize("run", ["call", "tf.function", "predict"])
@pytest.mark.parametrize(
    "make", [functional, keras.Sequential, Subclassed], ids=lambda f: f.__name__
)
def test_implicit_masks_are_used_without_a_warning(make, run):
    layers = [
        keras.layers.Embedding(9, 8, mask_zero=True),
        SelfAttention(),
        SelfAttention(),
        keras.layers.GlobalAveragePooling1D(),
    ]
    model = make(layers)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        call = {
            "call": model,
            "tf.function": tf.function(model),
            "predict": lambda ids: model.predict(ids, verbose=0),
        }[run]
        pooled = np.asarray(call(IDS))
        for row, ids in enumerate(IDS):
            alone = model(ids[None, ids > 0])
            np.testing.assert_allclose(pooled[row], alone[0], atol=1e-5)


def test_inputs_keep_their_masks_for_the_next_layer():
    embedded = keras.layers.Embedding(9, D, mask_zero=True)(IDS)
    other = keras.layers.Embedding(9, DV, mask_zero=True)(IDS[:, :4])
    first, second = MultiHeadAttention(2, 6), MultiHeadAttention(2, 6)
    output, scores = first(embedded, other, return_attention_scores=True)
    again, scores_again = second(embedded, other, return_attention_scores=True)
    for mask in map(get_implicit_mask, (embedded, output, again)):
        np.testing.assert_array_equal(mask, IDS > 0)
    np.testing.assert_array_equal(get_implicit_mask(other), IDS[:, :4] > 0)
    assert get_implicit_mask(scores) is None
    visible = (IDS > 0)[:, None, :, None] & (IDS[:, :4] > 0)[:, None, None]
    visible = np.broadcast_to(visible, scores.shape)
    np.testing.assert_array_equal(to_numpy(scores) > 0, visible)
    np.testing.assert_array_equal(to_numpy(scores_again) > 0, visible)


def test_the_mask_of_the_key_counts_as_well():
    value = keras.layers.Embedding(9, DV)(IDS)
    key = keras.layers.Embedding(9, DV, mask_zero=True)(IDS)
    _, scores = MultiHeadAttention(2, 6)(
        QUERY, value, key, return_attention_scores=True
    )
    np.testing.assert_array_equal(to_numpy(scores)[:, 0, 0] > 0, IDS > 0)


def test_explicit_masks_win_over_implicit_ones():
    embedded = keras.layers.Embedding(9, D, mask_zero=True)(IDS)
    explicit = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    output, scores = MultiHeadAttention(2, 6)(
        embedded,
        embedded,
        query_mask=np.ones((B, 5), int),
        value_mask=explicit,
        return_attention_scores=True,
    )
    visible = np.broadcast_to(explicit[:, None, None] > 0, scores.shape)
    np.testing.assert_array_equal(to_numpy(scores) > 0, visible)
    assert get_implicit_mask(output).dtype == "bool"
    assert np.all(get_implicit_mask(output))
    np.testing.assert_array_equal(get_implicit_mask(embedded), IDS > 0)


# Refused.


def test_a_float_mask_is_refused_with_both_ways_out():
    ways_out = r"(?s)ops\.cast\(attention_mask, \"bool\"\).*`attention_bias`"
    layer = MultiHeadAttention(2, 6)
    additive = np.where(coins(T, S), 0.0, -1e9)
    with pytest.raises(TypeError, match=ways_out):
        layer(QUERY, VALUE, attention_mask=additive)
    with pytest.raises(TypeError, match=ways_out):
        layer(
            keras.Input((T, D)),
            keras.Input((S, DV)),
            attention_mask=keras.Input((T, S)),
        )
    traced = tf.function(lambda m: layer(QUERY, VALUE, attention_mask=m))
    with pytest.raises(TypeError, match=ways_out):
        traced(tf.ones((T, S)))


@pytest.mark.parametrize(
    "name, shape",
    [
        ("query_mask", (B, S)),
        ("value_mask", (B, T)),
        ("key_mask", (S,)),
        ("attention_mask", (S, T)),
        ("attention_mask", (3, T, S)),
        ("attention_bias", (B, S, T)),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_mask_of_another_shape_is_refused(name, shape, symbolic):
    dtype = "float32" if name == "attention_bias" else "bool"
    inputs, mask = [QUERY, VALUE], np.ones(shape, dtype)
    if symbolic:
        inputs = [keras.KerasTensor(x.shape) for x in inputs]
        mask = keras.KerasTensor(shape, dtype)
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(2, 6)(*inputs, **{name: mask})
    assert f"{name}.shape={shape}" in str(error.value)

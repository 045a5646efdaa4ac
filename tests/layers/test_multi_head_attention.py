"""Multi-head attention computes what Keras's layer and the oracle compute."""

import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import assert_close, randomize, to_numpy
from support.peers import needs

from keras_attention import reference
from keras_attention.layers import MultiHeadAttention

B, T, S, D, DV, DK = 2, 4, 5, 16, 8, 12
QUERY, VALUE, KEY = normal((B, T, D), (B, S, DV), (B, S, DK))

OPTIONS = {
    "plain": {},
    "gate": {"use_gate": True},
    "value_dim": {"value_dim": 5},
    "output_shape": {"output_shape": 9},
    "output_shape pair": {"output_shape": (3, 5)},
    "no bias": {"use_bias": False},
    "window": {"sliding_window": 2},
    "gate, no bias, widths": {
        "use_gate": True,
        "use_bias": False,
        "value_dim": 5,
        "output_shape": [9],
        "sliding_window": 3,
    },
}


def pair(*shapes, num_heads=3, key_dim=6, **options):
    """Our layer and Keras's, built alike and with the same weights."""
    needs(keras.layers.MultiHeadAttention, *options)
    ours = MultiHeadAttention(num_heads, key_dim, **options)
    theirs = keras.layers.MultiHeadAttention(num_heads, key_dim, **options)
    for layer in (ours, theirs):
        layer.build(*shapes)
    randomize(theirs)
    ours.set_weights(theirs.get_weights())
    return ours, theirs


def assert_same(results, expected, atol=1e-5):
    results, expected = map(keras.tree.flatten, (results, expected))
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=atol)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_keras(options, causal):
    ours, theirs = pair(QUERY.shape, VALUE.shape, KEY.shape, **options)
    call = {
        "attention_mask": coins(B, T, S) | (np.arange(S) == 0),
        "use_causal_mask": causal,
    }
    expected = theirs(QUERY, VALUE, KEY, return_attention_scores=True, **call)
    results = ours(QUERY, VALUE, KEY, return_attention_scores=True, **call)
    assert_same(results, expected)
    assert_same(ours(QUERY, VALUE, KEY, **call), expected[0])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_weights_are_those_of_keras(options):
    ours = MultiHeadAttention(3, 6, name="attention", **options)
    theirs = keras.layers.MultiHeadAttention(3, 6, name="attention", **options)
    for layer in (ours, theirs):
        layer.build(QUERY.shape, VALUE.shape, KEY.shape)

    def described(layer):
        return [(w.path, w.name, w.shape, w.dtype) for w in layer.weights]

    assert described(ours) == described(theirs)
    assert ours.count_params() == theirs.count_params()


@pytest.mark.parametrize(
    "shapes, axes",
    [
        (((B, 3, 4, D), (B, 3, 5, DV)), 2),
        (((B, 3, 4, D), (B, 3, 5, DV)), -2),
        (((B, 3, 4, D), (B, 5, 4, DV)), (1,)),
        (((B, 3, 4, D), (B, 5, 2, DV)), None),
        (((B, 3, 4, D), (B, 5, 2, DV)), (1, 2)),
        (((B, 3, 4, D), (B, 5, 2, DV)), (2, 1)),
        (((B, 3, 2, 4, D), (B, 5, 2, 7, DV)), (1, 3)),
        (((B, 3, 2, 4, D), (B, 3, 5, 7, DV)), (2, -2)),
        (((B, 3, 2, 4, D), (B, 5, 6, 7, DV)), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("masked", [False, True])
def test_more_axes_equal_keras(shapes, axes, masked):
    ours, theirs = pair(*shapes, attention_axes=axes, use_gate=True)
    query, value = normal(*shapes)
    call = {"return_attention_scores": True}
    if masked:
        rank = len(shapes[0])
        chosen = range(1, rank - 1) if axes is None else np.atleast_1d(axes)
        lengths = [shape[a] for shape in shapes for a in chosen]
        call["attention_mask"] = coins(B, *lengths, true=0.9)
    results = ours(query, value, **call)
    assert_same(results, theirs(query, value, **call))
    symbolic = ours(*(keras.KerasTensor(s) for s in shapes), **call)
    assert [x.shape for x in symbolic] == [x.shape for x in results]


@pytest.mark.parametrize("masked", [False, True])
def test_scores_of_six_axes_equal_keras(masked):
    # Keras's layer makes them where oneDNN is off, and fails where it is on.
    shapes = (B, 3, 2, 4, D), (B, 3, 2, 7, DV)
    joined = [(B * 3, *shape[2:]) for shape in shapes]
    ours, _ = pair(*shapes, attention_axes=-2)
    _, theirs = pair(*joined, attention_axes=-2)
    query, value = normal(*shapes)
    masks = [None, None]
    if masked:
        mask = coins(B, 4, 7, true=0.9)
        masks = mask, mask.repeat(3, axis=0)
    results = ours(
        query, value, attention_mask=masks[0], return_attention_scores=True
    )
    expected = theirs(
        *(x.reshape(s) for x, s in zip((query, value), joined, strict=True)),
        attention_mask=masks[1],
        return_attention_scores=True,
    )
    for one, other in zip(results, expected, strict=True):
        assert one.shape == (B, 3, *other.shape[1:])
        np.testing.assert_allclose(
            np.reshape(one, other.shape), other, atol=1e-5
        )


@pytest.mark.parametrize("use_gate", [False, True])
@pytest.mark.parametrize("num_key_value_heads", [None, 2, 1])
def test_equals_the_reference(use_gate, num_key_value_heads):
    options = {
        "use_gate": use_gate,
        "num_key_value_heads": num_key_value_heads,
    }
    layer = MultiHeadAttention(8, 6, value_dim=5, sliding_window=4, **options)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(layer)
    call = {
        "query_mask": coins(B, T, seed=1),
        "value_mask": coins(B, S, seed=2),
        "key_mask": coins(B, S, seed=3),
        "attention_mask": coins(B, 8, T, S),
        "attention_bias": normal((B, 1, T, S)),
        "use_causal_mask": True,
    }
    results = layer(QUERY, VALUE, KEY, return_attention_scores=True, **call)
    expected = reference.multi_head_attention(
        QUERY,
        VALUE,
        KEY,
        weights=layer.get_weights(),
        use_gate=use_gate,
        sliding_window=4,
        **call,
    )
    for one, other in zip(results, expected, strict=True):
        assert_close(one, other, "float32")


@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_heads_equal_their_heads_repeated(groups):
    grouped = MultiHeadAttention(8, 6, num_key_value_heads=groups)
    every = MultiHeadAttention(8, 6)
    for layer in (grouped, every):
        layer.build(QUERY.shape, VALUE.shape)
    randomize(grouped)
    assert grouped.key_dense.kernel.shape == (DV, groups, 6)
    assert grouped.value_dense.bias.shape == (groups, 6)
    every.set_weights(
        [
            # Kernels (D, K, H) and biases (K, H) alike.
            np.repeat(w, 8 // groups, axis=-2) if 2 <= i < 6 else w
            for i, w in enumerate(grouped.get_weights())
        ]
    )
    call = {"return_attention_scores": True, "attention_mask": coins(B, T, S)}
    assert_same(grouped(QUERY, VALUE, **call), every(QUERY, VALUE, **call))


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_symbolic_equals_eager_across_lengths_and_widths(
    return_attention_scores, policy
):
    layer_contract.assert_symbolic_equals_eager(
        MultiHeadAttention(3, 6, output_shape=(7, 2), dtype=policy),
        QUERY,
        VALUE,
        KEY,
        return_attention_scores=return_attention_scores,
    )


def test_lengths_may_be_unknown_to_a_model():
    query, value = keras.Input((None, D)), keras.Input((None, DV))
    layer = MultiHeadAttention(3, 6)
    outputs = layer(query, value, return_attention_scores=True)
    assert [x.shape for x in outputs] == [
        (None, None, D),
        (None, 3, None, None),
    ]
    model = keras.Model([query, value], outputs)
    assert_same(
        model([QUERY, VALUE]), layer(QUERY, VALUE, return_attention_scores=True)
    )


def test_scores_sum_to_one_and_leave_the_output_as_it_is():
    layer = MultiHeadAttention(3, 6, dropout=0.4)
    output, scores = layer(QUERY, VALUE, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(scores).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(
        to_numpy(output), to_numpy(layer(QUERY, VALUE)), atol=1e-5
    )


@pytest.mark.parametrize("key", [None, "the value"])
def test_the_key_defaults_to_the_value(key):
    layer = MultiHeadAttention(3, 6)
    query, value = ops.convert_to_tensor(QUERY), ops.convert_to_tensor(VALUE)
    expected = layer(query, value, ops.copy(value))
    assert_same(layer(query, value, value if key else None), expected)


@pytest.mark.parametrize(
    "dtypes", [("float16", "float32", "bfloat16"), ("int32", "float32", "int8")]
)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_inputs_of_several_dtypes(dtypes, policy):
    layer = MultiHeadAttention(3, 6, dtype=policy)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(layer, scale=0.1)
    inputs = [
        ops.cast(np.round(x), dtype)
        for x, dtype in zip((QUERY, VALUE, KEY), dtypes, strict=True)
    ]
    weights = [ops.cast(w, layer.compute_dtype) for w in layer.get_weights()]
    expected, _ = reference.multi_head_attention(
        *map(to_numpy, inputs), weights=[to_numpy(w) for w in weights]
    )
    assert_close(layer(*inputs), expected, layer.compute_dtype)


def test_a_bias_keeps_its_own_precision_under_a_mixed_policy():
    layer = MultiHeadAttention(3, 6, dtype="mixed_float16")
    layer.build(QUERY.shape, VALUE.shape)
    randomize(layer)
    # In float16 the first would be -inf, the second inf, the third a constant.
    bias = np.array([-7e4, 7e4, 1e3, 0.0], "float32")[:, None] + np.array(
        [0.0, 0.1, 0.2, 0.1, 0.0], "float32"
    )
    output, scores = layer(
        QUERY, VALUE, attention_bias=bias, return_attention_scores=True
    )
    assert output.dtype == scores.dtype == "float16"
    _, expected = reference.multi_head_attention(
        QUERY, VALUE, weights=layer.get_weights(), attention_bias=bias
    )
    np.testing.assert_allclose(to_numpy(scores), expected, atol=5e-3)


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_logits_beyond_float16_stay_finite(policy):
    layer = MultiHeadAttention(1, 64, use_bias=False, dtype=policy)
    layer.build((B, T, 64), (B, S, 64))
    layer.set_weights([np.eye(64).reshape(w.shape) for w in layer.weights])
    query, key = np.full((B, T, 64), 60.0), np.full((B, S, 64), 60.0)
    key[:, 1] = -60.0
    mask = np.arange(S) != 3
    output, scores = layer(
        query,
        key / 60,
        key,
        attention_mask=mask[None],
        return_attention_scores=True,
    )
    right = mask & (np.arange(S) != 1)
    assert_close(output, np.ones((B, T, 64)), "float16")
    assert_close(
        scores, np.broadcast_to(right / right.sum(), (B, 1, T, S)), "float16"
    )

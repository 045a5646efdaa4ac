"""What the layers called with (query, key, value) have in common."""

import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention.layers import (
    AdditiveAttention,
    Attention,
    MultiplicativeAttention,
    ScaledDotProductAttention,
)
from keras_attention.ops import masks

B, T, S, D, DV = 2, 3, 5, 8, 6

LAYERS = {
    "scaled": ScaledDotProductAttention,
    "dot": MultiplicativeAttention,
    "general": lambda **kw: MultiplicativeAttention("general", **kw),
    "additive": lambda **kw: AdditiveAttention(7, **kw),
}
# These score a query that is padding, as Keras's layers do.
SCORING_PADDING = {
    "Keras's dot": lambda **kw: Attention(True, **kw),
    "Keras's concat": lambda **kw: Attention(True, "concat", **kw),
    "Keras's additive": AdditiveAttention,
}
every_layer_but_those = pytest.mark.parametrize(
    "make", LAYERS.values(), ids=LAYERS
)
LAYERS = {**LAYERS, **SCORING_PADDING}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)

QUERY_MASK = np.array([[True, True, False], [True, True, True]])
KEY_MASK = np.array([[True, False, True, True, True], [True] * 3 + [False] * 2])
VALUE_MASK = np.array([[True] * 5, [False] + [True] * 4])


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(1)


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    shapes = [(B, T, D), (B, S, D), (B, S, DV)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@every_layer_but_those
def test_masks_are_joined(make, inputs):
    layer = make()
    full = np.random.default_rng(5).random((B, T, S)) < 0.7
    _, scores = layer(
        *inputs,
        query_mask=QUERY_MASK,
        key_mask=KEY_MASK,
        value_mask=VALUE_MASK,
        attention_mask=full,
        use_causal_mask=True,
        return_attention_scores=True,
    )
    visible = full & np.tri(T, S, dtype=bool)
    visible &= QUERY_MASK[:, :, None] & (KEY_MASK & VALUE_MASK)[:, None, :]
    assert visible.any() and not visible.all()
    np.testing.assert_array_equal(to_numpy(scores) > 0, visible)
    np.testing.assert_allclose(
        to_numpy(scores).sum(-1), visible.any(-1), atol=1e-6
    )


@every_layer
def test_scores_leave_the_output_as_it_is(make, inputs):
    layer = make(dropout=0.5)
    context, scores = layer(*inputs, return_attention_scores=True)
    np.testing.assert_allclose(
        to_numpy(context), to_numpy(layer(*inputs)), atol=1e-6
    )
    np.testing.assert_allclose(
        to_numpy(context), to_numpy(scores) @ inputs[2], atol=1e-6
    )


@every_layer
@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_symbolic_equals_eager(make, inputs, return_attention_scores):
    layer_contract.assert_symbolic_equals_eager(
        make(dtype="mixed_bfloat16"),
        *inputs,
        return_attention_scores=return_attention_scores,
    )


@every_layer
def test_shape_without_a_call(make):
    layer = make()
    shapes = [(None, T, D), (None, S, D), (None, S, DV)]
    assert layer.compute_output_shape(*shapes) == (None, T, DV)


@every_layer
def test_implicit_masks_are_used_and_passed_on(make, inputs):
    layer = make()
    tensors = [ops.convert_to_tensor(x) for x in inputs]
    for tensor, mask in zip(
        tensors, [QUERY_MASK, KEY_MASK, VALUE_MASK], strict=True
    ):
        masks.set_implicit_mask(tensor, ops.convert_to_tensor(mask))
    context = layer(*tensors)
    expected = layer(
        *inputs,
        query_mask=QUERY_MASK,
        key_mask=KEY_MASK,
        value_mask=VALUE_MASK,
    )
    assert np.abs(to_numpy(expected) - to_numpy(layer(*inputs))).max() > 0.01
    np.testing.assert_array_equal(to_numpy(context), to_numpy(expected))
    for tensor, mask in zip(
        [*tensors, context, expected],
        [QUERY_MASK, KEY_MASK, VALUE_MASK, QUERY_MASK, QUERY_MASK],
        strict=True,
    ):
        np.testing.assert_array_equal(masks.get_implicit_mask(tensor), mask)


@every_layer
def test_explicit_masks_win_over_implicit_ones(make, inputs):
    layer = make()
    query, key, value = (ops.convert_to_tensor(x) for x in inputs)
    masks.set_implicit_mask(key, ops.convert_to_tensor(KEY_MASK))
    masks.set_implicit_mask(query, ops.convert_to_tensor(QUERY_MASK))
    everything = {
        "query_mask": np.ones((B, T), "bool"),
        "key_mask": np.ones((B, S), "bool"),
    }
    context = layer(query, key, value, **everything)
    np.testing.assert_allclose(
        to_numpy(context), to_numpy(layer(*inputs)), atol=1e-6
    )
    assert to_numpy(masks.get_implicit_mask(context)).all()


@every_layer_but_those
def test_masks_in_a_functional_model(make):
    ids = keras.Input((None,), dtype="int32")
    embed = keras.layers.Embedding(9, D, mask_zero=True)
    attend = make()
    embedded = embed(ids)
    context, scores = attend(
        embedded, embedded, embedded, return_attention_scores=True
    )
    model = keras.Model(ids, [context, scores])
    token_ids = np.array([[4, 2, 0, 0], [5, 1, 3, 2]])
    scores = to_numpy(model(token_ids)[1])
    visible = (token_ids > 0)[:, :, None] & (token_ids > 0)[:, None, :]
    np.testing.assert_array_equal(scores > 0, visible)


@every_layer
@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_nothing_hidden_reaches_a_result_or_gradient(make, inputs, policy):
    import tensorflow as tf

    layer = make(dtype=policy)
    layer.build(*[x.shape for x in inputs])
    options = {"query_mask": QUERY_MASK, "key_mask": KEY_MASK}
    clean = [ops.convert_to_tensor(x) for x in inputs]
    query, key, value = (x.copy() for x in inputs)
    query[~QUERY_MASK] = np.nan
    key[~KEY_MASK] = np.inf
    value[~KEY_MASK] = np.nan
    spoilt = [ops.convert_to_tensor(x) for x in (query, key, value)]

    def outputs_and_gradients(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            context = layer(*tensors, **options)
            loss = ops.sum(ops.square(ops.cast(context, "float32")))
        weights = layer.trainable_variables
        sources = [*tensors, *(w.value for w in weights)]
        return [context, *tape.gradient(loss, sources)]

    for one, other in zip(
        outputs_and_gradients(spoilt),
        outputs_and_gradients(clean),
        strict=True,
    ):
        assert np.isfinite(to_numpy(one)).all()
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@every_layer
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_wholly_masked_row_is_zero(make, inputs, policy, training):
    mask = np.ones((B, T, S), "bool")
    mask[1, 2] = False
    layer = make(dropout=0.3, dtype=policy)
    context, scores = layer(
        *inputs,
        attention_mask=mask,
        return_attention_scores=True,
        training=training,
    )
    assert not to_numpy(context)[1, 2].any()
    assert not to_numpy(scores)[1, 2].any()
    assert to_numpy(context)[1, 1].any()


@every_layer
def test_dropout_acts_in_training_alone(make, inputs):
    layer = make(dropout=0.5, seed=7)
    plain = to_numpy(layer(*inputs))
    np.testing.assert_array_equal(
        to_numpy(layer(*inputs, training=False)), plain
    )
    first, second = (to_numpy(layer(*inputs, training=True)) for _ in range(2))
    assert (first != plain).any() and (first != second).any()
    again = make(dropout=0.5, seed=7)
    again.build(*[x.shape for x in inputs])
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(
        to_numpy(again(*inputs, training=True)), first
    )


@every_layer
def test_bias_of_minus_infinity_hides(make, inputs):
    layer = make()
    bias = np.where(KEY_MASK, 0.5, -np.inf)[:, None, :].astype("float32")
    np.testing.assert_allclose(
        to_numpy(layer(*inputs, attention_bias=bias)),
        to_numpy(layer(*inputs, key_mask=KEY_MASK)),
        atol=1e-6,
    )


@every_layer
def test_what_a_bias_hides_may_be_nan(make, inputs):
    query, key, value = (x.copy() for x in inputs)
    bias = np.zeros((B, T, S), "float32")
    bias[0, :, 4] = bias[1, 2, :] = -np.inf
    layer = make()
    clean = layer(query, key, value, attention_bias=bias)
    query[1, 2] = key[0, 4] = value[0, 4] = np.nan
    np.testing.assert_array_equal(
        to_numpy(layer(query, key, value, attention_bias=bias)),
        to_numpy(clean),
    )


@every_layer
def test_large_negative_bias_is_no_mask_in_half_precision(make, inputs):
    layer = make(dtype="mixed_float16")
    bias = np.full((T, S), -1e9, "float32")
    bias[0, 1:] = 0.0
    _, scores = layer(
        *inputs, attention_bias=bias, return_attention_scores=True
    )
    scores = to_numpy(scores)
    np.testing.assert_allclose(scores.sum(-1), np.ones((B, T)), atol=2e-3)
    assert not scores[:, 0, 0].any()


@every_layer
def test_inputs_of_mixed_dtypes(make, inputs):
    query, key, value = inputs
    layer = make(dtype="mixed_bfloat16")
    context = layer(
        query.astype("float16"),
        key.astype("float64"),
        value,
        attention_bias=np.zeros((T, S)),
    )
    assert context.dtype == "bfloat16"


@every_layer
def test_rank_four(make):
    """Each head is attended to as if it were alone, padding and all."""
    rng = np.random.default_rng(9)
    shapes = [(B, 4, T, D), (B, 4, S, D), (B, 4, S, DV)]
    inputs = [rng.normal(size=shape).astype("float32") for shape in shapes]
    layer = make()
    context = layer(*inputs, key_mask=KEY_MASK, query_mask=QUERY_MASK)
    assert context.shape == (B, 4, T, DV)
    single = make()
    single.build(*[(B, *x.shape[2:]) for x in inputs])
    single.set_weights(layer.get_weights())
    for head in range(4):
        alone = single(
            *[x[:, head] for x in inputs],
            key_mask=KEY_MASK,
            query_mask=QUERY_MASK,
        )
        np.testing.assert_allclose(
            to_numpy(context)[:, head], to_numpy(alone), atol=1e-6
        )


@every_layer
@pytest.mark.parametrize("symbolic", [False, True])
def test_bad_inputs_are_refused_early(make, inputs, symbolic):
    layer = make()
    inputs = [*inputs, *(np.repeat(x[:1], 3, 0) for x in inputs[1:])]
    if symbolic:
        inputs = [keras.KerasTensor(x.shape) for x in inputs]
    query, key, value, other_key, other_value = inputs
    with pytest.raises(ValueError, match=r"key_mask.*\(2, 3\)"):
        layer(query, key, value, key_mask=QUERY_MASK)
    with pytest.raises(ValueError, match=r"attention_mask.*\(2, 5, 3\)"):
        layer(query, key, value, attention_mask=np.ones((B, S, T), "bool"))
    with pytest.raises(TypeError, match="attention_bias.*int"):
        layer(query, key, value, attention_bias=np.ones((T, S), "int32"))
    with pytest.raises(ValueError, match=r"batch size.*\(2, 3, 8\)"):
        make()(query, other_key, other_value)


@every_layer
def test_symbolic_masks_of_every_shape(make):
    layer = make()
    query, key = keras.Input((T, D)), keras.Input((S, D))
    for shape in [(T, S), (1, S), (T, 1), (1, 1)]:
        mask = keras.Input(shape, dtype="bool")
        context = layer(query, key, key, attention_mask=mask)
        assert context.shape == (None, T, D)


@every_layer
@pytest.mark.parametrize("dropout", [-0.1, 1.5, "half", None])
def test_dropout_out_of_range(make, dropout):
    with pytest.raises(ValueError, match=f"dropout.*{dropout}"):
        make(dropout=dropout)

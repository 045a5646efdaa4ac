"""The layers on one list of inputs are Keras's, and safer."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import layer_contract
from support.arrays import normal
from support.layer_contract import randomize, to_numpy
from support.peers import where_keras_can

from keras_attention import layers
from keras_attention.models import attention_scores_model
from keras_attention.ops.masks import get_implicit_mask

B, T, S, D, DV = 2, 4, 5, 8, 6
QUERY, VALUE, KEY = normal((B, T, D), (B, S, DV), (B, S, D))
INPUTS = {"value": [QUERY, KEY], "key and value": [QUERY, VALUE, KEY]}
MASK = [np.arange(T) < [[3], [4]], np.arange(S) < [[5], [2]]]
IDS = np.array([[3, 7, 2, 0, 0], [5, 1, 4, 6, 0]])

KINDS = {
    "dot": ("Attention", {}),
    "dot, scaled": ("Attention", {"use_scale": True}),
    "concat": ("Attention", {"score_mode": "concat"}),
    "concat, scaled": (
        "Attention",
        {"use_scale": True, "score_mode": "concat", "dropout": 0.3},
    ),
    "additive": ("AdditiveAttention", {"dropout": 0.3}),
    "additive, unscaled": ("AdditiveAttention", {"use_scale": False}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def ours(kind, **options):
    name, own = KINDS[kind]
    return getattr(layers, name)(**own, **options)


def pair(kind, shapes=((B, T, D), (B, S, D))):
    """Our layer and Keras's, built alike and with the same weights."""
    name, options = KINDS[kind]
    both = ours(kind), getattr(keras.layers, name)(**options)
    for layer in both:
        layer.build(list(shapes))
    randomize(both[1])
    both[0].set_weights(both[1].get_weights())
    return both


@pytest.mark.parametrize(
    "causal, masked",
    [
        (False, False),
        (True, False),
        (True, True),
        pytest.param(False, True, marks=where_keras_can),
    ],
)
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
@every_kind
def test_equals_keras(kind, inputs, causal, masked):
    one, other = pair(kind)
    call = {"use_causal_mask": causal, "mask": MASK if masked else None}
    context, scores = one(inputs, return_attention_scores=True, **call)
    right, right_scores = other(inputs, return_attention_scores=True, **call)
    np.testing.assert_allclose(context, right, atol=1e-5)
    np.testing.assert_allclose(one(inputs, **call), right, atol=1e-5)
    # Keras scores what stands at a padded query.
    seen = MASK[0] if masked else np.ones((B, T), bool)
    np.testing.assert_allclose(scores[seen], right_scores[seen], atol=1e-5)
    np.testing.assert_allclose(to_numpy(scores).sum(-1), 1.0, atol=1e-5)


@every_kind
def test_weights_are_those_of_keras_in_files_too(kind, tmp_path):
    def model(layer, seed):
        inputs = [keras.Input((None, D)), keras.Input((None, D))]
        made = keras.Model(inputs, layer(inputs))
        randomize(made, seed=seed)
        return made

    one, other = (model(layer, i) for i, layer in enumerate(pair(kind)))
    names = [[w.name for w in m.trainable_weights] for m in (one, other)]
    assert names[0] == names[1]
    path = tmp_path / "model.weights.h5"
    for writer, reader in [(other, one), (one, other)]:
        randomize(writer, seed=7)
        randomize(reader, seed=8)
        writer.save_weights(path)
        reader.load_weights(path)
        for read, written in zip(
            reader.get_weights(), writer.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(read, written)


@every_kind
def test_takes_the_configuration_of_keras(kind):
    config = pair(kind)[1].get_config()
    config = json.loads(json.dumps(config))
    back = type(ours(kind)).from_config(config).get_config()
    assert {name: back[name] for name in config} == config


@every_kind
def test_a_list_is_the_same_as_three_arguments(kind):
    layer, _ = pair(kind)
    listed = layer([QUERY, VALUE, KEY], MASK)
    apart = layer(QUERY, KEY, VALUE, query_mask=MASK[0], value_mask=MASK[1])
    by_name = layer(inputs=(QUERY, VALUE, KEY), mask=tuple(MASK))
    np.testing.assert_array_equal(listed, apart)
    np.testing.assert_array_equal(listed, by_name)
    np.testing.assert_array_equal(get_implicit_mask(listed), MASK[0])


@every_kind
def test_symbolic_equals_eager(kind):
    layer = ours(kind, dtype="mixed_bfloat16")

    def signature(outputs):
        return [(tuple(x.shape[1:]), x.dtype) for x in outputs]

    symbols = [keras.Input(x.shape[1:]) for x in (QUERY, VALUE, KEY)]
    symbolic = layer(symbols, return_attention_scores=True)
    eager = layer([QUERY, VALUE, KEY], return_attention_scores=True)
    assert signature(symbolic) == [
        (tuple(x.shape[1:]), x.dtype.name) for x in eager
    ]
    shapes = [x.shape for x in (QUERY, VALUE, KEY)]
    assert layer.compute_output_shape(shapes) == (B, T, DV)


class OnIds(keras.Model):
    """Embeds, attends twice and pools, and says nothing of masks."""

    def __init__(self, kind):
        super().__init__()
        self.embed = keras.layers.Embedding(9, D, mask_zero=True)
        self.attend = [ours(kind), ours(kind)]
        self.pool = keras.layers.GlobalAveragePooling1D()

    def call(self, ids):
        x = self.embed(ids)
        y = self.attend[0]([x, x])
        return self.pool(self.attend[1]([y, x]))


@every_kind
def test_masks_of_an_embedding_are_used_and_passed_on(kind):
    subclassed = OnIds(kind)
    ids = keras.Input((None,), dtype="int32")
    functional = keras.Model(ids, subclassed.call(ids))
    alone = [subclassed(row[None, row > 0])[0] for row in IDS]
    for run in (subclassed, tf.function(subclassed), functional):
        np.testing.assert_allclose(run(IDS), alone, atol=1e-5)
    back = keras.models.clone_model(functional)
    back.set_weights(functional.get_weights())
    np.testing.assert_allclose(back(IDS), alone, atol=1e-5)
    _, scores = attention_scores_model(functional)(IDS)
    assert len(scores) == 2
    for value in scores.values():
        assert value.shape == (2, 1, 5, 5)
        assert not to_numpy(value)[0, :, :, 3:].any()


@where_keras_can
@every_kind
def test_a_model_of_keras_can_be_rebuilt_with_these(kind):
    """Its configuration holds calls on lists, with masks among them."""
    name, options = KINDS[kind]
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, D, mask_zero=True)(ids)
    theirs = keras.Model(ids, getattr(keras.layers, name)(**options)([x, x]))
    swapped = keras.models.clone_model(
        theirs,
        clone_function=lambda layer: (
            ours(kind)
            if type(layer).__name__ == name
            else type(layer).from_config(layer.get_config())
        ),
    )
    swapped.set_weights(theirs.get_weights())
    np.testing.assert_allclose(swapped(IDS), theirs(IDS), atol=1e-5)


@where_keras_can
@pytest.mark.parametrize("score_mode", ["dot", "concat"])
def test_more_axes_equal_keras(score_mode):
    query, value = normal((2, 3, 4, 8), (2, 3, 5, 8))
    options = {"use_scale": True, "score_mode": score_mode}
    one, other = layers.Attention(**options), keras.layers.Attention(**options)
    for x, y in zip(
        one([query, value], return_attention_scores=True),
        other([query, value], return_attention_scores=True),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_the_scale_learns_on_the_path_of_linear_memory():
    query, value = normal((1, 400, D), (1, 401, D))
    one, other = pair("dot, scaled")
    gradients = []
    for layer in (one, other):
        with tf.GradientTape() as tape:
            loss = ops.sum(ops.square(layer([query, value])))
        gradients.append(tape.gradient(loss, layer.scale.value))
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-4)


def test_keras_order_by_position_is_refused_where_it_would_mislead():
    with pytest.raises(ValueError, match="use_scale=False"):
        layers.AdditiveAttention(False)


def test_an_additive_mask_is_refused():
    mask = [None, np.where(MASK[1], 0.0, -1e9)]
    with pytest.raises(TypeError, match="value_mask.*attention_bias"):
        layers.Attention()([QUERY, KEY], mask=mask)


def test_units_project_what_a_list_holds():
    layer = layers.AdditiveAttention(units=7)
    context = layer([QUERY, VALUE], mask=MASK)
    assert context.shape == (B, T, DV) and len(layer.weights) == 3
    layer_contract.assert_same_after_rebuild(layer, [QUERY, VALUE])


class Queries(keras.layers.Layer):
    """Learned queries, the same for all rows: a batch of one."""

    def build(self, input_shape):
        self.queries = self.add_weight(shape=(1, T, D))

    def call(self, inputs):
        return ops.convert_to_tensor(self.queries)


@every_kind
def test_learned_queries_serve_every_row(kind):
    one, other = pair(kind, ((1, T, D), (B, S, D)))
    listed = [QUERY[:1], KEY]
    expected = to_numpy(other(listed, use_causal_mask=True))
    assert expected.shape == (B, T, D)
    actual = one(listed, use_causal_mask=True)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    visible = np.arange(T) < [[3]]
    context, scores = one(
        listed, mask=[visible, MASK[1]], return_attention_scores=True
    )
    assert context.shape == (B, T, D) and scores.shape == (B, T, S)
    assert not to_numpy(context)[:, 3:].any()
    assert get_implicit_mask(context).shape == (B, T)
    apart = one(QUERY[:1], KEY, KEY, query_mask=visible, value_mask=MASK[1])
    np.testing.assert_array_equal(context, apart)


def test_learned_queries_in_a_model_of_any_batch():
    inputs = keras.Input((None, D))
    context = layers.Attention(use_scale=True)([Queries()(inputs), inputs])
    assert context.shape == (None, T, D)
    model = keras.Model(inputs, context)
    back = keras.models.clone_model(model)
    back.set_weights(model.get_weights())
    (queries, scale), batch = model.get_weights(), normal((3, S, D))
    rows = layers.Attention()([np.repeat(scale * queries, 3, 0), batch])
    for made in (model, back):
        np.testing.assert_allclose(made(batch), rows, atol=1e-5)


@every_kind
def test_builds_as_in_keras(kind):
    one, other = (
        ours(kind),
        getattr(keras.layers, KINDS[kind][0])(**KINDS[kind][1]),
    )
    shapes = [(None, T, D), (None, S, D)]
    for layer in (one, other):
        layer.build(input_shape=shapes)
    assert [w.shape for w in one.weights] == [w.shape for w in other.weights]
    back = ours(kind)
    back.build_from_config(json.loads(json.dumps(one.get_build_config())))
    assert [w.shape for w in back.weights] == [w.shape for w in one.weights]
    with pytest.raises(TypeError, match="input_shape.*other_shape"):
        ours(kind).build(shapes[0], other_shape=shapes)

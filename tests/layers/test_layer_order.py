"""Weights of a model with Keras's layer go into the same model with ours.

Keras finds the layers of a file by their order in the model, which follows
from how each call passed its tensors on. Layers of equal shapes that trade
places take each other's weights without a word.
"""

import keras
import numpy as np
import pytest
from support.arrays import normal
from support.layer_contract import randomize, to_numpy
from support.peers import where_keras_can

import keras_attention
from keras_attention import layers

B, T, S, D = 2, 6, 5, 8
QUERY, VALUE, KEY = normal((B, T, 4), (B, S, 3), (B, S, 7))
MASKS = {
    "query_mask": np.arange(T) < [[3], [4]],
    "value_mask": np.arange(S) < [[5], [2]],
}

# How each layer is called, given its inputs and, by name, their masks.
LISTS = {
    "two": lambda layer, q, v, k, **masks: layer([q, v]),
    "three": lambda layer, q, v, k, **masks: layer([q, v, k]),
    "by name": lambda layer, q, v, k, **masks: layer(inputs=[q, v, k]),
    "masks": lambda layer, q, v, k, **masks: layer(
        [q, v, k], mask=list(masks.values())
    ),
    "masks by position": lambda layer, q, v, k, **masks: layer(
        [q, v, k], list(masks.values())
    ),
}
HEADS = {
    "two": lambda layer, q, v, k, **masks: layer(q, v),
    "three": lambda layer, q, v, k, **masks: layer(q, v, k),
    "by name": lambda layer, q, v, k, **masks: layer(query=q, value=v, key=k),
    "in part by name": lambda layer, q, v, k, **masks: layer(q, key=k, value=v),
    "masks": lambda layer, q, v, k, **masks: layer(q, v, k, **masks),
}
DROP_INS = {
    "Attention": ({"use_scale": True}, LISTS),
    "AdditiveAttention": ({}, LISTS),
    "MultiHeadAttention": ({"num_heads": 2, "key_dim": 3}, HEADS),
    "GroupQueryAttention": (
        {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2},
        HEADS,
    ),
}
# Earlier releases refuse a model that leaves out an input, and masks of lists
# where lengths differ.
LATER = ("two", "masks", "masks by position")
CALLS = [
    pytest.param(name, call, marks=where_keras_can if call in LATER else ())
    for name, (_, calls) in DROP_INS.items()
    for call in calls
]
each_call = pytest.mark.parametrize("name, call", CALLS)


@keras.saving.register_keras_serializable("test_layer_order")
class Seen(keras.layers.Layer):
    """A learned mask, so that it matters where masks stand as well."""

    def build(self, input_shape):
        self.limit = self.add_weight(
            name="limit", shape=(), initializer="zeros"
        )

    def call(self, inputs):
        return keras.ops.max(inputs, axis=-1) > self.limit


def model(module, name, call):
    """A model around a layer, one small layer before each of its inputs."""
    options, calls = DROP_INS[name]
    inputs = [keras.Input(x.shape[1:]) for x in (QUERY, VALUE, KEY)]
    projected = [
        keras.layers.Dense(D, name=label)(x)
        for label, x in zip(("middle", "last", "first"), inputs, strict=True)
    ]
    masks = {
        "query_mask": Seen(name="b")(inputs[0]),
        "value_mask": Seen(name="a")(inputs[1]),
    }
    layer = getattr(module, name)(**options, name="attend")
    outputs = calls[call](layer, *projected, **masks)
    return keras.Model(inputs, outputs)


def by_keras(name, call):
    made = model(keras.layers, name, call)
    randomize(made)
    return made, made([QUERY, VALUE, KEY])


def assert_takes_the_place(swapped, theirs):
    """Layers and weights stand in the same order, under the same names."""
    one, other = (
        [
            layer.name
            for layer in made.layers
            if not isinstance(layer, keras.layers.InputLayer)
        ]
        for made in (swapped, theirs)
    )
    assert one == other
    assert [w.path for w in swapped.weights] == [w.path for w in theirs.weights]


def assert_equal_where_tokens_are(swapped, expected, call):
    """Keras gives rows that are padding some value or other."""
    actual = to_numpy(swapped([QUERY, VALUE, KEY]))
    seen = np.ones((B, T), bool)
    if call.startswith("masks"):
        limit = swapped.get_layer("b").get_weights()[0]
        seen = QUERY.max(-1) > limit
        assert 0 < seen.sum() < seen.size
    np.testing.assert_allclose(
        actual[seen], to_numpy(expected)[seen], atol=1e-5
    )


@each_call
def test_weights_of_keras_find_their_layers(name, call, tmp_path):
    theirs, expected = by_keras(name, call)
    path = tmp_path / "model.weights.h5"
    theirs.save_weights(path)
    for load in (
        lambda made: made.load_weights(path),
        lambda made: made.set_weights(theirs.get_weights()),
    ):
        swapped = model(layers, name, call)
        assert_takes_the_place(swapped, theirs)
        load(swapped)
        assert_equal_where_tokens_are(swapped, expected, call)
    swapped.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert_takes_the_place(back, theirs)
    assert_equal_where_tokens_are(back, expected, call)


@each_call
def test_weights_of_keras_find_their_layers_in_upgraded_models(
    name, call, tmp_path
):
    theirs, expected = by_keras(name, call)
    path = tmp_path / "model.weights.h5"
    theirs.save_weights(path)
    randomize(theirs, seed=5)
    swapped = keras_attention.upgrade(theirs)
    assert type(swapped.get_layer("attend")) is getattr(layers, name)
    assert_takes_the_place(swapped, theirs)
    for again in (swapped, keras.models.clone_model(swapped)):
        again.load_weights(path)
        assert_equal_where_tokens_are(again, expected, call)

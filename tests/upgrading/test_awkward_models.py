"""Models whose parts cannot be made again, are shared, or stay."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

import keras_attention
from keras_attention import layers
from keras_attention.upgrading.files import upgrade_file

B, T, D = 2, 5, 8
X = normal((B, T, D))


class Closed(keras.layers.Layer):
    """Cannot be made again: its configuration says nothing."""

    def __init__(self, *members, **kwargs):
        super().__init__(**kwargs)
        first, *others = members
        self.first = first
        self.others = [{"more": others}, tuple(others)]

    def call(self, inputs):
        x = _applied(self.first, inputs)
        for layer in self.others[1]:
            x = _applied(layer, x)
        return x


def _applied(layer, x):
    attends = "Attention" in type(layer).__name__
    return layer(x, x) if attends else layer(x)


def attention(name="attend"):
    return keras.layers.MultiHeadAttention(2, 4, name=name)


def functional(*stack, compile_by=None):
    inputs = keras.Input((T, D), name="x")
    x = inputs
    for layer in stack:
        x = _applied(layer, x)
    model = keras.Model(inputs, x, name="model")
    randomize(model)
    if compile_by:
        model.compile(compile_by, loss="mse")
        model.fit(X, np.zeros((B, *model.output_shape[1:])), verbose=0)
    return model


def test_a_layer_without_attention_may_stay_the_object_it_was():
    closed = Closed(keras.layers.Dense(D), name="closed")
    closed.trainable = False
    old = functional(attention(), closed)
    flags = [v.trainable for v in old.weights]
    expected = to_numpy(old(X))
    new, report = keras_attention.upgrade(old, return_report=True)
    assert new.get_layer("closed") is closed
    assert new.get_layer("attend") is not old.get_layer("attend")
    assert any("part of both models" in n.why for n in report.notes)
    assert [v.trainable for v in old.weights] == flags
    assert [v.trainable for v in new.weights] == flags
    np.testing.assert_allclose(new(X), expected, atol=1e-5)
    np.testing.assert_array_equal(old(X), expected)


def test_a_frozen_model_around_such_a_layer_leaves_its_flags():
    closed = Closed(keras.layers.Dense(D), name="closed")
    old = functional(attention(), closed)
    old.trainable = False
    closed.trainable = True
    new = keras_attention.upgrade(old)
    assert closed.first.trainable and not new.trainable
    assert len(new.trainable_variables) == len(old.trainable_variables) == 0
    assert not new.get_layer("attend").trainable


def test_attention_inside_such_a_layer_is_refused_and_the_way_out_named():
    old = functional(Closed(attention(), name="closed"))
    with pytest.raises(ValueError, match="'model/closed'.*in_place=True"):
        keras_attention.upgrade(old)
    assert type(old.get_layer("closed").first) is type(attention())


def test_attention_is_replaced_in_place_on_request():
    shared = attention("shared")
    closed = Closed(
        attention("a"), keras.layers.Dense(D), shared, shared, name="closed"
    )
    old = functional(closed, keras.layers.Dense(3))
    names = [w.path for w in old.weights]
    expected = to_numpy(old(X))
    new, report = keras_attention.upgrade(
        old, return_report=True, in_place=True
    )
    assert new.get_layer("closed") is closed
    assert isinstance(closed.first, layers.MultiHeadAttention)
    (by_name, in_tuple) = closed.others
    assert isinstance(by_name["more"][1], layers.MultiHeadAttention)
    assert by_name["more"][1] is in_tuple[1] is in_tuple[2]
    assert sorted(c.path for c in report.changes) == [
        "model/closed/a",
        "model/closed/shared",
    ]
    assert [w.shape for w in new.weights] == [w.shape for w in old.weights]
    assert len(new.weights) == len(names)
    np.testing.assert_allclose(new(X), expected, atol=1e-5)
    np.testing.assert_allclose(old(X), expected, atol=1e-5)


def test_a_model_that_is_changed_in_place_trains_on_where_it_was():
    class Own(keras.Model):
        def __init__(self, member):
            super().__init__()
            self.attend = member
            self.top = keras.layers.Dense(3)

        def call(self, inputs):
            return self.top(self.attend(inputs, inputs))

        def get_config(self):
            raise NotImplementedError

    def trained():
        keras.utils.set_random_seed(4)
        model = Own(attention())
        model.compile("adam", loss="mse")
        model.fit(X, np.zeros((B, T, 3)), epochs=2, verbose=0)
        return model

    plain, old = trained(), trained()
    expected = old.predict(X, verbose=0)
    new = keras_attention.upgrade(old, in_place=True)
    assert new is old and isinstance(old.attend, layers.MultiHeadAttention)
    np.testing.assert_allclose(new.predict(X, verbose=0), expected, atol=1e-5)
    for model in (plain, new):
        model.fit(X, np.zeros((B, T, 3)), epochs=2, verbose=0)
    assert new.optimizer.iterations == plain.optimizer.iterations
    np.testing.assert_allclose(new(X), plain(X), atol=1e-4)


def test_nothing_changes_where_the_upgrade_fails(monkeypatch):
    closed = Closed(attention(), name="closed")
    old = functional(closed, attention("other"))

    def fail(self, layer, path):
        raise ValueError("no luck")

    monkeypatch.setattr(
        "keras_attention.upgrading.copying.Copier._replace", fail
    )
    with pytest.raises(ValueError, match="no luck"):
        keras_attention.upgrade(old, in_place=True)
    assert type(closed.first) is type(attention())


def test_a_model_without_attention_is_returned_as_it_is():
    old = functional(Closed(keras.layers.Dense(D)), keras.layers.Dense(3))
    new, report = keras_attention.upgrade(old, return_report=True)
    assert new is old and not report.changes


@keras.saving.register_keras_serializable("test_awkward")
class Head(keras.layers.Layer):
    """Scores against the table of an embedding, which it is given."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.dense = keras.layers.Dense(D)

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        table = ops.transpose(self.embedding.embeddings)
        return ops.matmul(self.dense(inputs), table)

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config):
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        return cls(**{**config, "embedding": embedding})


def test_a_tied_embedding_stays_tied():
    ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(7, D, name="table")
    x = embedding(ids)
    old = keras.Model(ids, Head(embedding, name="head")(attention()(x, x)))
    new = keras_attention.upgrade(old)
    assert new.get_layer("head").embedding is new.get_layer("table")
    assert new.get_layer("table") is not embedding
    assert len(new.weights) == len(old.weights)
    ids = np.array([[1, 2, 6]])
    np.testing.assert_allclose(new(ids), old(ids), atol=1e-5)
    with tf.GradientTape() as tape:
        loss = ops.sum(new(ids) ** 2)
    slopes = tape.gradient(loss, [v.value for v in new.trainable_variables])
    assert all(slope is not None for slope in slopes)


@keras.saving.register_keras_serializable("test_awkward")
class Reader(keras.Model):
    """A model of a class, built by being called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attend = attention()
        self.dense = keras.layers.Dense(3)

    def call(self, inputs):
        return self.dense(self.attend(inputs, inputs))


def test_a_model_of_a_class_comes_back_built(tmp_path):
    old = Reader(name="reader")
    old(X)
    new = keras_attention.upgrade(old)
    assert new.built and new.summary(print_fn=lambda *_, **__: None) is None
    new.save_weights(tmp_path / "new.weights.h5")
    old.set_weights([0 * w for w in old.get_weights()])
    old.load_weights(tmp_path / "new.weights.h5")
    np.testing.assert_allclose(new(X), old(X), atol=1e-5)
    new.save(tmp_path / "new.keras")
    back = keras.saving.load_model(tmp_path / "new.keras")
    np.testing.assert_allclose(back(X), new(X), atol=1e-5)


@keras.saving.register_keras_serializable("test_awkward")
class Named(keras.Model):
    """A functional model with methods of its own."""

    def __init__(self, width=D, **kwargs):
        inputs = keras.Input((T, width))
        x = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs)
        super().__init__(inputs, x, **kwargs)
        self.width = width

    def write(self):
        return f"width {self.width}"

    def get_config(self):
        return {"width": self.width, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_a_functional_model_stays_of_its_class():
    old = Named()
    new, report = keras_attention.upgrade(old, return_report=True)
    assert type(new) is Named and new.write() == "width 8"
    assert len(report.changes) == 1
    np.testing.assert_allclose(new(X), old(X), atol=1e-5)


def test_names_of_inputs_are_kept():
    inputs = keras.Input((T, D))
    old = keras.Model(inputs, attention()(inputs, inputs))
    new = keras_attention.upgrade(old)
    assert [x.name for x in new.layers] == [x.name for x in old.layers]


@pytest.mark.parametrize("shape", [(1,), (None,)])
def test_a_file_of_words_without_others_is_compared_on_them(shape, tmp_path):
    words = keras.Input(shape, dtype="string", name="words")
    known = ["nineteen", "two words", "x"]
    ids = keras.layers.StringLookup(vocabulary=known, num_oov_indices=0)(words)
    x = keras.layers.Embedding(5, D)(ids)
    old = keras.Model(words, attention()(x, x))
    old.save(tmp_path / "old.keras")
    result = upgrade_file(tmp_path / "old.keras", tmp_path / "new.keras")
    assert result.difference < 1e-5


def test_a_model_that_no_made_up_input_suits_is_told_so(tmp_path):
    ids = keras.Input((T,), dtype="int32")
    known = keras.layers.IntegerLookup(vocabulary=[907, 911], num_oov_indices=0)
    x = keras.layers.Embedding(5, D)(known(ids))
    keras.Model(ids, attention()(x, x)).save(tmp_path / "old.keras")
    with pytest.raises(ValueError, match="does not run on the inputs"):
        upgrade_file(tmp_path / "old.keras", tmp_path / "new.keras")
    assert [p.name for p in tmp_path.iterdir()] == ["old.keras"]

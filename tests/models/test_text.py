"""Models that read token ids."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layer_contract import randomize, to_numpy

from keras_attention import layers, models

SMALL = {"hidden_dim": 12, "num_heads": 3, "num_layers": 2}
ROWS = [[5, 3, 8], [2, 7, 4, 9, 1, 6], [9]]

each_pooling = pytest.mark.parametrize("pooling", ["mean", "max", "first"])


def padded(length=6, pad_id=0, first=0):
    """Returns the rows as one batch, each begun `first` columns in."""
    ids = np.full((len(ROWS), first + length), pad_id)
    for row, tokens in zip(ids, ROWS, strict=True):
        row[first : first + len(tokens)] = tokens
    return ids


@each_pooling
@pytest.mark.parametrize("pad_id", [0, 10])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", None])
def test_a_row_alone_equals_the_row_in_a_batch(pooling, pad_id, positions):
    model = models.text_classifier(
        11, 4, pad_id=pad_id, pooling=pooling, positions=positions, **SMALL
    )
    randomize(model)
    batch = to_numpy(model(padded(pad_id=pad_id)))
    longer = to_numpy(model(padded(length=13, pad_id=pad_id)))
    for index, tokens in enumerate(ROWS):
        alone = to_numpy(model(np.array([tokens])))[0]
        np.testing.assert_allclose(batch[index], alone, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(longer[index], alone, rtol=1e-5, atol=1e-6)


def test_padding_on_the_left_is_padding_too():
    """Without positions, where a row stands makes no difference."""
    model = models.text_classifier(
        11, 4, pooling="first", positions=None, **SMALL
    )
    randomize(model)
    np.testing.assert_allclose(
        model(padded(first=4)), model(padded()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "make",
    [models.encoder, lambda size, **kw: models.token_classifier(size, 4, **kw)],
    ids=["encoder", "token_classifier"],
)
def test_each_token_is_told_from_tokens_alone(make):
    model = make(11, **SMALL)
    randomize(model)
    batch = to_numpy(model(padded()))
    for index, tokens in enumerate(ROWS):
        alone = to_numpy(model(np.array([tokens])))[0]
        np.testing.assert_allclose(
            batch[index, : len(tokens)], alone, rtol=1e-5, atol=1e-6
        )


@each_pooling
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_row_of_padding_is_finite(pooling, policy):
    """Forward, and in the gradient of a batch that holds one."""
    model = models.text_classifier(
        11, 4, pooling=pooling, dtype=policy, **{**SMALL, "num_layers": 1}
    )
    ids = padded()
    expected = to_numpy(model(ids))
    ids = np.concatenate([ids, np.zeros((1, 6), ids.dtype)])
    output = to_numpy(model(ids))
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output[:-1], expected, rtol=1e-3, atol=1e-4)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.train_on_batch(ids, np.arange(4))
    assert all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.parametrize("normalize_first", [False, True])
def test_keras_carries_the_mask_through_the_layers(normalize_first):
    """From an embedding to a pooling layer of Keras, without a word of it."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(11, 12, mask_zero=True)(ids)
    x = layers.SinusoidalPositionEncoding()(x)
    x = layers.PositionEmbedding(16)(x)
    x = layers.EncoderBlock(3, 20, normalize_first=normalize_first)(x)
    x = layers.MultiHeadAttention(2, 5)(x, x)
    x = layers.FeedForward(20)(x)
    x = layers.EncoderBlock(3, 20, normalize_first=normalize_first)(x)
    ours = layers.SequencePooling()(x)
    keras_own = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(ids, [ours, keras_own])
    randomize(model)
    batch = [to_numpy(x) for x in model(padded())]
    traced = model.predict(padded(), verbose=0)
    np.testing.assert_allclose(batch[0], batch[1], rtol=1e-5, atol=1e-5)
    for index, tokens in enumerate(ROWS):
        alone = [to_numpy(x)[0] for x in model(np.array([tokens]))]
        for pooled in (batch, traced):
            for one, other in zip(pooled, alone, strict=True):
                np.testing.assert_allclose(
                    one[index], other, rtol=1e-5, atol=1e-5
                )


def test_the_mask_reaches_a_sequential_and_a_subclassed_model():
    stages = [
        keras.layers.Embedding(11, 12, mask_zero=True),
        layers.PositionEmbedding(16),
        layers.EncoderBlock(3, 20),
        layers.SequencePooling("max"),
    ]

    class Classifier(keras.Model):
        def __init__(self):
            super().__init__()
            self.stages = stages

        def call(self, x):
            for stage in self.stages:
                x = stage(x)
            return x

    alone = [to_numpy(Classifier()(np.array([row])))[0] for row in ROWS]
    for model in (keras.Sequential(stages), Classifier()):
        for output in (model(padded()), model.predict(padded(), verbose=0)):
            np.testing.assert_allclose(output, alone, rtol=1e-5, atol=1e-5)


def test_it_learns_which_token_is_there():
    """A word anywhere in a padded text decides."""
    rng = np.random.default_rng(3)
    ids = rng.integers(3, 20, (256, 7))
    labels = np.arange(256) % 2
    ids[np.arange(256), rng.integers(0, 4, 256)] = labels + 1
    ids[::3, 4:] = 0
    model = models.text_classifier(
        20, 2, hidden_dim=16, num_heads=2, num_layers=1, dropout=0.0
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(ids, labels, batch_size=32, epochs=6, verbose=0)
    assert model.evaluate(ids, labels, verbose=0)[1] > 0.95


def test_training_goes_on_where_it_was_saved(tmp_path):
    """The optimizer comes back as well."""
    model = models.text_classifier(11, 3, dropout=0.0, **SMALL)
    model.compile("adamw", "sparse_categorical_crossentropy")
    ids, labels = padded(), np.arange(len(ROWS))
    model.train_on_batch(ids, labels)
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, back):
        one.train_on_batch(ids, labels)
    for one, other in zip(back.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rates", [(0.1, 0.0), (0.0, 0.1)])
def test_weights_fit_whatever_the_dropout(rates, tmp_path):
    saved, read = (
        models.text_classifier(11, 4, dropout=rate, **SMALL) for rate in rates
    )
    randomize(saved)
    saved.save_weights(tmp_path / "model.weights.h5")
    read.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(read(padded()), saved(padded()))


def test_pooling_and_activation_are_passed_on():
    model = models.text_classifier(
        11, 4, pooling="first", classifier_activation=None, **SMALL
    )
    assert model.get_layer("pooling").mode == "first"
    assert model.output_names == ["logits"]
    logits = to_numpy(model(padded()))
    same = models.text_classifier(11, 4, pooling="first", **SMALL)
    same.set_weights(model.get_weights())
    np.testing.assert_allclose(
        same(padded()), to_numpy(ops.softmax(logits)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("bad", [0, -2, None, "many", 2.5])
def test_a_vocabulary_that_is_none(bad):
    with pytest.raises(
        ValueError,
        match=f"`vocabulary_size`.*positive.*vocabulary_size={bad!r}",
    ):
        models.encoder(bad)


@pytest.mark.parametrize("bad", [11, -1, None, 1.0])
def test_padding_outside_the_vocabulary(bad):
    with pytest.raises(ValueError, match=f"`pad_id`.*0 to 10.*pad_id={bad}"):
        models.token_classifier(11, 2, pad_id=bad)


def test_a_text_beyond_the_learned_positions():
    model = models.encoder(11, positions="learned", max_length=4, **SMALL)
    with pytest.raises(ValueError, match="sequence_length=4.*length 6"):
        model(padded())

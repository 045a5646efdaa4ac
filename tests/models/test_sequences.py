"""Models that read feature vectors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

from keras_attention import models

F = 5
SMALL = {"hidden_dim": 12, "num_heads": 3, "num_layers": 2}
LENGTHS = [3, 6, 1]
FEATURES = normal((len(LENGTHS), 6, F))


def padded(pad_value, length=6):
    features = np.full((len(LENGTHS), length, F), pad_value, "float32")
    for row, values, end in zip(features, FEATURES, LENGTHS, strict=True):
        row[:end] = values[:end]
    return features


def alone(model, index):
    return to_numpy(model(FEATURES[index : index + 1, : LENGTHS[index]]))[0]


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
@pytest.mark.parametrize("pad_value", [0.0, -9])
def test_a_row_alone_equals_the_row_in_a_batch(pooling, pad_value):
    for make in (models.sequence_classifier, models.sequence_regressor):
        model = make(F, 4, pad_value=pad_value, pooling=pooling, **SMALL)
        randomize(model)
        for features in (padded(pad_value), padded(pad_value, length=11)):
            batch = to_numpy(model(features))
            for index in range(len(LENGTHS)):
                np.testing.assert_allclose(
                    batch[index], alone(model, index), rtol=1e-5, atol=1e-5
                )


def test_a_value_at_each_step():
    model = models.sequence_regressor(F, 2, return_sequences=True, **SMALL)
    assert model.output_shape == (None, None, 2)
    randomize(model)
    batch = to_numpy(model(padded(0.0)))
    for index, end in enumerate(LENGTHS):
        np.testing.assert_allclose(
            batch[index, :end], alone(model, index), rtol=1e-5, atol=1e-5
        )


def test_without_padding_zeros_are_steps():
    model = models.sequence_classifier(F, 4, pad_value=None, **SMALL)
    randomize(model)
    assert "padding_mask" not in [layer.name for layer in model.layers]
    short = FEATURES[:1, :3]
    longer = np.pad(short, [(0, 0), (0, 2), (0, 0)])
    assert np.abs(model(short) - model(longer)).max() > 1e-3


def test_a_step_that_is_zero_in_part_is_no_padding():
    model = models.sequence_classifier(F, 4, **SMALL)
    randomize(model)
    blind = models.sequence_classifier(F, 4, pad_value=None, **SMALL)
    blind.set_weights(model.get_weights())
    features = FEATURES.copy()
    features[:, 2, : F - 1] = 0.0
    np.testing.assert_allclose(
        model(features), blind(features), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_a_row_of_padding_is_finite(pooling):
    model = models.sequence_regressor(F, pooling=pooling, **SMALL)
    output = to_numpy(model(np.zeros((2, 6, F), "float32")))
    assert np.isfinite(output).all()
    np.testing.assert_array_equal(output[0], output[1])


def test_it_learns_the_mean_of_a_feature():
    features = np.random.default_rng(3).normal(size=(256, 8, 3))
    features[::2, 5:] = 0.0
    lengths = np.where(np.arange(256) % 2, 8, 5)
    targets = features[:, :, 0].sum(axis=1) / lengths
    model = models.sequence_regressor(
        3, hidden_dim=16, num_heads=2, num_layers=1, dropout=0.0
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(features, targets, batch_size=32, epochs=8, verbose=0)
    assert model.evaluate(features, targets, verbose=0) < targets.var() / 10


@pytest.mark.parametrize("bad", [0, None, "3", 1.5])
def test_bad_sizes(bad):
    for make in (models.sequence_classifier, models.sequence_regressor):
        with pytest.raises(
            ValueError, match=f"`num_features`.*positive.*num_features={bad!r}"
        ):
            make(bad, 2)
    with pytest.raises(ValueError, match=f"`num_outputs`.*num_outputs={bad!r}"):
        models.sequence_regressor(3, bad)


def test_steps_of_nan_are_padding(tmp_path):
    model = models.sequence_regressor(F, 4, pad_value=np.nan, **SMALL)
    randomize(model)
    features = padded(np.nan)
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    for made in (model, back):
        for index, values in enumerate(to_numpy(made(features))):
            np.testing.assert_allclose(values, alone(model, index), atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(features) ** 2)
    variables = [weight.value for weight in model.trainable_weights]
    for gradient in tape.gradient(loss, variables):
        assert np.isfinite(gradient).all()

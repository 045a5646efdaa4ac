"""Arguments of the factories are refused by the name they have there."""

import json
import math

import keras
import numpy as np
import pytest

from keras_attention import models


@pytest.mark.parametrize("value", [-math.inf, math.inf, "x"])
def test_padding_of_features_is_a_finite_number(value):
    for make in (models.sequence_classifier, models.sequence_regressor):
        with pytest.raises(ValueError, match="`pad_value`.*pad_value="):
            make(3, 2, pad_value=value)


@pytest.mark.parametrize("value", [None, "8", 0, 2.5])
def test_a_width_that_is_no_positive_integer(value):
    with pytest.raises(ValueError, match=f"hidden_dim={value!r}"):
        models.text_classifier(9, 2, hidden_dim=value)


def test_true_is_no_padding_id():
    with pytest.raises(ValueError, match="`pad_id`.*pad_id=True"):
        models.encoder(9, pad_id=True)


@pytest.mark.parametrize("return_sequences", [False, True])
def test_a_regressor_refuses_an_unknown_pooling(return_sequences):
    """Also where it pools nothing."""
    with pytest.raises(ValueError, match="`pooling`.*'mean'.*pooling='sum'"):
        models.sequence_regressor(
            3, pooling="sum", return_sequences=return_sequences
        )


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (
            models.text_classifier,
            {"vocabulary_size": 9, "num_classes": 3, "pad_id": 2},
        ),
        (models.sequence_regressor, {"num_features": 3, "num_outputs": 2}),
        (
            models.image_classifier,
            {"image_shape": (4, 6, 3), "patch_size": (2, 3), "num_classes": 5},
        ),
    ],
)
def test_integers_may_come_from_numpy(make, own, tmp_path):
    """The length of an array, the largest of the ids: Keras wants an `int`."""
    sizes = {
        "hidden_dim": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_dim": 7,
        "max_length": 11,
    }
    plain = make(**own, **sizes)
    arrays = {k: np.array(v) for k, v in own.items()}
    scalars = {k: v if v.ndim else np.int64(v) for k, v in arrays.items()}
    model = make(**scalars, **{k: np.int32(v) for k, v in sizes.items()})
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert _configs(back) == _configs(model) == _configs(plain)


def _configs(model):
    configs = [layer.get_config() for layer in model.layers]
    for config in configs:
        # Unseeded, it draws a seed of its own when it is made.
        config.pop("seed", None)
    return json.dumps(configs)

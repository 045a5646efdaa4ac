"""Arguments of the factories are refused by the name they have there."""

import math

import pytest

from keras_attention import models


@pytest.mark.parametrize("value", [math.nan, math.inf, "x"])
def test_padding_of_features_is_a_finite_number(value):
    for make in (models.sequence_classifier, models.sequence_regressor):
        with pytest.raises(ValueError, match="`pad_value`.*pad_value="):
            make(3, 2, pad_value=value)


@pytest.mark.parametrize("value", [None, "8", 0, 2.5])
def test_a_width_that_is_no_positive_integer(value):
    with pytest.raises(ValueError, match=f"hidden_dim={value}"):
        models.text_classifier(9, 2, hidden_dim=value)

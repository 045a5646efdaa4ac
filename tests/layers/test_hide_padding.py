import keras
import numpy as np
import pytest
import tensorflow as tf
from support import layer_contract
from support.arrays import normal
from support.layer_contract import to_numpy

from keras_attention.layers import PaddingMask
from keras_attention.layers.hide_padding import HidePadding
from keras_attention.ops.masks import get_implicit_mask

B, T, F = 2, 5, 3
STEPS = normal((B, T, F))
SEEN = np.arange(T) < [[3], [4]]
NAN = float("nan")


@pytest.mark.parametrize("pad_value", [NAN, "nan", 2.5, 0])
def test_steps_of_one_value_become_zeros(pad_value):
    steps = np.where(SEEN[..., None], STEPS, float(pad_value))
    # One feature of that value is no padding.
    if pad_value in (2.5, 0):
        steps[0, 0, 1] = pad_value
    layer = HidePadding(pad_value)
    for run in (layer, tf.function(layer)):
        hidden = run(steps)
        expected = np.where(SEEN[..., None], steps, 0)
        np.testing.assert_allclose(hidden, expected, rtol=1e-6)
    np.testing.assert_array_equal(get_implicit_mask(layer(steps)), SEEN)
    np.testing.assert_array_equal(PaddingMask(pad_value)(steps), SEEN)
    assert layer(keras.Input((T, F)))._keras_mask.shape == (None, T)
    for kind in (HidePadding(pad_value), PaddingMask(pad_value)):
        back = layer_contract.rebuilt(kind)
        np.testing.assert_array_equal(back(steps), kind(steps))


def test_goes_by_the_mask_alone_and_by_both():
    steps = np.where(SEEN[..., None], STEPS, NAN)
    mask = np.arange(T) < [[4], [2]]
    hidden = HidePadding()(steps, mask=SEEN)
    np.testing.assert_allclose(hidden, np.nan_to_num(steps), rtol=1e-6)
    both = HidePadding(NAN)(steps, mask=mask)
    np.testing.assert_array_equal(get_implicit_mask(both), SEEN & mask)
    assert not to_numpy(both)[~mask].any()
    assert get_implicit_mask(HidePadding()(STEPS)) is None


def test_what_is_no_value_or_no_sequence_is_refused():
    for pad_value in (float("inf"), "none", True):
        with pytest.raises(ValueError, match="pad_value"):
            HidePadding(pad_value)
    with pytest.raises(ValueError, match="ndim"):
        HidePadding()(STEPS[0])
    with pytest.raises(ValueError, match="ids are never NaN"):
        PaddingMask(NAN)(np.ones((B, T), int))
    with pytest.raises(ValueError, match=r"mask.*\(2, 3\)"):
        HidePadding()(STEPS, mask=SEEN[:, :3])

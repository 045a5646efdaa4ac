import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract

from keras_attention.layers import PaddingMask

IDS = np.array([[7, 4, 0], [0, 2, 9]], "int32")


def test_ids():
    mask = ops.convert_to_numpy(PaddingMask()(IDS))
    assert mask.tolist() == [[True, True, False], [False, True, True]]
    mask = ops.convert_to_numpy(PaddingMask(pad_id=9)(IDS))
    assert mask.tolist() == [[True] * 3, [True, True, False]]


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_features(policy):
    """A small feature is no padding, whatever the policy."""
    features = np.array([[[0.0, 1e-30], [0.0, 0.0]]], "float32")
    mask = PaddingMask(dtype=policy)(features)
    assert ops.convert_to_numpy(mask).tolist() == [[True, False]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4)])
def test_symbolic_equals_eager(shape):
    ids = np.ones(shape, "int32")
    layer_contract.assert_symbolic_equals_eager(PaddingMask(), ids)


def test_in_a_functional_model():
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, PaddingMask(pad_id=9)(ids))
    assert ops.convert_to_numpy(model(IDS)).tolist() == (IDS != 9).tolist()


def test_config():
    layer = PaddingMask(pad_id=-1, name="mask", dtype="mixed_float16")
    layer_contract.assert_round_trip(layer, pad_id=-1, name="mask")
    layer_contract.assert_same_after_rebuild(layer, IDS)
    assert layer_contract.rebuilt(PaddingMask(np.int64(3))).pad_id == 3


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4, 5)])
def test_bad_rank(shape):
    for inputs in (np.ones(shape, "int32"), keras.KerasTensor(shape)):
        with pytest.raises(ValueError, match="inputs.shape="):
            PaddingMask()(inputs)


@pytest.mark.parametrize("value", [None, "[PAD]", True, np.inf, -np.inf])
def test_bad_pad_id(value):
    with pytest.raises(ValueError, match="pad_id.*Received: pad_id="):
        PaddingMask(pad_id=value)

"""Tensors that no layer can take are refused in words that help."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.catalogue import FACTORIES, LAYERS

from keras_attention.ops import dot_product_attention, masks

each_layer = pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)
each_model = pytest.mark.parametrize("case", FACTORIES.values(), ids=FACTORIES)
WAY_OUT = r"(?s)is ragged.*`\.to_tensor\(\)`.*mask"


def ragged(array):
    """An array as a tensor whose last row is one step shorter."""
    lengths = [array.shape[1]] * (len(array) - 1) + [array.shape[1] - 1]
    return tf.RaggedTensor.from_tensor(tf.constant(array), lengths=lengths)


@each_layer
def test_ragged_tensors_are_refused(case):
    layer = case.make()
    arrays = {name: ragged(array) for name, array in case.tensors.items()}
    # Images have no mask.
    images = case.layer_class.__name__ == "PatchEmbedding"
    for run in (layer, tf.function(layer)):
        with pytest.raises(
            ValueError, match="`.to_tensor" if images else WAY_OUT
        ):
            run(**arrays)


@each_layer
def test_ragged_inputs_of_a_model_are_refused(case):
    symbols = {
        name: keras.KerasTensor(array.shape, array.dtype, ragged=True)
        for name, array in case.tensors.items()
    }
    with pytest.raises(ValueError, match=WAY_OUT):
        case.make()(**symbols)


@each_model
def test_models_refuse_ragged_inputs(case):
    model = case.model()
    arrays = {name: ragged(array) for name, array in case.arrays.items()}
    with pytest.raises(ValueError, match=WAY_OUT):
        model(arrays)
    with pytest.raises(ValueError, match=WAY_OUT):
        model.predict(arrays, verbose=0)


@pytest.mark.parametrize(
    "build",
    [
        masks.padding_mask,
        masks.combine_masks,
        lambda ids: masks.length_mask(ids, 3),
    ],
)
def test_mask_helpers_refuse_ragged_tensors(build):
    with pytest.raises(ValueError, match=WAY_OUT):
        build(tf.ragged.constant([[1, 2, 0], [3]]))


@each_layer
def test_ragged_masks_are_refused(case):
    for name, mask in case.options.items():
        others = {k: v for k, v in case.arrays.items() if k != name}
        with pytest.raises(ValueError, match=WAY_OUT):
            case.make()(**others, **{name: ragged(mask)})


@each_layer
def test_complex_numbers_are_refused(case):
    layer = case.make()
    for name, array in case.tensors.items():
        for kind in (np.complex64, np.complex128):
            arrays = {**case.arrays, name: array.astype(kind)}
            with pytest.raises(TypeError, match="complex.*real.*imag"):
                layer(**arrays)


def test_the_function_refuses_both():
    x = np.ones((2, 3, 4, 8), "float32")
    for place in range(3):
        inputs = [x, x, x]
        inputs[place] = ragged(x)
        with pytest.raises(ValueError, match=WAY_OUT):
            dot_product_attention(*inputs)
        inputs[place] = x.astype("complex64")
        with pytest.raises(TypeError, match="complex.*real.*imag"):
            dot_product_attention(*inputs)

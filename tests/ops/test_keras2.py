"""Tensors of Keras 2 are told apart without importing it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import layers
from keras_attention.ops.keras2 import refuse_keras_2

SHAPE = (2, 5, 8)
Keras2Tensor = type(
    "KerasTensor",
    (),
    {
        "__module__": "tf_keras.src.engine.keras_tensor",
        "shape": SHAPE,
        "dtype": "float32",
    },
)
ONE = {
    "feed forward": lambda: layers.FeedForward(3),
    "padding": layers.PaddingMask,
    "patches": lambda: layers.PatchEmbedding(2, 4),
    "pooling": layers.SequencePooling,
}
THREE = {
    "dot": layers.Attention,
    "scaled": layers.ScaledDotProductAttention,
    "general": lambda: layers.MultiplicativeAttention("general"),
    "additive": lambda: layers.AdditiveAttention(3),
}


def test_everything_else_passes():
    refuse_keras_2(
        nothing=None,
        rows=[1.0],
        array=np.ones(3),
        tensor=ops.ones(3),
        symbol=keras.Input((3,)),
    )


def assert_refused(layer, name, inputs):
    """By `call` and its symbolic twin.

    Not by the layer as a whole: Keras takes the tensors of the real Keras 2
    for tensors of TensorFlow, but stops an imitation.
    """
    inputs = {**inputs, name: Keras2Tensor()}
    for run in (layer.call, layer.compute_output_spec):
        with pytest.raises(TypeError, match=f"`{name}` is .*`tf_keras`"):
            run(**inputs)


@pytest.mark.parametrize("make", THREE.values(), ids=THREE)
@pytest.mark.parametrize("name", ["query", "key", "value", "key_mask"])
def test_layers_of_three_inputs_refuse_it(make, name):
    inputs = dict.fromkeys(("query", "key", "value"), ops.ones(SHAPE))
    assert_refused(make(), name, inputs)


@pytest.mark.parametrize("make", ONE.values(), ids=ONE)
def test_layers_of_one_input_refuse_it(make):
    with pytest.raises(TypeError, match="`inputs` is .*`tf_keras`"):
        make().call(Keras2Tensor())


@pytest.mark.parametrize("name", ["query", "value", "key", "attention_mask"])
def test_multi_head_attention_refuses_it(name):
    inputs = dict.fromkeys(("query", "value", "key"), ops.ones(SHAPE))
    assert_refused(layers.MultiHeadAttention(2, 4), name, inputs)


@pytest.mark.parametrize("name", ["inputs", "padding_mask"])
def test_an_encoder_block_refuses_it(name):
    block = layers.EncoderBlock(2, 16)
    assert_refused(block, name, {"inputs": ops.ones(SHAPE)})

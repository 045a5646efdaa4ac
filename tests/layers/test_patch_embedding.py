import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention.layers import PatchEmbedding

B, HEIGHT, WIDTH, C, D = 2, 6, 8, 3, 5
ROWS, COLUMNS = 3, 2


@pytest.fixture
def images():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, HEIGHT, WIDTH, C)).astype("float32")


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_each_patch_is_projected_in_row_major_order(images, policy):
    layer = PatchEmbedding((ROWS, COLUMNS), D, dtype=policy)
    dtype = layer.compute_dtype
    layer.build(images.shape)
    layer_contract.randomize(layer, scale=0.1)
    kernel, bias = layer.get_weights()
    images = to_numpy(ops.cast(images, dtype))
    patches = [
        images[:, i : i + ROWS, j : j + COLUMNS].reshape(B, -1)
        for i in range(0, HEIGHT, ROWS)
        for j in range(0, WIDTH, COLUMNS)
    ]
    expected = np.stack(patches, axis=1) @ kernel + bias
    layer_contract.assert_close(layer(images), expected, dtype)


def test_kernel_of_a_convolution_serves(images):
    convolution = keras.layers.Conv2D(D, (ROWS, COLUMNS), (ROWS, COLUMNS))
    expected = to_numpy(convolution(images)).reshape(B, -1, D)
    layer = PatchEmbedding((ROWS, COLUMNS), D)
    layer.build(images.shape)
    kernel, bias = convolution.get_weights()
    layer.set_weights([kernel.reshape(-1, D), bias])
    layer_contract.assert_close(layer(images), expected, "float32")


@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_exist_once_built(use_bias):
    layer = PatchEmbedding(2, D, use_bias=use_bias, dtype="mixed_float16")
    layer.build((None, HEIGHT, WIDTH, C))
    assert layer.count_params() == 2 * 2 * C * D + (D if use_bias else 0)
    assert {w.dtype for w in layer.weights} == {"float32"}


def test_symbolic_equals_eager(images):
    layer = PatchEmbedding(2, D, dtype="mixed_bfloat16")
    layer_contract.assert_symbolic_equals_eager(layer, images)


def test_config(images):
    arguments = {
        "patch_size": (ROWS, COLUMNS),
        "embed_dim": D,
        "use_bias": False,
        "name": "patches",
    }
    layer = PatchEmbedding(
        **arguments,
        kernel_initializer=keras.initializers.HeNormal(seed=2),
        bias_initializer="ones",
        dtype="mixed_bfloat16",
    )
    layer_contract.assert_round_trip(layer, **arguments)
    back = layer_contract.rebuilt(layer)
    assert back.kernel_initializer.seed == 2
    assert isinstance(back.bias_initializer, keras.initializers.Ones)
    assert back.dtype_policy == layer.dtype_policy
    layer_contract.assert_same_after_rebuild(layer, images)


@pytest.mark.parametrize("patch_size", [4, (3, 3), (5, 2)])
def test_patches_that_do_not_fit(images, patch_size):
    for x in (images, keras.KerasTensor(images.shape)):
        with pytest.raises(
            ValueError, match=r"patch_size=.*inputs.shape=\(2, 6, 8, 3\)"
        ):
            PatchEmbedding(patch_size, D)(x)


@pytest.mark.parametrize("shape", [(2, 6, 8), (2, None, 8, 3)])
def test_inputs_that_are_no_images(shape):
    with pytest.raises(ValueError, match="inputs.shape="):
        PatchEmbedding(2, D)(keras.KerasTensor(shape))


@pytest.mark.parametrize("value", [0, (2, 2, 2), (2, -1), "large", None])
def test_bad_patch_size(value):
    with pytest.raises(ValueError, match="patch_size.*Received: patch_size="):
        PatchEmbedding(value, D)


@pytest.mark.parametrize("value", [0, 2.5, None])
def test_bad_embed_dim(value):
    with pytest.raises(ValueError, match=f"embed_dim={value}"):
        PatchEmbedding(2, value)

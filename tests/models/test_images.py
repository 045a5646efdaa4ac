"""Models that read images."""

import keras
import numpy as np
import pytest
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

from keras_attention import models

SMALL = {"hidden_dim": 12, "num_heads": 3, "num_layers": 1}


def test_patches_are_read_in_row_major_order():
    """The third patch of two by two is the corner at the bottom left."""
    model = models.image_classifier((4, 6, 2), (2, 3), 5, **SMALL)
    assert model.get_layer("patch_embedding").output.shape == (None, 4, 12)
    assert model.get_layer("positions").sequence_length == 4
    images = normal((3, 4, 6, 2))
    layer = model.get_layer("patch_embedding")
    kernel, bias = map(to_numpy, layer.weights)
    corner = images[:, 2:4, 0:3].reshape(3, -1)
    np.testing.assert_allclose(
        to_numpy(layer(images))[:, 2], corner @ kernel + bias, atol=1e-5
    )


def test_without_positions_the_order_of_patches_does_not_matter():
    images = normal((3, 4, 6, 2))
    swapped = np.concatenate([images[:, :, 3:], images[:, :, :3]], axis=2)
    for positions, matters in ((None, False), ("learned", True)):
        model = models.image_classifier(
            (4, 6, 2), (2, 3), 5, positions=positions, **SMALL
        )
        randomize(model)
        difference = np.abs(to_numpy(model(images)) - to_numpy(model(swapped)))
        assert (difference.max() > 1e-3) == matters


def test_a_black_patch_counts():
    """An image has no padding, whatever its pixels are."""
    model = models.image_classifier(
        (4, 6, 2), (2, 3), 5, classifier_activation=None, **SMALL
    )
    randomize(model)
    images = normal((3, 4, 6, 2))
    expected = to_numpy(model(images))
    assert np.isfinite(model(np.zeros_like(images))).all()
    for row, column in ((0, 0), (0, 3), (2, 0), (2, 3)):
        black = images.copy()
        black[:, row : row + 2, column : column + 3] = 0.0
        assert np.abs(to_numpy(model(black)) - expected).max() > 1e-3


def test_more_positions_than_patches():
    model = models.image_classifier((4, 6, 1), 2, 5, max_length=9, **SMALL)
    assert model.get_layer("positions").sequence_length == 9
    assert model(normal((3, 4, 6, 1))).shape == (3, 5)


def test_a_small_patch_size_stands_for_a_square():
    model = models.image_classifier([4, 6, 1], 2, 5, **SMALL)
    assert model.input_shape == (None, 4, 6, 1)
    assert model.get_layer("patch_embedding").patch_size == (2, 2)


def test_it_learns_which_half_is_bright():
    rng = np.random.default_rng(3)
    images = rng.uniform(0, 0.5, (256, 4, 4, 1))
    labels = np.arange(256) % 2
    images[labels == 0, :2] += 0.5
    images[labels == 1, 2:] += 0.5
    model = models.image_classifier(
        (4, 4, 1), 2, 2, hidden_dim=16, num_heads=2, num_layers=1, dropout=0.0
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(images, labels, batch_size=32, epochs=5, verbose=0)
    assert model.evaluate(images, labels, verbose=0)[1] > 0.95


@pytest.mark.parametrize(
    "shape", [(8, 8), (8, 8, None), (8, 8, 0), 8, "abc", None, (8, 8, 1.5)]
)
def test_bad_image_shape(shape):
    with pytest.raises(ValueError, match=r"`image_shape`.*image_shape=") as e:
        models.image_classifier(shape, 2, 3)
    assert str(e.value).endswith(f"image_shape={shape}")


@pytest.mark.parametrize("size", [3, (2, 3), 9])
def test_patches_that_do_not_tile_the_image(size):
    with pytest.raises(
        ValueError, match=r"`patch_size`.*ZeroPadding2D.*patch_size=\("
    ):
        models.image_classifier((8, 8, 3), size, 3)


@pytest.mark.parametrize("size", [0, (2, 2, 2), None, "2"])
def test_bad_patch_size(size):
    with pytest.raises(ValueError, match="`patch_size`.*patch_size="):
        models.image_classifier((8, 8, 3), size, 3)

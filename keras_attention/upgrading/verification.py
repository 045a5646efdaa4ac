"""Holds two models against each other on random inputs."""

from __future__ import annotations

import keras
import numpy as np

from keras_attention.export.samples import Samples, find_bounds
from keras_attention.upgrading.members import all_inside

# By compute dtype: what the order of additions may change.
_TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2}


def random_inputs(model, batch_size=2, length=7):
    """Makes inputs for a model from the specs of its own.

    Integers are ids the model knows, other than the 0 that often stands for
    padding, and masks hide nothing.

    Args:
        model: A Functional model, or a Sequential one that is built.
        batch_size: Number of rows.
        length: Length of the axes that are open.

    Returns:
        Arrays in the structure that the model is called with.

    Raises:
        ValueError: The model does not say what its inputs are.

    Example:

    >>> inputs = keras.Input((None, 4))
    >>> model = keras.Model(inputs, keras.layers.ReLU()(inputs))
    >>> tuple(random_inputs(model).shape)
    (2, 7, 4)
    """
    import tensorflow as tf

    if not getattr(model, "inputs", None):
        raise ValueError(
            f"The model {model.name!r} of class {type(model).__name__} does "
            "not say what its inputs are, so that none can be made up to "
            "compare it by. Upgrade it in Python, with "
            "`keras_attention.upgrade(model)`."
        )
    specs = {
        tensor.name: tf.TensorSpec(tensor.shape, tensor.dtype)
        for tensor in model.inputs
    }
    structure = (
        model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    )

    def arranged(arrays):
        return keras.tree.map_structure(
            lambda tensor: keras.ops.convert_to_tensor(arrays[tensor.name]),
            structure,
        )

    words = _known_words(model)
    bounds = find_bounds(specs, lambda arrays: model(arranged(arrays)), words)
    samples = Samples(specs, bounds=bounds, words=words)
    return arranged(samples.make(batch_size, length))


def _known_words(model):
    """Returns the words of a model that takes no others, or None."""
    words = set()
    for layer in all_inside(model):
        lookup = isinstance(layer, keras.layers.StringLookup)
        if lookup and not layer.num_oov_indices:
            words.update(layer.get_vocabulary(include_special_tokens=False))
    return sorted(words) or None


def difference(model, other, inputs):
    """Returns the largest difference between the outputs of two models.

    Args:
        model: A `keras.Model`.
        other: Another, with outputs of the same structure.
        inputs: What both are called with.

    Returns:
        A float: the largest absolute difference, in proportion to the
        largest output where that is above 1.
    """
    outputs = (
        [
            np.asarray(keras.ops.convert_to_numpy(output), "float64")
            for output in keras.tree.flatten(m(inputs, training=False))
        ]
        for m in (model, other)
    )
    return max(_gap(*pair) for pair in zip(*outputs, strict=True))


def _gap(one, two):
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    scale = max(1.0, np.max(np.abs(one), initial=0.0, where=~np.isnan(one)))
    gap = np.max(np.where(same, 0.0, np.abs(one - two)), initial=0.0) / scale
    return float("inf") if np.isnan(gap) else float(gap)


def tolerance(model):
    """Returns how far two upgrades of one model may differ by rounding."""
    dtypes = {layer.compute_dtype for layer in _all_layers(model)}
    return max(_TOLERANCES.get(dtype, 1e-5) for dtype in dtypes)


def _all_layers(model):
    """Yields a model, its layers, and those of the models among them."""
    yield model
    for layer in getattr(model, "layers", ()):
        yield from _all_layers(layer)

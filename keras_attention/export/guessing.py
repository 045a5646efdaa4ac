"""What a model without `keras.Input` takes, told by what its layers are given.

Keras keeps the shapes that such a model was built with, but no dtypes. A wrong
guess would be served: features as integers lose their fractions in silence.
"""

import contextlib

import keras
import numpy as np

# Two numbers that no table of positions holds, and that two ids come of.
_MARKS = (0.25, 1.25)
_READERS = (
    keras.layers.Embedding,
    keras.layers.Hashing,
    keras.layers.IntegerLookup,
    keras.layers.CategoryEncoding,
)


def guess_dtype(model, shape):
    """Returns the dtype of the only input of a model, if it can be told.

    Args:
        model: A built `keras.Model`.
        shape: Shape of its input, `(B, ...)`.

    Returns:
        "string", "int32" or "float32"; None where it may be one or another.
    """
    layers = list(model._flatten_layers())
    if any(isinstance(x, keras.layers.TextVectorization) for x in layers):
        return "string"
    if any(isinstance(x, keras.layers.StringLookup) for x in layers):
        return None
    readers = [layer for layer in layers if isinstance(layer, _READERS)]
    if not readers:
        return "float32"
    try:
        found = [_given(model, readers, shape, mark) for mark in _MARKS]
    except Exception:
        # It takes no such numbers, of which there is nothing to learn then.
        return None
    direct = [
        any(np.all(x == mark) for x in given)
        for mark, given in zip(_MARKS, found, strict=True)
    ]
    if all(direct):
        return "int32"
    same = len(found[0]) == len(found[1]) and all(
        np.array_equal(*pair) for pair in zip(*found, strict=True)
    )
    # Ids that do not come of the input, such as positions.
    return "float32" if same else None


def _given(model, readers, shape, mark):
    """Returns what layers are given where the input is one number."""
    given = []

    def watched(call):
        def watching(inputs, *args, **kwargs):
            given.append(keras.ops.convert_to_numpy(inputs))
            return call(inputs, *args, **kwargs)

        return watching

    sizes = [size or 1 for size in shape]
    with contextlib.ExitStack() as stack:
        for reader in readers:
            reader.call = watched(reader.call)
            stack.callback(delattr, reader, "call")
        model(np.full(sizes, mark, "float32"), training=False)
    return given

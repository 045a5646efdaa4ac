"""The layers that a layer holds."""

from __future__ import annotations

import keras


def members_of(layer):
    """Returns the layers that are attributes of a layer, each once."""
    found = {}

    def visit(value):
        if isinstance(value, keras.layers.Layer):
            found.setdefault(id(value), value)
        elif isinstance(value, dict):
            for item in value.values():
                visit(item)
        elif isinstance(value, (list, tuple, set)):
            for item in value:
                visit(item)

    for name, value in vars(layer).items():
        if name != "_layers":
            visit(value)
    found.pop(id(layer), None)
    return list(found.values())

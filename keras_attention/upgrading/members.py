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


def all_inside(layer):
    """Yields a layer and all that it holds at any depth, each once."""
    return (member for _, member in with_paths(layer))


def with_paths(layer):
    """Yields paths and layers: a layer and all inside it, each once."""
    seen, left = set(), [(layer.name, layer)]
    while left:
        path, layer = left.pop()
        if id(layer) not in seen:
            seen.add(id(layer))
            yield path, layer
            left += [(f"{path}/{m.name}", m) for m in members_of(layer)]


def replace_member(layer, old, new):
    """Puts a layer in the place of another, in all attributes of a layer.

    Args:
        layer: The layer that holds the others; it may be built.
        old: The member that goes.
        new: The layer that comes, with the place of `old` among the weights.
    """

    def swapped(value):
        if value is old:
            return new
        if isinstance(value, dict):
            for key, item in value.items():
                value[key] = swapped(item)
        elif isinstance(value, list):
            for place, item in enumerate(value):
                value[place] = swapped(item)
        elif isinstance(value, tuple):
            items = [swapped(item) for item in value]
            if any(a is not b for a, b in zip(items, value, strict=True)):
                make = getattr(type(value), "_make", type(value))
                return make(items)
        return value

    # Known before any attribute is set: a built layer takes no new ones.
    layer._tracker.replace_tracked_value("layers", old, new)
    for name, value in list(vars(layer).items()):
        if name != "_layers" and not name.startswith("_self_"):
            found = swapped(value)
            if found is not value:
                setattr(layer, name, found)

"""What is particular about models of KerasHub."""

from __future__ import annotations

import inspect
import json
import sys

import keras

from keras_attention.upgrading.report import Note


def is_hub(thing) -> bool:
    """Whether a layer, model or function belongs to KerasHub."""
    owner = thing if inspect.isroutine(thing) else type(thing)
    return owner.__module__.partition(".")[0] == "keras_hub"


def is_task(model) -> bool:
    """Whether a model of KerasHub has methods such as `generate`."""
    return isinstance(model, sys.modules["keras_hub"].models.Task)


def loads_alone(model, by_class) -> bool:
    """Whether a file of the upgraded model needs no KerasHub.

    Args:
        model: A Functional model.
        by_class: Dictionary from classes to the `Replacement` of each.
    """
    for layer in model.layers:
        if type(layer) in by_class:
            try:
                by_class[type(layer)].make(layer.get_config())
            except ValueError:
                return False
        elif isinstance(layer, keras.Model) and hasattr(layer, "operations"):
            if not loads_alone(layer, by_class):
                return False
        elif needs_hub(layer):
            return False
    return True


def needs_hub(layer) -> bool:
    """Whether the configuration of a layer names KerasHub."""
    try:
        saved = keras.saving.serialize_keras_object(layer)
        return "keras_hub" in json.dumps(saved)
    except (TypeError, NotImplementedError):
        return is_hub(layer)


def plain_model(path, model, loads_alone, reason=None) -> Note:
    """Says that a model is no longer of its class.

    Args:
        path: Where it is.
        model: The original.
        loads_alone: Whether a file of the copy needs no KerasHub.
        reason: Why it could not stay of its class, if that was tried.
    """
    why = "is a plain `keras.Model` now, without the methods of its class"
    why += ", which loads without KerasHub" if loads_alone else ""
    if reason:
        why += f", which cannot be made again. Reason: {reason}"
    return Note(path, f"keras_hub.{type(model).__name__}", why)

"""Attention for Keras 3 on TensorFlow: exact, safe to save, served anywhere.

Importing the package registers every layer, which is all that loading a
saved model needs.
"""

import importlib

from keras_attention import layers, models, ops

__version__ = "0.1.0"
__all__ = [
    "export",
    "layers",
    "models",
    "ops",
    "reference",
    "upgrade",
]

_LAZY = ("export", "reference")


def __getattr__(name):
    """Imports the parts that loading a model does not need on first use."""
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "upgrade":
        return importlib.import_module(f"{__name__}.upgrading").upgrade
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """Names the parts that are not imported yet as well."""
    return sorted({*globals(), *__all__})

"""Layers that come back from a file as quantized as they were saved."""

from __future__ import annotations

import keras
from keras.saving import deserialize_keras_object, serialize_keras_object


class QuantizedParts:
    """Keeps how the parts of a layer are quantized beside its shapes.

    The configuration of a layer says how it is quantized itself. Of parts
    that it makes in `build` nothing would be known, and their integers would
    find no place in those made anew.
    """

    def get_build_config(self):
        """Returns the shapes to build for, and how parts are quantized."""
        config = super().get_build_config()
        quantized = {
            path: _serialize(part)
            for path, part in _parts(self)
            if part.quantization_mode is not None
        }
        return {**config, "quantized": quantized} if quantized else config

    def build_from_config(self, config):
        """Builds the layer, and quantizes its parts.

        Args:
            config: What `get_build_config` returned.
        """
        super().build_from_config(config)
        quantized = config.get("quantized", {}) if config else {}
        for path, part in list(_parts(self)):
            # A dtype policy may have quantized it already.
            if path in quantized and part.quantization_mode is None:
                _quantize(part, quantized[path])


def _parts(layer, prefix=""):
    """Yields each sub-layer by its attributes, as a weights file names it."""
    for name, part in vars(layer).items():
        if isinstance(part, keras.layers.Layer):
            yield prefix + name, part
            yield from _parts(part, f"{prefix}{name}/")


def _serialize(part):
    # Older releases of Keras know the mode alone.
    config = getattr(part, "quantization_config", None)
    return {
        "mode": part.quantization_mode,
        "config": serialize_keras_object(config),
    }


def _quantize(part, quantized):
    config = deserialize_keras_object(quantized["config"])
    options = {} if config is None else {"config": config}
    part.quantize(quantized["mode"], **options)

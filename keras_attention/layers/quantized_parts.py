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
            path: serialize(part)
            for path, part in _parts(self)
            if part.quantization_mode is not None
        }
        if config is None or not quantized:
            return config
        return {**config, "quantized": quantized}

    def build_from_config(self, config):
        """Builds the layer, and quantizes its parts.

        Args:
            config: What `get_build_config` returned.
        """
        super().build_from_config(config)
        quantized = config.get("quantized", {}) if config else {}
        for path, part in _parts(self):
            # A dtype policy may have quantized it already.
            if path in quantized and part.quantization_mode is None:
                quantize(part, quantized[path])


def serialize(part):
    """Returns how a layer is quantized, ready for JSON."""
    # Older releases of Keras know the mode alone.
    config = getattr(part, "quantization_config", None)
    return {
        "mode": part.quantization_mode,
        "config": serialize_keras_object(config),
    }


def quantize(part, quantized):
    """Quantizes a layer as `serialize` found another one.

    Args:
        part: A built layer in floats.
        quantized: What `serialize` returned.
    """
    config = deserialize_keras_object(quantized["config"])
    options = {} if config is None else {"config": config}
    part.quantize(quantized["mode"], **options)


def _parts(layer):
    """Returns the layers inside by their attributes, as in a weights file."""
    parts = []
    _collect(layer, "", parts, {id(layer)})
    return parts


def _collect(layer, prefix, parts, seen):
    for name, part in vars(layer).items():
        if isinstance(part, keras.layers.Layer) and id(part) not in seen:
            seen.add(id(part))
            parts.append((prefix + name, part))
            _collect(part, f"{prefix}{name}/", parts, seen)

"""Layers that a user hands to another one, attention layers above all.

Any attention layer will do that is called with `(query, value)`, like
`MultiHeadAttention`. It is given those of the options that its `call` takes;
one that it does not take, and whose loss would change the result, is refused.
"""

from __future__ import annotations

import inspect

import keras

# Without these, padded queries compute something that nobody reads, and a
# layer without dropout is the same in training.
_HARMLESS = ("query_mask", "training")


def check(name, layer):
    """Returns `layer` if it is called as it should be, or refuses it."""
    if not isinstance(layer, keras.layers.Layer) or not _takes_two(layer):
        raise ValueError(
            f"`{name}` must be a Keras layer that is called with "
            "`(query, value)`, such as `MultiHeadAttention(num_heads=8, "
            f"key_dim=64)`. Received: {name}={layer!r}"
        )
    return layer


def build(layer, query_shape, value_shape) -> None:
    """Builds `layer`, unless it is built already.

    Args:
        layer: A layer whose `build` takes `(query_shape, value_shape)` or a
            single shape, apart from optional arguments.
        query_shape: Shape `(B, T, D)`.
        value_shape: Shape `(B, S, D)`.
    """
    if layer.built:
        return
    parameters = inspect.signature(layer.build).parameters.values()
    required = [p for p in parameters if p.default is p.empty]
    layer.build(*(query_shape, value_shape)[: len(required)])


def call(layer, query, value, **options):
    """Calls `layer` with those of the options that it takes.

    Args:
        layer: An attention layer.
        query: Tensor `(B, T, D)`.
        value: Tensor `(B, S, D)`.
        **options: Arguments of `MultiHeadAttention.call`.

    Returns:
        What the layer returns.

    Raises:
        ValueError: The layer does not take an option that is in use.
    """
    return layer(query, value, **_accepted(layer, options))


def output_spec(layer, query, value, **options):
    """Returns what `call` returns, in KerasTensors, and makes no node."""
    return layer.compute_output_spec(query, value, **_accepted(layer, options))


def serialize(value):
    """Returns the configuration of an injected layer, or `value` as it is.

    Without the shapes it was built for: whoever holds it builds it again, so
    that its weights are named after that.
    """
    if not isinstance(value, keras.layers.Layer):
        return value
    config = keras.saving.serialize_keras_object(value)
    config.pop("build_config", None)
    return config


def deserialize(config, *names) -> dict:
    """Returns `config` with the layers under `names` made anew."""
    layers = {
        name: keras.saving.deserialize_keras_object(config[name])
        for name in names
        if isinstance(config.get(name), dict)
    }
    return {**config, **layers}


def _takes_two(layer) -> bool:
    try:
        inspect.signature(layer.call).bind("query", "value")
    except TypeError:
        return False
    return True


def _accepted(layer, options) -> dict:
    parameters = inspect.signature(layer.call).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return options
    accepted = {k: v for k, v in options.items() if k in parameters}
    lost = [
        name
        for name, value in options.items()
        if name not in accepted
        and name not in _HARMLESS
        and value is not None
        and value is not False
    ]
    if lost:
        raise ValueError(
            f"The attention layer '{layer.name}' ({type(layer).__name__}) "
            f"does not take {', '.join(f'`{name}`' for name in lost)}, which "
            "would be lost without a word. Leave it out, or inject a layer "
            f"whose `call` has that argument. Its arguments are: "
            f"{', '.join(parameters)}"
        )
    return accepted

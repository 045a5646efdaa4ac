"""Constructor arguments of the layers, checked in one way."""

from __future__ import annotations

import math

import keras
import numpy as np


def positive_integer(name, value) -> int:
    """Returns `value` as an integer of at least 1, or refuses it.

    Example:

    >>> positive_integer("num_heads", 8)
    8
    """
    is_integer = isinstance(value, (int, np.integer))
    if not is_integer or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"Received an invalid value for argument `{name}`, expected a "
            f"positive integer. Received: {name}={value!r}"
        )
    return int(value)


def number(name, value) -> int | float:
    """Returns `value` as a finite Python number, or refuses it.

    Example:

    >>> number("pad_id", -1)
    -1
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(
            f"`{name}` must be a finite number. Received: {name}={value!r}"
        )
    return value.item() if isinstance(value, np.generic) else value


def number_or_nan(name, value) -> int | float:
    """Returns `value` as a Python number that is no infinity, or refuses it.

    NaN may be written "nan", since JSON has no number for it.

    Example:

    >>> number_or_nan("pad_value", "nan"), number_or_nan("pad_value", 0)
    (nan, 0)
    """
    is_float = isinstance(value, (float, np.floating))
    if value == "nan" or (is_float and math.isnan(value)):
        return math.nan
    return number(name, value)


def serialize_number(value):
    """Returns a number, or None, ready for JSON.

    Example:

    >>> serialize_number(float("nan")), serialize_number(0)
    ('nan', 0)
    """
    return "nan" if value is not None and value != value else value


def positive_number(name, value) -> int | float:
    """Returns `value` as a Python number above 0, or refuses it.

    Example:

    >>> positive_number("epsilon", 1e-5)
    1e-05
    """
    if not number(name, value) > 0:
        raise ValueError(
            f"`{name}` must be above 0. Received: {name}={value!r}"
        )
    return number(name, value)


def rate(name, value) -> float:
    """Returns `value` as a number from 0 to 1, or refuses it.

    Example:

    >>> rate("dropout", 0.1)
    0.1
    """
    is_number = isinstance(value, (int, float, np.number))
    if not is_number or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(
            f"`{name}` must be a number from 0 to 1, the fraction of weights "
            f"to drop. Received: {name}={value!r}"
        )
    return float(value)


def one_of(name, value, choices):
    """Returns `value` if it is among `choices`, or refuses it.

    Example:

    >>> one_of("mode", "max", ("max", "mean"))
    'max'
    """
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(
            f"`{name}` must be one of {listed}. Received: {name}={value!r}"
        )
    return value


def plain_name(value):
    """Returns the name of a function, and anything else as it is.

    Out of a `.h5` file, Keras gives a function of its own for an argument
    that is spelled like one, such as "dot".

    Example:

    >>> plain_name("dot"), plain_name(keras.ops.dot)
    ('dot', 'dot')
    """
    return getattr(value, "__name__", value)


def activation(name, value):
    """Returns the activation function that `value` stands for.

    Example:

    >>> activation("activation", "relu").__name__
    'relu'
    """
    try:
        return keras.activations.get(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be the name of an activation of Keras, such as "
            '"relu" or "gelu", or a function, which is saved by name if it '
            "is registered with "
            "`keras.saving.register_keras_serializable`. "
            f"Received: {name}={value!r}"
        ) from error


def feature_shape(name, value) -> tuple[int, ...] | None:
    """Returns `value`, an integer, list or tuple, as a tuple.

    Example:

    >>> feature_shape("output_shape", 8)
    (8,)
    """
    if value is None:
        return None
    items = (value,) if isinstance(value, (int, np.integer)) else value
    try:
        return tuple(positive_integer(name, item) for item in items)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Invalid `{name}`: expected a positive integer, or a tuple or "
            f"list of them. Received: {name}={value}"
        ) from error


def axes(name, value) -> tuple[int, ...] | None:
    """Returns `value`, an integer, list or tuple of axes, as a tuple.

    Example:

    >>> axes("attention_axes", -2)
    (-2,)
    """
    if value is None:
        return None
    items = (value,) if isinstance(value, (int, np.integer)) else value
    is_sequence = isinstance(items, (list, tuple)) and len(items) > 0
    if not is_sequence or not all(
        isinstance(item, (int, np.integer)) for item in items
    ):
        raise ValueError(
            f"`{name}` must be an int, list, or tuple. Received: {name}={value}"
        )
    return tuple(int(item) for item in items)


def head_groups(num_heads, num_key_value_heads, name="num_heads") -> int:
    """Returns the number of key and value heads, which divides `num_heads`.

    Args:
        num_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads, or None for as
            many.
        name: Name of the first argument, for the error.

    Example:

    >>> head_groups(8, None), head_groups(8, 2)
    (8, 2)
    """
    if num_key_value_heads is None:
        return num_heads
    heads = positive_integer("num_key_value_heads", num_key_value_heads)
    if num_heads % heads:
        raise ValueError(
            f"`{name}` must be a multiple of `num_key_value_heads`: each key "
            "and value head serves the same number of query heads. "
            f"Received: {name}={num_heads}, num_key_value_heads={heads}"
        )
    return heads


def separate(initializer):
    """Returns an initializer that draws values of its own.

    An unseeded initializer of Keras draws the same values at each call, so
    that two kernels of one shape would start equal.
    """
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def serialize_kernel(layer) -> dict:
    """Returns the configuration of a layer's kernels, ready for JSON."""
    return {
        "kernel_initializer": keras.initializers.serialize(
            layer.kernel_initializer
        ),
        "kernel_regularizer": keras.regularizers.serialize(
            layer.kernel_regularizer
        ),
        "kernel_constraint": keras.constraints.serialize(
            layer.kernel_constraint
        ),
    }


def serialize_dense(layer, activity_regularizer=None) -> dict:
    """Returns the configuration of a layer's kernels and biases.

    Args:
        layer: A layer with the public attributes that are named below.
        activity_regularizer: Given apart, since the attribute of that name
            acts on the output of the whole layer.

    Returns:
        A dict that `json.dumps` takes, in Keras's order of arguments.
    """
    initializers, regularizers = keras.initializers, keras.regularizers
    constraints = keras.constraints
    return {
        "kernel_initializer": initializers.serialize(layer.kernel_initializer),
        "bias_initializer": initializers.serialize(layer.bias_initializer),
        "kernel_regularizer": regularizers.serialize(layer.kernel_regularizer),
        "bias_regularizer": regularizers.serialize(layer.bias_regularizer),
        "activity_regularizer": regularizers.serialize(activity_regularizer),
        "kernel_constraint": constraints.serialize(layer.kernel_constraint),
        "bias_constraint": constraints.serialize(layer.bias_constraint),
    }

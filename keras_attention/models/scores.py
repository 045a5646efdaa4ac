"""Attention scores out of a model that was built and trained without them."""

import functools
import inspect

import keras
from keras import ops

from keras_attention.models.naming import stable_names, unique_names


def attention_scores_model(model):
    """Makes a model that returns attention scores beside the outputs.

    The operations of the model run again, in order, on new inputs; every
    layer whose `call` takes `return_attention_scores` is called with it set.
    The layers are the same objects with the same weights, so nothing is
    trained, copied or loaded. Models nested in the model are followed.

    Args:
        model: A built Functional or Sequential `keras.Model`.

    Returns:
        A `keras.Model` with the inputs of `model` and the outputs
        `(outputs, scores)`: what `model` returns, and a dictionary from layer
        names, in the order of the calls, to scores of shape `(B, N, T, S)`.
        Names that Keras made up lose their counter, repeated ones are
        numbered.

    Raises:
        ValueError: the model is subclassed, or no layer gives scores.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> attend = keras.layers.MultiHeadAttention(2, 4, name="reader")
    >>> model = keras.Model(inputs, attend(inputs, inputs))
    >>> outputs, scores = attention_scores_model(model).output
    >>> {name: value.shape for name, value in scores.items()}
    {'reader': (None, 2, 5, 5)}
    """
    if not is_functional(model):
        raise ValueError(
            "Scores can be had from a built Functional or Sequential model "
            "only: the calls inside a subclassed model cannot be followed. "
            f"Received: model={model}"
        )
    rebuilt, scores = _rebuild(model, {})
    if not scores:
        raise ValueError(
            f"No layer of the model {model.name!r} takes "
            "`return_attention_scores`. Received: layers="
            f"{[layer.name for layer in model.layers]}"
        )
    return keras.Model(rebuilt.input, (rebuilt.output, scores))


def has_attention_scores(model):
    """Whether `attention_scores_model` finds scores in a model.

    Args:
        model: A `keras.Model`.

    Returns:
        A bool; False for a subclassed model, which cannot be followed.
    """
    return is_functional(model) and any(
        _gives_scores(layer)
        or (isinstance(layer, keras.Model) and has_attention_scores(layer))
        for layer in model.layers
    )


def is_functional(model):
    """Whether a model is a built Functional or Sequential one."""
    return isinstance(model, keras.Model) and bool(
        getattr(model, "inputs", None)
    )


def _rebuild(model, wrapped):
    """Returns a model on new inputs, and the scores found on the way.

    Args:
        model: A Functional or Sequential model.
        wrapped: Dictionary from the ids of layers and nested models to what
            stands for them in the new model.
    """
    found = []
    layers = model.layers
    names = dict(zip(map(id, layers), stable_names(layers), strict=True))

    def call(operation, *args, **kwargs):
        key = id(operation)
        if _gives_scores(operation):
            if key not in wrapped:
                wrapped[key] = _WithScores(operation)
            output, scores = wrapped[key](*args, **kwargs)
            found.extend((names[key], value) for value in scores)
            return output
        if has_attention_scores(operation):
            if key not in wrapped:
                wrapped[key] = attention_scores_model(operation)
            outputs, scores = wrapped[key](*args, **kwargs)
            found.extend(scores.items())
            return outputs
        return operation(*args, **kwargs)

    # Wrapping gives Sequential models the interface of Functional ones, and
    # leaves the optimizer and the losses of a compiled model out of it.
    sequential = isinstance(model, keras.Sequential)
    rebuilt = keras.models.clone_model(
        keras.Model(model.inputs[0], model.outputs[0])
        if sequential
        else keras.Model(model.input, model.output),
        clone_function=lambda layer: layer,
        call_function=call,
    )
    labels = unique_names(name for name, _ in found)
    scores = zip(labels, (value for _, value in found), strict=True)
    return rebuilt, dict(scores)


class _WithScores(keras.Layer):
    """Calls a layer with `return_attention_scores=True`.

    A layer of its own, since Keras takes every call of one layer to return as
    many tensors as the first.
    """

    def __init__(self, layer):
        # With the layer's own signature: in `*args, **kwargs`, Keras refuses
        # tensors beside flags.
        @functools.wraps(layer.call)
        def call(*args, **kwargs):
            kwargs["return_attention_scores"] = True
            output, *scores = layer(*args, **kwargs)
            scores = keras.tree.flatten(scores)
            return output, [_with_heads(value) for value in scores]

        self.call = call
        super().__init__(
            name=layer.name, dtype=layer.dtype_policy, autocast=False
        )
        self.layer = layer
        self.supports_masking = True
        self.built = True

    def compute_mask(self, inputs, previous_mask=None):
        # The wrapped layer has set the mask of its output already.
        return None


def _gives_scores(operation):
    return (
        isinstance(operation, keras.Layer)
        and "return_attention_scores"
        in inspect.signature(operation.call).parameters
    )


def _with_heads(scores):
    """Gives `(B, T, S)` of a layer without heads an axis of one head."""
    return ops.expand_dims(scores, 1) if len(scores.shape) == 3 else scores

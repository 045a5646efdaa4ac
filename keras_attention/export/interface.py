"""What a model takes and gives, as flat, named, serveable tensors.

A signature of a SavedModel is flat: named tensors in, named tensors out. This
module reads the names, dtypes and shapes from a Keras model and turns its
nested inputs and outputs into that form and back.
"""

import dataclasses
import inspect
import keyword
import re
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_attention.export.guessing import guess_dtype
from keras_attention.models.naming import stable_names, unique_names

_RESERVED = (*keyword.kwlist, "self")
_HALF = ("float16", "bfloat16")
_ANONYMOUS = r"(keras_tensor|input_layer)(_\d+)?"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")


class SignatureError(ValueError):
    """A signature that cannot be made, with a message of its own."""


@dataclasses.dataclass(frozen=True)
class Interface:
    """The flat form of a model's inputs and outputs.

    Attributes:
        specs: One `tf.TensorSpec` per input, named, in the model's order.
            Half-precision inputs are float32 here: no client can send less.
        pack: Turns a flat list of tensors into the `(args, kwargs)` that the
            model is called with.
        name_outputs: Turns what the model returns into a dictionary of
            tensors, half precision cast to float32.
        declared: Whether the shapes were stated (by `keras.Input` or by
            `input_signature`) and not guessed from the data that built it.
    """

    specs: tuple[tf.TensorSpec, ...]
    pack: Callable[[list], tuple[tuple, dict]]
    name_outputs: Callable[[Any], dict]
    declared: bool


def read_interface(model, input_signature=None):
    """Reads the inputs and outputs of a built model.

    Args:
        model: A built `keras.Model`: Functional, Sequential or subclassed.
        input_signature: Structure of `keras.KerasTensor`, `keras.InputSpec`
            or `tf.TensorSpec` like the model's inputs. For a subclassed model
            whose `call` takes several arguments, a dictionary of them.

    Returns:
        An `Interface`.

    Raises:
        TypeError: `model` is no Keras model, or an input is not dense.
        ValueError: the model is not built, or a name cannot be served.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(
            "`model` must be a `keras.Model`. "
            f"Received: model={model} of type {type(model).__name__}"
        )
    if not model.built or _forgot_shapes(model, input_signature):
        raise ValueError(
            f"The model {model.name!r} is not built, so its inputs are "
            "unknown. Call it once on data, or give it a `keras.Input`, "
            f"before exporting it. Received: model={model}"
        )
    structure, declared = _input_structure(model, input_signature)
    specs = _flat_specs(structure)
    as_kwargs = _is_call_arguments(model, structure)
    dtypes = [leaf.dtype for leaf in _leaves(structure)]

    def pack(flat):
        values = [tf.cast(x, d) for x, d in zip(flat, dtypes, strict=True)]
        value = keras.tree.pack_sequence_as(
            _as_indices(structure), list(values)
        )
        return ((), value) if as_kwargs else ((value,), {})

    names = _operation_names(model)

    def name_outputs(outputs):
        return _name_outputs(outputs, names)

    if not declared:
        _warn_of_guess(model, specs)
    return Interface(tuple(specs), pack, name_outputs, declared)


def _forgot_shapes(model, input_signature):
    return not (
        input_signature is not None
        or getattr(model, "inputs", None)
        or model.get_build_config()
    )


def _input_structure(model, input_signature):
    """Returns the nested specs of the inputs and whether they were stated."""
    if input_signature is not None:
        return _map_specs(_checked_spec, input_signature), True
    inputs = getattr(model, "inputs", None)
    if isinstance(model, keras.Sequential) and inputs:
        if inputs[0].shape[:1] in ((None,), ()):
            return _checked_spec(inputs[0]), True
        return _guessed(model, inputs[0].shape), False
    if inputs:
        return _map_specs(_checked_spec, model.input), True
    shapes = model.get_build_config().get("input_shape")
    if shapes is None:
        raise ValueError(
            f"The model {model.name!r} takes several arguments. Pass "
            "`input_signature`, a dictionary with a `keras.KerasTensor` "
            "for each argument of `call`."
        )
    if isinstance(shapes, dict) or any(
        isinstance(size, (tuple, list, dict)) for size in shapes
    ):
        raise _unknown_dtypes(model, shapes)
    return _guessed(model, shapes), False


def _guessed(model, shape):
    """Returns the spec of the only input, as far as it can be told.

    The batch is left open, and so is the length of ids.
    """
    dtype = guess_dtype(model, shape)
    if dtype is None:
        raise _unknown_dtypes(model, shape)
    if dtype == "int32" and len(shape) == 2:
        shape = (None, None)
    return keras.KerasTensor((None, *shape[1:]), dtype=dtype)


def _unknown_dtypes(model, shapes):
    return ValueError(
        f"The model {model.name!r} does not say which dtypes it takes: Keras "
        "keeps the shapes it was built with alone, and a wrong guess would "
        "distort what is sent. Pass `input_signature`, the same structure of "
        "`keras.KerasTensor((None, ...), dtype=...)`, or begin the model with "
        f"a `keras.Input`. Received: shapes {shapes}"
    )


def _checked_spec(leaf):
    """Turns any accepted description of one input into a `KerasTensor`."""
    if getattr(leaf, "sparse", False) or getattr(leaf, "ragged", False):
        raise TypeError(
            "Only dense tensors can be served. Make the input dense inside "
            f"the model. Received: input={leaf}"
        )
    if leaf.shape is None or leaf.dtype is None:
        raise ValueError(
            "Every input needs a shape and a dtype. "
            f"Received: input_signature leaf {leaf}"
        )
    dtype = getattr(leaf.dtype, "name", leaf.dtype)
    name = leaf.name or "keras_tensor"
    return keras.KerasTensor(tuple(leaf.shape), dtype=dtype, name=name)


def _map_specs(function, structure):
    """Maps over nested dicts and lists; a spec or a shape is a leaf."""
    if isinstance(structure, dict):
        return {k: _map_specs(function, v) for k, v in structure.items()}
    if isinstance(structure, (list, tuple)):
        return type(structure)(_map_specs(function, v) for v in structure)
    if not hasattr(structure, "shape") or not hasattr(structure, "dtype"):
        raise TypeError(
            "`input_signature` must hold `keras.KerasTensor`, "
            "`keras.InputSpec` or `tf.TensorSpec`. "
            f"Received: {structure} of type {type(structure).__name__}"
        )
    return function(structure)


def _paths(structure, path=()):
    """Yields `(path, leaf)` in the order in which `keras.tree` flattens."""
    if isinstance(structure, dict):
        for key in sorted(structure):
            yield from _paths(structure[key], (*path, str(key)))
    elif isinstance(structure, (list, tuple)):
        for index, value in enumerate(structure):
            yield from _paths(value, (*path, index))
    else:
        yield path, structure


def _leaves(structure):
    return [leaf for _, leaf in _paths(structure)]


def _as_indices(structure):
    """The structure with plain numbers at its leaves, to pack into."""
    return keras.tree.map_structure(lambda _: 0, structure)


def _join(path, head):
    """Joins keys and positions to a name, which begins with no digit."""
    start = [] if isinstance(path[0], str) else [head]
    return "_".join(str(key) for key in (*start, *path))


def _flat_specs(structure):
    names = []
    for path, leaf in _paths(structure):
        keys = [str(key) for key in path if isinstance(key, str)]
        if keys:
            names.append(_join(path, "inputs"))
        elif re.fullmatch(_ANONYMOUS, leaf.name):
            names.append("inputs")
        else:
            names.append(leaf.name)
    names = [_served_name(name, "input") for name in unique_names(names)]
    return [
        tf.TensorSpec(
            leaf.shape,
            "float32" if leaf.dtype in _HALF else leaf.dtype,
            name=name,
        )
        for name, leaf in zip(names, _leaves(structure), strict=True)
    ]


def _served_name(name, what):
    if what == "input" and name in _RESERVED:
        raise SignatureError(
            "TensorFlow takes no word of the Python language as the name of "
            f"an input. Received: input name={name!r}"
        )
    if not _NAME.fullmatch(name):
        raise SignatureError(
            f"The name of an {what} must start with a letter and hold only "
            "letters, digits, '_', '.' and '-' to be usable in a signature. "
            f"Received: {what} name={name!r}"
        )
    return name


def _is_call_arguments(model, structure):
    """Whether a dictionary of specs names arguments of `call`."""
    if getattr(model, "inputs", None) or not isinstance(structure, dict):
        return False
    arguments = inspect.signature(model.call).parameters
    return all(key in arguments for key in structure)


def _operation_names(model):
    """Stable names of what makes the outputs, in order; empty if unknown."""
    if isinstance(model, keras.Sequential):
        return stable_names(model.layers)[-1:]
    operations = getattr(model, "operations", [])
    names = dict(
        zip(
            (operation.name for operation in operations),
            stable_names(operations),
            strict=True,
        )
    )
    return [names[name] for name in getattr(model, "output_names", ())]


def _name_outputs(outputs, names):
    flat = list(_paths(outputs))
    labels = []
    for index, (path, _) in enumerate(flat):
        if any(isinstance(key, str) for key in path):
            labels.append(_join(path, "outputs"))
        elif len(names) == len(flat):
            labels.append(names[index])
        else:
            labels.append("outputs")
    labels = [_served_name(x, "output") for x in unique_names(labels)]
    result = {}
    for label, (_, value) in zip(labels, flat, strict=True):
        if value is None:
            raise SignatureError(
                "Every output must be a tensor. Leave it out of what the "
                f"model returns. Received: {label}=None"
            )
        value = tf.convert_to_tensor(value)
        half = value.dtype.name in _HALF
        result[label] = tf.cast(value, "float32") if half else value
    return result


def _warn_of_guess(model, specs):
    if all(len(s.shape) == 2 and s.dtype.is_floating for s in specs):
        return
    warnings.warn(
        f"The model {model.name!r} does not say what it takes. Its signature "
        f"is guessed: {[(tuple(s.shape), s.dtype.name) for s in specs]}. "
        "Pass `input_signature`, such as "
        "`keras.KerasTensor((None, None), dtype='int32')`, or begin the "
        "model with a `keras.Input`, to state shapes and dtypes.",
        stacklevel=4,
    )

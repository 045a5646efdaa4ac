"""Copies a model, with our layers in the place of others."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
import warnings

import keras

from keras_attention.upgrading.members import members_of
from keras_attention.upgrading.replacements import (
    CannotReplaceError,
    boolean_masks,
    call_in_graph,
    is_hub,
    replacements,
)
from keras_attention.upgrading.report import Note
from keras_attention.upgrading.substitution import substituted

# Keras exports no name for the class of functional models.
_FUNCTIONAL = type(keras.Model(*[keras.Input((1,), name="probe")] * 2))


@dataclasses.dataclass(frozen=True)
class Pair:
    """A layer or model and its copy.

    Attributes:
        old: The original.
        new: Its copy.
        path: Names of models and layers, outermost first.
        follows: Whether the members were copied one by one, and so have
            pairs of their own.
    """

    old: keras.layers.Layer
    new: keras.layers.Layer
    path: str
    follows: bool


class Copier:
    """Copies layers and models, each once, so that shared ones stay shared.

    Attributes:
        pairs: List of `Pair`, members before the models that hold them.
        notes: List of `Note`: what could not be replaced, and why.
    """

    def __init__(self):
        self.pairs = []
        self.notes = []
        self._copies = {}
        self._replacements = replacements()
        self._by_class = {r.source: r for r in self._replacements}

    def copy(self, layer, path=""):
        """Returns the copy of a layer, a model or an operation.

        Args:
            layer: What to copy, which stays as it is.
            path: Path of the model that holds it.

        Raises:
            ValueError: Keras cannot make it again from its configuration.
        """
        # The original is kept as well: its id stays its own.
        if id(layer) not in self._copies:
            path = f"{path}/{layer.name}" if path else layer.name
            new = self._copy(layer, path)
            self._copies[id(layer)] = layer, new
            if isinstance(layer, keras.layers.Layer):
                self.pairs.append(Pair(layer, new, path, _is_graph(layer)))
        return self._copies[id(layer)][1]

    def _copy(self, layer, path):
        if not isinstance(layer, keras.layers.Layer):
            return type(layer).from_config(layer.get_config())
        if type(layer) in self._by_class:
            return self._replace(layer, path)
        if not _is_graph(layer):
            return self._make_again(layer, path)
        if isinstance(layer, keras.Sequential):
            return self._copy_sequential(layer, path)
        if is_hub(layer):
            self.notes.append(
                Note(
                    path,
                    f"keras_hub.{type(layer).__name__}",
                    "is a plain `keras.Model` now, which loads without "
                    "KerasHub and has none of the methods of its class",
                )
            )
        return self._copy_functional(layer, path)

    def _replace(self, layer, path):
        try:
            new = self._by_class[type(layer)].make(layer.get_config())
            _check_heads(new, layer)
        except CannotReplaceError as error:
            self.notes.append(
                Note(path, type(layer).__name__, f"was left alone: {error}")
            )
            new = type(layer).from_config(layer.get_config())
        _build(new, layer)
        return new

    def _copy_sequential(self, model, path):
        members = [self.copy(layer, path) for layer in model.layers]
        if model.inputs:
            members.insert(0, _input_like(model, model.inputs[0]))
        new = keras.Sequential(members, name=model.name)
        if not model.inputs:
            _build(new, model)
        return new

    def _copy_functional(self, model, path):
        def call(layer, *args, **kwargs):
            source = originals.get(id(layer))
            if type(source) in self._by_class:
                args, kwargs = self._read_masks(source, path, args, kwargs)
            return call_in_graph(layer, source, *args, **kwargs)

        def clone(layer):
            copy = self.copy(layer, path)
            originals[id(copy)] = layer
            return copy

        originals = {}
        # Wrapped, since `clone_model` compiles what is compiled.
        return keras.models.clone_model(
            keras.Model(model.input, model.output, name=model.name),
            input_tensors=keras.tree.map_structure(
                lambda tensor: _input_like(model, tensor), model.input
            ),
            clone_function=clone,
            call_function=call,
        )

    def _read_masks(self, source, path, args, kwargs):
        """Returns the arguments of a call with boolean masks in them."""
        read = boolean_masks(source, args, kwargs)
        if read is None:
            return args, kwargs
        self.notes.append(
            Note(
                f"{path}/{source.name}",
                "float mask",
                "is read as a boolean one, as Keras does: it hides what is "
                "0. If it is to be added to scores, call the layer with "
                "`attention_bias`",
            )
        )
        return read

    def _make_again(self, layer, path):
        """Returns a new layer by its own configuration, ours inside it."""
        stand_ins = [r for r in self._replacements if r.same_calls]
        try:
            with substituted(stand_ins):
                new = _from_config(layer)
                _build(new, layer)
                _build_members(new, layer)
        except Exception as error:
            raise ValueError(
                f"The layer {path!r} of class {type(layer).__name__} cannot "
                "be made again from its configuration, as saving and loading "
                "would do. Give the class a complete `get_config` (and "
                "`get_build_config`), or change the import in it and load "
                f"the weights. The model given is as it was. Reason: {error}"
            ) from error
        _carry_assets(new, layer)
        return new


def _is_graph(layer):
    """Whether a model is no more than its layers and their connections."""
    plain = type(layer) in (keras.Sequential, _FUNCTIONAL)
    return plain or (isinstance(layer, _FUNCTIONAL) and is_hub(layer))


def _from_config(layer):
    """Returns a new layer by the configuration of another."""
    config = layer.get_config()
    if type(layer) is keras.layers.Lambda:
        # The function comes from this process, not from a file.
        return keras.layers.Lambda.from_config(config, safe_mode=False)
    parameters = inspect.signature(type(layer).__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        # A constructor without these arguments was called without them: the
        # name and the flag are carried over later.
        for name in {"name", "trainable", "dtype"} - parameters.keys():
            config.pop(name, None)
    return type(layer).from_config(config)


def _input_like(model, tensor):
    """Returns a new input of the shape, dtype and name of an old one."""
    layers = {layer.name: layer for layer in model.layers}
    optional = getattr(layers.get(tensor.name), "optional", False)
    return keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        name=tensor.name,
        sparse=tensor.sparse,
        optional=optional,
    )


def _build(new, layer):
    """Builds a layer as the other was built, if it was."""
    # Without a `build` of its own, a layer is built when the copy calls it.
    lazy = type(new).build is keras.layers.Layer.build
    if not layer.built or (lazy and not isinstance(new, keras.Model)):
        return
    config = layer.get_build_config()
    if config and not new.built:
        with warnings.catch_warnings():
            # A model that Keras cannot build gets its members built.
            warnings.filterwarnings("ignore", ".* cannot be built automat")
            new.build_from_config(config)


def _build_members(new, layer):
    """Builds what is left inside a copy as it was built in the original."""
    pairs = zip(members_of(new), members_of(layer), strict=False)
    for its_copy, member in pairs:
        if not its_copy.built:
            _build(its_copy, member)
            _build_members(its_copy, member)


def _carry_assets(new, layer):
    """Carries vocabularies, of a layer and of those inside it."""
    if type(new) is not type(layer):
        return
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)
    for pair in zip(members_of(new), members_of(layer), strict=False):
        _carry_assets(*pair)


def _check_heads(new, layer):
    """Refuses a block whose heads do not divide its width."""
    config = layer.get_build_config() or {}
    shape = config.get("input_shape") or next(
        iter(config.get("shapes_dict", {}).values()), None
    )
    heads = getattr(new, "num_heads", None)
    if is_hub(layer) and heads and shape and shape[-1] % heads:
        raise CannotReplaceError(
            f"its width {shape[-1]} is no multiple of its {heads} heads"
        )

"""Copies a model, with our layers in the place of others."""

from __future__ import annotations

import dataclasses

import keras

from keras_attention.upgrading import hub, making
from keras_attention.upgrading.members import (
    all_inside,
    members_of,
    replace_member,
)
from keras_attention.upgrading.replacements import (
    CannotReplaceError,
    boolean_masks,
    call_in_graph,
    replacements,
)
from keras_attention.upgrading.report import Note
from keras_attention.upgrading.substitution import substituted

# Keras exports no name for the class of functional models.
_PROBE = keras.Input((1,), name="probe")
_FUNCTIONAL = type(keras.Model(_PROBE, keras.layers.Identity()(_PROBE)))


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

    Args:
        in_place: Whether attention is replaced inside a layer that cannot be
            made again, which is then part of both models.
        for_file: Whether the copy is to be loaded from a file, so that a
            task of KerasHub cannot stay of its class.

    Attributes:
        pairs: List of `Pair`, members before the models that hold them.
        notes: List of `Note`: what could not be replaced, and why.
    """

    def __init__(self, in_place=False, for_file=False):
        self.pairs = []
        self.notes = []
        self._in_place = in_place
        self._for_file = for_file
        self._copies = {}
        self._made_again = []
        self._opened = []
        self._replacements = replacements()
        self._by_class = {r.source: r for r in self._replacements}

    def attends(self, layer) -> bool:
        """Whether a layer is, or holds, attention that is replaced."""
        sources = {r.source for r in self._replacements if r.attends}
        return any(type(x) in sources for x in all_inside(layer))

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
                follows = isinstance(layer, keras.Model) and _is_graph(new)
                self.pairs.append(Pair(layer, new, path, follows))
        return self._copies[id(layer)][1]

    def finish(self):
        """Ties what was shared, and replaces inside layers that stayed.

        What changes the model given, if anything, is done here and after
        all that can fail.
        """
        first = {}
        # A file would have no weights for the second of two that are one.
        for old, new in () if self._for_file else self._made_again:
            self._tie(old, new, first)
        for layer, path in self._opened:
            self._replace_inside(layer, path)

    def _copy(self, layer, path):
        if not isinstance(layer, keras.layers.Layer):
            return type(layer).from_config(layer.get_config())
        if type(layer) in self._by_class:
            return self._replace(layer, path)
        if hub.is_hub(layer) and isinstance(layer, _FUNCTIONAL):
            return self._copy_hub(layer, path)
        if not _is_graph(layer):
            return self._make_again(layer, path)
        if isinstance(layer, keras.Sequential):
            return self._copy_sequential(layer, path)
        return self._copy_functional(layer, path)

    def _copy_hub(self, model, path):
        """Returns a plain model where a file of it is wanted or does better.

        A file of its class would make the old layers again.
        """
        free = hub.loads_alone(model, self._by_class)
        reason = None
        if not self._for_file and (hub.is_task(model) or not free):
            try:
                return self._from_config(model)
            except Exception as error:
                reason = str(error).partition("\n")[0]
        self.notes.append(hub.plain_model(path, model, free, reason))
        return self._copy_functional(model, path)

    def _replace(self, layer, path):
        try:
            new = self._by_class[type(layer)].make(layer.get_config())
        except CannotReplaceError as error:
            self.notes.append(
                Note(path, type(layer).__name__, f"was left alone: {error}")
            )
            new = type(layer).from_config(layer.get_config())
        making.build(new, layer)
        return new

    def _copy_sequential(self, model, path):
        members = [self.copy(layer, path) for layer in model.layers]
        if model.inputs:
            members.insert(0, _input_like(model, model.inputs[0]))
        new = keras.Sequential(members, name=model.name)
        if not model.inputs:
            making.build(new, model)
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
        """Returns a new layer by its own configuration, or the layer."""
        try:
            return self._from_config(layer)
        except Exception as error:
            if not self.attends(layer):
                self.notes.append(_shared(path, layer))
                return layer
            if self._in_place:
                self._opened.append((layer, path))
                return layer
            raise ValueError(
                f"The layer {path!r} of class {type(layer).__name__} cannot "
                "be made again from its configuration, as saving and loading "
                "would do. Give the class a complete `get_config` (and "
                "`get_build_config`), change the import in it and load the "
                "weights, or pass `in_place=True` to have the attention in "
                "this very layer replaced. The model given is as it was. "
                f"Reason: {error}"
            ) from error

    def _from_config(self, layer):
        """Returns a new layer by its own configuration, ours inside it."""
        stand_ins = [r for r in self._replacements if r.same_calls]
        with substituted(stand_ins):
            new = making.from_config(layer)
            making.build(new, layer)
            making.build_members(new, layer)
        making.carry_assets(new, layer)
        self._made_again.append((layer, new))
        return new

    def _tie(self, old, new, first):
        """Lets a layer hold the copies of what the original shares.

        Args:
            old: The original.
            new: Its copy, with members of its own.
            first: Copies of members found so far, by id of the original.
        """
        pairs = zip(members_of(old), members_of(new), strict=False)
        for member, its_copy in pairs:
            copied = self._copies.get(id(member), (None, None))[1]
            known = copied or first.setdefault(id(member), its_copy)
            if known is its_copy or type(known) is not type(its_copy):
                self._tie(member, its_copy, first)
            elif its_copy.weights:
                replace_member(new, its_copy, known)

    def _replace_inside(self, layer, path):
        """Replaces the attention that a layer holds at any depth."""
        for member in members_of(layer):
            replacement = self._by_class.get(type(member))
            same_calls = replacement is not None and replacement.same_calls
            if same_calls or (_is_graph(member) and self.attends(member)):
                replace_member(layer, member, self.copy(member, path))
            else:
                self._replace_inside(member, f"{path}/{member.name}")
        if isinstance(layer, keras.Model):
            # Traced with the layers of before.
            layer.train_function = layer.test_function = None
            layer.predict_function = None


def _is_graph(layer):
    """Whether a model is no more than its layers and their connections."""
    return type(layer) in (keras.Sequential, _FUNCTIONAL)


def _shared(path, layer):
    return Note(
        path,
        type(layer).__name__,
        "cannot be made again from its configuration and holds no attention: "
        "it is part of both models, weights included",
    )


def _input_like(model, tensor):
    """Returns a new input of the shape, dtype and name of an old one."""
    source = tensor._keras_history.operation
    return keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        name=source.name,
        sparse=tensor.sparse,
        optional=getattr(source, "optional", False),
    )

"""Carries weights, flags and the optimizer from a model to its copy."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import keras

from keras_attention import layers
from keras_attention.layers import quantized_parts
from keras_attention.upgrading.hub import is_hub
from keras_attention.upgrading.members import all_inside, members_of
from keras_attention.upgrading.replacements import hub_members
from keras_attention.upgrading.report import Change, Note


class Transfer:
    """Follows pairs of layers into their members and carries their state.

    Attributes:
        variables: Dictionary from the id of a variable of the original to
            `(variable, its copy)`.
        changes: List of `Change`.
        notes: List of `Note`.
    """

    def __init__(self):
        self.variables = {}
        self.changes = []
        self.notes = []
        self._seen = set()
        self._reached = []
        self._trainable = {}

    def carry(self, pairs):
        """Carries the state of `Copier.pairs`."""
        for pair in pairs:
            # Read first: a layer may be part of both models.
            for thing in (*all_inside(pair.old), *pair.old.weights):
                self._trainable[id(thing)] = thing.trainable
        # Outer ones first: a flag set on a model falls on all its members.
        for pair in reversed(pairs):
            self._carry(pair.old, pair.new, pair.path, pair.follows)
        for old, new in self.variables.values():
            if new is not old:
                new.assign(old)
            trainable = self._trainable[id(old)]
            if new.trainable != trainable:
                new.trainable = trainable
        for layer in self._reached:
            # What is computed from the weights, as after loading.
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()

    def _carry(
        self, old, new, path, follows=False, inside=False, inside_hub=False
    ):
        if (id(old), id(new)) in self._seen:
            return
        self._seen.add((id(old), id(new)))
        self._reached.append(new)
        new.trainable = self._trainable[id(old)]
        if isinstance(new, keras.Model) and old.built and not new.built:
            _set_built(new, old)
        # Names that Keras counts up are other ones the second time.
        new.name = old.name
        replaced = _label(old) != _label(new)
        if replaced and not inside and not isinstance(old, keras.Model):
            self.changes.append(
                Change(path, _label(old), _label(new), old.count_params())
            )
        elif not replaced:
            self.notes += kept(old, path, inside_hub)
        if follows:
            return
        members = _matched(old, new, path)
        for member, its_copy in members:
            _adapt(member, its_copy)
            self._carry(
                member,
                its_copy,
                f"{path}/{member.name}",
                inside=inside or replaced,
                inside_hub=inside_hub or is_hub(old),
            )
        self._pair(
            _own_variables(old, [m for m, _ in members]),
            _own_variables(new, [m for _, m in members]),
            path,
        )

    def _pair(self, old, new, path):
        shapes = [tuple(v.shape) for v in old], [tuple(v.shape) for v in new]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"The copy of {path!r} has other weights than the original, "
                f"of shapes {shapes[1]} instead of {shapes[0]}, so that they "
                "cannot be carried over. Was it built or given layers outside "
                "its constructor and `build`? The model given is as it was."
            )
        for variable, its_copy in zip(old, new, strict=True):
            known = self.variables.setdefault(
                id(variable), (variable, its_copy)
            )
            if known[1] is not its_copy:
                its_copy.assign(variable)
                self.notes.append(
                    Note(
                        path,
                        variable.name,
                        "was shared with another layer and is a variable of "
                        "its own now, as after saving and loading",
                    )
                )


def kept(layer, path, inside_hub=False):
    """Returns notes on a layer that is not replaced, if there is a reason.

    Args:
        layer: The layer.
        path: Where it is.
        inside_hub: Whether it is part of a layer of KerasHub.
    """
    sources = (
        keras.layers.MultiHeadAttention,
        keras.layers.GroupQueryAttention,
        keras.layers.Attention,
    )
    if is_hub(layer) and not inside_hub:
        why = "belongs to KerasHub, which a saved file will ask for"
    elif (
        isinstance(layer, sources)
        and type(layer) not in sources
        and not is_hub(layer)
    ):
        why = (
            "is a class of its own, whose code may rely on the parts of "
            "Keras's layer: derive it from ours, by `compute_attention`"
        )
    else:
        return []
    return [Note(path, _label(layer), why)]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """How a model was compiled, read before anything is replaced in it.

    Attributes:
        model: The model.
        optimizer: Its optimizer, or None.
        trainable: The variables that the optimizer knows, in its order.
    """

    model: keras.Model
    optimizer: Any
    trainable: list

    @classmethod
    def of(cls, model):
        """Returns what there is to know of a model."""
        optimizer = model.optimizer if model.compiled else None
        return cls(model, optimizer, list(model.trainable_variables))


def carry_compile_state(compiled, new, variables):
    """Compiles the copy like the original, optimizer state included.

    Args:
        compiled: The `Compiled` of the model given.
        new: Its copy.
        variables: `Transfer.variables`.

    Returns:
        A list of `Note`: what could not be carried.
    """
    old = compiled.model
    if hasattr(old, "sampler") and type(new) is type(old):
        # By which `generate` of KerasHub draws; not in what it compiles.
        new.sampler = old.sampler
    if not old.compiled:
        return []
    try:
        notes = _compile(old, new)
        if not new.compiled:
            raise ValueError("its class has a `compile` of its own")
        _carry_optimizer(compiled, new, variables)
    except Exception as error:
        why = f"was not carried over; compile the model again. Reason: {error}"
        return [Note(old.name, "compile state", why)]
    return notes


def _compile(old, new):
    """Compiles the copy, and returns notes on what it lacks."""
    config = old.get_compile_config()
    # Classes and functions of the user, registered or not.
    own = [*keras.tree.flatten(old.loss), old.optimizer]
    own = [x if inspect.isroutine(x) else type(x) for x in own]
    with keras.saving.custom_object_scope({x.__name__: x for x in own}):
        try:
            new.compile_from_config(config)
            return []
        except Exception as error:
            bare = {**config, "metrics": None, "weighted_metrics": None}
            if bare == config:
                raise
            new.compile_from_config(bare)
            why = (
                "were not carried over; compile the model again to have "
                f"them. Reason: {error}"
            )
            return [Note(old.name, "metrics", why)]


def _carry_optimizer(compiled, new, variables):
    old = compiled.optimizer
    if old is None or not old.built:
        return
    if not new.optimizer.built:
        new.optimizer.build(new.trainable_variables)
    places = new.optimizer.variables
    if len(places) != len(old.variables):
        raise ValueError(
            "the optimizer was built for other weights than those that are "
            "trainable now"
        )
    order = [variables[id(v)][1] for v in compiled.trainable]
    if list(map(id, order)) != list(map(id, new.trainable_variables)):
        places = _in_order(new.optimizer, order)
    for slot, place in zip(old.variables, places, strict=True):
        place.assign(slot)


def _in_order(optimizer, variables):
    """Returns the variables of an optimizer as if built for `variables`.

    Keras saves them by number, in the order of the model's variables. A twin
    built in another order tells which is which.
    """
    twin = type(optimizer).from_config(optimizer.get_config())
    twin.build(variables)
    by_path = {variable.path: variable for variable in optimizer.variables}
    if len(by_path) != len(optimizer.variables):
        raise ValueError("variables of the optimizer share a name")
    return [by_path[variable.path] for variable in twin.variables]


def _matched(old, new, path):
    """Returns pairs of the members of two layers that hold weights."""
    known = hub_members(old, new)
    if known is not None:
        return known
    if isinstance(new, keras.Model) and type(old) is not type(new):
        members = [m for m in members_of(old) if m.weights]
        return list(zip(members, new.layers, strict=True))
    found = [
        [m for m in members_of(layer) if m.weights or isinstance(m, _FOLLOWED)]
        for layer in (old, new)
    ]
    if len(found[0]) != len(found[1]):
        raise ValueError(
            f"The copy of {path!r} has other members than the original: "
            f"{[m.name for m in found[1]]} instead of "
            f"{[m.name for m in found[0]]}. The model given is as it was."
        )
    return list(zip(*found, strict=True))


# Layers that are followed even where they have no weights.
_FOLLOWED = (
    keras.Model,
    keras.layers.Attention,
    layers.Attention,
    layers.AdditiveAttention,
)


def _set_built(new, old):
    """Marks a model as built whose members are, as the original was."""
    new.built = True
    if new.get_build_config() is None:
        # Kept in a file, by which Keras builds the model that it loads.
        new._build_shapes_dict = old._build_shapes_dict


def _own_variables(layer, members):
    """Returns the weights of a layer that are not those of its members."""
    taken = {id(v) for member in members for v in member.weights}
    return [v for v in layer.weights if id(v) not in taken]


def _adapt(old, new):
    """Gives a projection the low-rank or quantized form of the other."""
    if getattr(old, "lora_enabled", False) and not new.lora_enabled:
        new.enable_lora(old.lora_rank, lora_alpha=old.lora_alpha)
    if old.quantization_mode and not new.quantization_mode:
        quantized_parts.quantize(new, quantized_parts.serialize(old))


def _label(layer):
    package = type(layer).__module__.partition(".")[0]
    return f"{package}.{type(layer).__name__}"

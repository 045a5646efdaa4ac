"""The function `keras_attention.upgrade`."""

from __future__ import annotations

import json

import keras

from keras_attention.upgrading import hub
from keras_attention.upgrading.copying import Copier
from keras_attention.upgrading.members import with_paths
from keras_attention.upgrading.report import Note, UpgradeReport
from keras_attention.upgrading.state import (
    Compiled,
    Transfer,
    carry_compile_state,
    kept,
)


def upgrade(model, verbose=0, return_report=False, in_place=False):
    """Returns a copy of a model with our attention layers in it.

    Every `MultiHeadAttention`, `GroupQueryAttention`, `Attention` and
    `AdditiveAttention` of Keras is replaced, wherever it is: in a Functional
    or Sequential model, in models nested in it, and in a user's own layers
    and models. So are `TransformerEncoder` and `TransformerDecoder` of
    KerasHub. A backbone made of these becomes a plain `keras.Model` that is
    saved and loaded without KerasHub; a task, such as a `CausalLM`, stays of
    its class and keeps `generate`.

    The copy has the names, weights, trainable flags and dtype policies of
    the original, shared layers stay shared, and it is compiled alike, with
    the state of the optimizer. Its outputs are equal up to rounding wherever
    something may be attended to; what a padded position gets, where Keras
    attends to what is hidden, is not. The model given is not changed, nor
    does it share variables with the copy, but for layers that cannot be made
    again; the report names these. A model without attention to replace is
    returned as it is.

    A user's own class is made again from its configuration, as loading does,
    with our classes in the place of the others while its constructor and its
    `build` run. A file saved from it makes what that class says, so change
    the import there too; the report names such classes.

    Args:
        model: A `keras.Model`: Functional, Sequential, or a subclass that
            has a complete `get_config` and is built.
        verbose: 1 to print what was changed, 0 for silence.
        return_report: Whether to return an `UpgradeReport` as well.
        in_place: Whether attention inside a layer that cannot be made again
            from its configuration is replaced in that very layer, and so in
            the model given too. Otherwise such a layer is refused.

    Returns:
        The new model, or with `return_report` the tuple of it and the
        report, whose `changes` and `notes` are lists and whose `print()`
        shows them as tables.

    Raises:
        TypeError: `model` is no model of Keras 3.
        ValueError: `model` is not built, or a layer cannot be made again
            from its configuration. The message says which, and the model
            given is as it was.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> attend = keras.layers.MultiHeadAttention(2, 4, name="reader")
    >>> old = keras.Model(inputs, attend(inputs, inputs))
    >>> new, report = upgrade(old, return_report=True)
    >>> type(new.get_layer("reader")).__module__.split(".")[0]
    'keras_attention'
    >>> [(change.path, change.before) for change in report.changes]
    [('functional/reader', 'keras.MultiHeadAttention')]
    """
    _check(model)
    new, report = copy_with_ours(model, in_place=in_place)
    if verbose:
        report.print()
    return (new, report) if return_report else new


def copy_with_ours(model, **options):
    """Returns the upgraded model and the report, as `upgrade` describes them.

    Args:
        model: A built `keras.Model`.
        **options: Those of `Copier`.
    """
    copier = Copier(**options)
    if not copier.attends(model):
        inside = [
            kept(layer, path, inside_hub=True)
            for path, layer in with_paths(model)
        ]
        return model, UpgradeReport([], sum(inside, []))
    new = copier.copy(model)
    compiled = Compiled.of(model)
    copier.finish()
    transfer = Transfer()
    transfer.carry(copier.pairs)
    notes = [
        *copier.notes,
        *transfer.notes,
        *_made_by_user(copier.pairs, transfer.changes),
        *carry_compile_state(compiled, new, transfer.variables),
    ]
    return new, UpgradeReport(transfer.changes, notes)


def _check(model):
    packages = {c.__module__.partition(".")[0] for c in type(model).__mro__}
    if "tf_keras" in packages:
        raise TypeError(
            "`model` is a model of Keras 2 (`tf_keras`), which layers of "
            "Keras 3 cannot join: save it with `model.save('old.h5')` and "
            "load that with `keras.saving.load_model`, which reads it where "
            "it is made of Keras's own layers."
        )
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a `keras.Model`. Received: model={model!r} of "
            f"type {type(model).__name__}"
        )
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} is not built, so that it has no "
            "weights to carry over. Call it once on data, or upgrade it "
            "after its weights are loaded."
        )


def _made_by_user(pairs, changes):
    """Yields notes on classes that would make the old layers on loading."""
    for pair in pairs:
        inside = [c for c in changes if c.path.startswith(f"{pair.path}/")]
        if not inside or pair.follows:
            continue
        if _names_ours(pair.new):
            continue
        why = (
            "makes its attention in its own code: change the import there, "
            "or a saved file will make the old layers again"
        )
        if hub.is_hub(pair.old):
            why = (
                "keeps its methods, but a file saved from it makes the old "
                "layers again. For a file, upgrade its backbone, or run "
                "`keras-attention upgrade` on one"
            )
        yield Note(pair.path, type(pair.old).__name__, why)


def _names_ours(layer):
    """Whether the configuration of a layer names layers of this package."""
    try:
        saved = json.dumps(keras.saving.serialize_keras_object(layer))
    except (TypeError, NotImplementedError):
        return False
    return "keras_attention>" in saved

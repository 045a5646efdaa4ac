"""One version folder: checked, written, tried and placed."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_attention.export.folder import (
    check_base_path,
    check_version,
    files_beside,
    locked,
    staged,
)
from keras_attention.export.messages import (
    has_serving_api,
    predict_request,
    serving_api,
    write_warm_up,
)
from keras_attention.export.metadata import (
    read_graph,
    read_signatures,
    write_metadata,
)
from keras_attention.export.readme import write_readme
from keras_attention.export.server_files import (
    check_label,
    check_name,
    write_server_files,
)
from keras_attention.export.tracking import parameter_bytes, track_state
from keras_attention.export.trial_requests import trial_requests

_GRAPH_ALLOWANCE = 4 << 20
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a version goes, and what it is called there.

    Attributes:
        base: Folder of all versions.
        version: The number asked for, or None.
        overwrite: Whether a version may be replaced.
        name: Name of the model on the server.
        label: Label of the version, or None.
        warm_up: Whether to write warm-up requests, or None.
    """

    base: pathlib.Path
    version: int | None
    overwrite: bool
    name: str
    label: str | None
    warm_up: bool | None

    @classmethod
    def checked(cls, base_path, version, overwrite, name, label, warm_up):
        """Returns the target, or says what is wrong, before any work."""
        _check_backend()
        base = check_base_path(base_path)
        check_version(base, version, overwrite)
        name = check_name(name, base)
        check_label(label)
        if warm_up:
            serving_api("prediction_log_pb2")
        return cls(base, version, overwrite, name, label, warm_up)


@dataclasses.dataclass
class Traced:
    """What is saved: the functions, and the objects whose state they use."""

    endpoint: Callable
    signatures: dict
    objects: list


def write_version(target, traced, model, interface):
    """Writes a version folder and the files beside it.

    Args:
        target: A `Target`.
        traced: What is saved, a `Traced`.
        model: The Keras model.
        interface: Its `Interface`.

    Returns:
        The version folder, a `pathlib.Path`.
    """
    base, overwrite, name = target.base, target.overwrite, target.name
    size = parameter_bytes(traced.objects)
    space = int(1.05 * size) + _GRAPH_ALLOWANCE
    with locked(base):
        # Another export may have taken the number while this one traced.
        number = check_version(base, target.version, overwrite)
        with (
            files_beside(base) as write,
            staged(base, number, overwrite, space) as folder,
        ):
            _log.info("Writing %.1f MB of weights", size / 1e6)
            _save(traced, folder)
            write_metadata(folder, name, model, interface)
            _log.info("Running requests on each signature")
            shown, requests = trial_requests(traced.signatures)
            wanted = target.warm_up
            if wanted or (wanted is None and has_serving_api()):
                _write_warm_up(folder, name, requests)
            signatures = read_signatures(read_graph(folder))
            labels = write_server_files(base, name, number, target.label, write)
            write_readme(base, name, number, labels, signatures, shown, write)
    return base / str(number)


def _write_warm_up(folder, name, requests):
    write_warm_up(
        folder,
        [
            predict_request(r.inputs, r.specs, name, r.signature)
            for r in requests
        ],
    )


def _check_backend():
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Exporting needs the TensorFlow backend. Save the model as "
            "`.keras`, then load and export it in a process started with "
            "KERAS_BACKEND=tensorflow. "
            f"Received: backend={keras.backend.backend()!r}"
        )


def _save(traced, folder):
    module = track_state(traced.objects, traced.signatures.values())
    module.serve = traced.endpoint
    try:
        tf.saved_model.save(
            module,
            str(folder),
            signatures=traced.signatures,
            # A server asks for no gradients; with them, a graph that holds a
            # reloaded export cannot be written.
            options=tf.saved_model.SaveOptions(
                save_debug_info=False, experimental_custom_gradients=False
            ),
        )
    except (tf.errors.OpError, AssertionError, OSError, TypeError) as error:
        raise ValueError(
            "TensorFlow could not write the model (a full disk, or state "
            "that no Keras layer tracks). "
            f"Received: {type(error).__name__}: {error}"
        ) from error

"""Upgrades a saved model, file to file."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import pathlib
import tempfile
import zipfile

import keras

from keras_attention.upgrading.report import UpgradeReport
from keras_attention.upgrading.upgrade import copy_with_ours
from keras_attention.upgrading.verification import (
    difference,
    random_inputs,
    tolerance,
)

_log = logging.getLogger(__name__)

# Bytes that any archive may unpack to, and what weights of zeros gain.
_HARMLESS = 100 << 20
_LARGEST_RATIO = 20


@dataclasses.dataclass(frozen=True)
class FileUpgrade:
    """What `upgrade_file` did.

    Attributes:
        path: The file written.
        report: An `UpgradeReport`.
        difference: Largest difference between the outputs before and after.
    """

    path: pathlib.Path
    report: UpgradeReport
    difference: float


def upgrade_file(source, target, overwrite=False, imports=(), length=7):
    """Loads a model, upgrades it, proves the two equal, and saves it.

    Args:
        source: A file saved by Keras 3, `.keras` or `.h5`.
        target: The `.keras` file to write, whole or not at all.
        overwrite: Whether `target` may be replaced.
        imports: Names of modules to import before loading: they register the
            classes of the model.
        length: Length of open axes in the inputs the two are compared on.

    Returns:
        A `FileUpgrade`.

    Raises:
        ValueError: A file cannot be read or written, there is nothing to
            upgrade, or the outputs differ. Nothing is written then.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    _check_target(target, overwrite)
    _log.info("Loading %s", source)
    model = _load(source, imports)
    _log.info("Upgrading %s", model.name)
    new, report = copy_with_ours(model, for_file=True)
    if not report.changes:
        raise ValueError(
            f"There is nothing to upgrade in {str(source)!r}: it holds no "
            "attention layer of Keras that could be replaced."
            + (f"\n{report}" if report.notes else "")
        )
    _log.info("Comparing the two")
    inputs, found = _compared(model, new, length)
    _check_difference(found, model)
    with _placed(target) as path:
        reloaded = _saved_and_loaded(new, path)
        found = max(found, difference(model, reloaded, inputs))
        _check_difference(found, model)
    return FileUpgrade(target, report, found)


def _check_target(target, overwrite):
    if target.suffix != ".keras":
        raise ValueError(
            "The new file must end in `.keras`, Keras's own format. Received: "
            f"{str(target)!r}"
        )
    if target.exists() and not overwrite:
        raise ValueError(
            f"{str(target)!r} exists. Choose another name, or pass "
            "`--overwrite` to replace it."
        )
    folder = target.absolute().parent
    if not folder.is_dir():
        raise ValueError(
            f"The folder of {str(target)!r} does not exist. Make it first."
        )
    if not os.access(folder, os.W_OK):
        raise ValueError(
            f"The folder of {str(target)!r} may not be written to. Choose "
            "another one."
        )


def _load(source, imports):
    if not source.is_file():
        raise ValueError(f"There is no file {str(source)!r}.")
    _check_sizes(source)
    try:
        for name in imports:
            importlib.import_module(name)
        if _mentions_hub(source):
            importlib.import_module("keras_hub")
        return keras.saving.load_model(source)
    except ImportError as error:
        raise ValueError(
            f"{str(source)!r} needs the package {error.name!r} to be loaded, "
            f"once: install it, and upgrade again. Reason: {error}"
        ) from error
    except Exception as error:
        raise ValueError(
            f"{str(source)!r} cannot be loaded as a model of Keras 3. Name "
            "the module that registers its classes with `--import`, if it "
            f"has any of its own. Reason: {error}"
        ) from error


def _check_sizes(source):
    """Refuses an archive that unpacks to far more than it is."""
    if not zipfile.is_zipfile(source):
        return
    with zipfile.ZipFile(source) as archive:
        parts = archive.infolist()
    unpacked = sum(part.file_size for part in parts)
    if unpacked > _HARMLESS + _LARGEST_RATIO * source.stat().st_size:
        raise ValueError(
            f"{str(source)!r} of {source.stat().st_size:,} bytes unpacks to "
            f"{unpacked:,}: weights do not shrink so much, so that it is not "
            "read."
        )


def _mentions_hub(source):
    if not zipfile.is_zipfile(source):
        return False
    with zipfile.ZipFile(source) as archive:
        with contextlib.suppress(KeyError):
            return b"keras_hub" in archive.read("config.json")
    return False


def _compared(model, new, length):
    """Returns random inputs, and how far the outputs for them differ."""
    inputs = random_inputs(model, length=length)
    try:
        return inputs, difference(model, new, inputs)
    except Exception as error:
        raise ValueError(
            f"The model {model.name!r} does not run on the inputs that were "
            "made up to compare the two by, so that nothing was written. "
            "Upgrade it in Python, with `keras_attention.upgrade(model)`. "
            f"Reason: {error}"
        ) from error


def _saved_and_loaded(model, path):
    try:
        model.save(path)
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"The upgraded model {model.name!r} cannot be saved and loaded, "
            "so that nothing was written. Does the old one come back from "
            "a file? Upgrade it in Python, with "
            f"`keras_attention.upgrade(model)`. Reason: {reason}"
        ) from error


def _check_difference(found, model):
    allowed = tolerance(model)
    if not found <= allowed:
        raise ValueError(
            f"The outputs of the two models differ by {found:.1e}, more than "
            f"the {allowed:.0e} that rounding explains, so that nothing was "
            "written. Does the model read parts of Keras's layers, or attend "
            "to what its masks hide?"
        )


@contextlib.contextmanager
def _placed(target):
    """Yields a path to write to, moved to `target` in one step at the end."""
    folder = target.absolute().parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".upgrade-") as hidden:
        path = pathlib.Path(hidden) / target.name
        yield path
        os.replace(path, target)

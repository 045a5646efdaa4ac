"""Version folders: numbered, and placed whole or not at all.

TensorFlow Serving polls a base folder and loads every sub-folder whose name
is a number. A version is therefore written under a hidden name beside its
place and then renamed, which the file system does in one step.
"""

import contextlib
import ctypes
import errno
import operator
import os
import pathlib
import shutil
import tempfile
import time

_PREFIX = ".incomplete-"
_ABANDONED_AFTER = 24 * 3600
_LARGEST = 2**63 - 1
_EXCHANGE = 2
_AT_FDCWD = -100


def versions(base_path):
    """Lists the version numbers in a base folder, lowest first.

    Args:
        base_path: Folder that a model server polls.

    Returns:
        A sorted list of ints; empty when the folder does not exist.
    """
    base = pathlib.Path(base_path)
    if not base.is_dir():
        return []
    try:
        entries = [x.name for x in base.iterdir() if x.is_dir()]
    except OSError as error:
        raise ValueError(
            f"The folder {str(base)!r} cannot be searched: {error}"
        ) from error
    # Digits of other scripts are no numbers to a server.
    return sorted(int(x) for x in entries if x.isascii() and x.isdecimal())


def check_base_path(base_path):
    """Returns a base folder as an absolute path, or says what is wrong."""
    if not isinstance(base_path, (str, os.PathLike)) or not str(base_path):
        raise TypeError(
            "`base_path` must be a path to a folder. "
            f"Received: base_path={base_path!r}"
        )
    base = pathlib.Path(base_path).absolute()
    if (base / "saved_model.pb").exists():
        raise ValueError(
            f"{str(base)!r} is a version itself, which a server may have "
            "loaded. Pass the folder of all versions, "
            f"{str(base.parent)!r}. Received: base_path={str(base_path)!r}"
        )
    for folder in (base, *base.parents):
        if folder.is_dir():
            break
        if folder.exists():
            raise ValueError(
                f"`base_path` runs through {str(folder)!r}, which is a file. "
                f"Received: base_path={str(base_path)!r}"
            )
    return base


def check_version(base, version, overwrite=False):
    """Returns the number of the version to write.

    Args:
        base: Base folder, a `pathlib.Path`.
        version: Positive integer, or None for the next free number.
        overwrite: Whether an existing version may be replaced.

    Raises:
        TypeError: `version` is no integer.
        ValueError: `version` is not positive, too large, or taken.
    """
    if version is None:
        number = max(versions(base), default=0) + 1
        # A file with such a name is no version, and yet in the way.
        while (base / str(number)).exists():
            number += 1
        if number > _LARGEST:
            raise ValueError(
                f"There is no number after {_LARGEST}, the version in "
                f"{str(base)!r}: versions fit 64 bits. Export to another "
                "folder."
            )
        return number
    try:
        number = operator.index(version)
    except TypeError:
        number = None
    if number is None or isinstance(version, bool):
        raise TypeError(
            "`version` must be an integer or None. "
            f"Received: version={version!r} of type {type(version).__name__}"
        )
    if not 0 < number <= _LARGEST:
        raise ValueError(
            "`version` must be at least 1 and fit 64 bits. "
            f"Received: version={version}"
        )
    if (base / str(number)).exists() and not overwrite:
        raise ValueError(
            f"Version {number} is already in {str(base)!r} and may be "
            "serving now. Pass `overwrite=True` to replace it, or leave "
            "`version=None` for the next free number."
        )
    return number


@contextlib.contextmanager
def locked(base):
    """Keeps other exports to a base folder waiting, where the system can.

    Args:
        base: Base folder, made if missing and removed if left empty.

    Raises:
        ValueError: the folder cannot be made.
    """
    with _made(base):
        folder = os.open(base, os.O_RDONLY)
        try:
            # Some systems and network drives have no such locks.
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


@contextlib.contextmanager
def staged(base, version, overwrite=False, space=0):
    """Gives a hidden folder to fill, and makes it a version at the end.

    An exception inside the `with` block removes the hidden folder and
    leaves every version as it was. A process killed at any moment leaves a
    hidden folder at most, which a later export removes after a day.

    Args:
        base: Base folder, made if missing.
        version: The number that the folder will have.
        overwrite: Whether an existing version is replaced.
        space: Bytes that must be free.

    Yields:
        A `pathlib.Path` to write into.

    Raises:
        ValueError: the folder cannot be written, or the disk is full.
    """
    with _made(base):
        free = shutil.disk_usage(base).free
        if free < space:
            raise ValueError(
                f"The disk of {str(base)!r} is full: the export needs "
                f"{space} bytes and {free} are free."
            )
        _remove_abandoned(base)
        try:
            temporary = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        except OSError as error:
            raise _unwritable(base, error) from error
        temporary = pathlib.Path(temporary)
        try:
            yield temporary
            _finish(temporary)
            _place(temporary, base / str(version), overwrite)
            _flush(base)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def files_beside(base):
    """Lets files appear in a base folder at the end, or none of them.

    To be entered before `staged`: all is written before the version is
    placed, and seen after it.

    Args:
        base: Base folder, a `pathlib.Path` that exists.

    Yields:
        A function `write(path, text)`, by which None removes a file.

    Raises:
        ValueError: the folder cannot be written, or the disk is full.
    """
    written = {}

    def write(path, text):
        written[path] = None
        if text is None:
            return
        handle, written[path] = tempfile.mkstemp(prefix=_PREFIX, dir=base)
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(written[path], 0o666 & ~_umask())

    try:
        yield write
        for path, temporary in written.items():
            if temporary is None:
                path.unlink(missing_ok=True)
            else:
                os.replace(temporary, path)
        _flush(base)
    except OSError as error:
        raise _unwritable(base, error) from error
    finally:
        for temporary in filter(None, written.values()):
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _finish(folder):
    """Opens the rights a server needs and flushes everything to disk."""
    umask = _umask()
    for root, _, files in os.walk(folder):
        os.chmod(root, 0o777 & ~umask)
        for name in files:
            path = os.path.join(root, name)
            os.chmod(path, 0o666 & ~umask)
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


def _flush(folder):
    """Has the names in a folder reach the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _place(temporary, target, overwrite):
    if not target.exists():
        os.rename(temporary, target)
    elif not overwrite:
        raise ValueError(
            f"Version folder {str(target)!r} appeared during the export, "
            "from another process. Export again for the next number."
        )
    elif not _exchange(temporary, target):
        retired = temporary.with_name(temporary.name + "-replaced")
        os.rename(target, retired)
        os.rename(temporary, target)
        shutil.rmtree(retired, ignore_errors=True)


def _exchange(first, second):
    """Swaps two folders in one step; False where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    status = rename(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second),
        _EXCHANGE,
    )  # fmt: skip
    if status and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return not status


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _made(base):
    """Makes a folder; at the end, removes what was made and stayed empty."""
    missing = [path for path in (base, *base.parents) if not path.exists()]
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(base, error) from error
    try:
        yield
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _unwritable(base, error):
    return ValueError(
        f"`base_path` cannot be written: {error}. "
        f"Received: base_path={str(base)!r}"
    )


def _remove_abandoned(base):
    """Removes what killed exports left behind long ago."""
    for entry in base.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            if time.time() - entry.lstat().st_mtime < _ABANDONED_AFTER:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()

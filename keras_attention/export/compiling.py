"""Compiles the program that runs models, into a folder of its user's own."""

import functools
import hashlib
import logging
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import tensorflow as tf

_log = logging.getLogger(__name__)
_SOURCE = pathlib.Path(__file__).with_name("runner.cc")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@functools.cache
def build_runner():
    """Compiles the C++ program, once per TensorFlow version and user.

    What is found in the cache is run only where nobody else can have put it
    there.

    Returns:
        Path of the program, or None where it cannot be compiled or kept.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++")
    compiler = compiler or shutil.which("clang++")
    if not compiler:
        return None
    command = _compile_command(compiler)
    key = hashlib.sha256(
        "\0".join([tf.version.VERSION, *command]).encode()
        + _SOURCE.read_bytes()
    ).hexdigest()[:16]
    program = _cache_folder() / f"runner-{key}"
    try:
        _make_private(program.parent)
        if not _is_private_program(program):
            _compile(command, program)
    except (OSError, subprocess.CalledProcessError) as error:
        _log.info("No C++ program, so a Python process runs models: %s", error)
        return None
    return program


def _compile(command, program):
    _log.info("Compiling the C++ program that loads models, once")
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        built = pathlib.Path(folder) / "runner"
        # Compilers write in several steps, each by the umask.
        subprocess.run(
            [*command, "-o", str(built)],
            check=True,
            capture_output=True,
            umask=0o077,
        )
        built.chmod(0o700)
        built.replace(program)


def _make_private(folder):
    """Makes a folder that its user alone may enter, or raises `OSError`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
        raise PermissionError(f"{folder} belongs to somebody else")
    folder.chmod(0o700)


def _is_private_program(program):
    """Whether a file is there that its user alone can have made."""
    try:
        found = program.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{program} belongs to somebody else")
    whole = found.st_size > 0 and found.st_mode & stat.S_IXUSR
    return bool(whole and not found.st_mode & _OTHERS_MAY_WRITE)


def _compile_command(compiler):
    library = tf.sysconfig.get_lib()
    fast_linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
    return [
        compiler,
        *tf.sysconfig.get_compile_flags(),
        "-O1",
        "-w",
        "-DNDEBUG",
        str(_SOURCE),
        *fast_linker,
        # The library that registers the sessions is named by no symbol.
        "-Wl,--no-as-needed",
        f"-L{library}",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
        f"-Wl,-rpath,{library}",
    ]


def _cache_folder():
    home = os.environ.get("XDG_CACHE_HOME")
    cache = pathlib.Path(home) if home else pathlib.Path.home() / ".cache"
    return cache / "keras_attention"

"""Runs a version folder outside this process, as a server would.

The first choice is a small C++ program, compiled on first use, that calls the
loader of TensorFlow Serving with no Python in the process. Where no compiler
is found, a bare Python process does the same with a plain session.
"""

import functools
import hashlib
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from keras_attention.export.session_runner import read_pairs, write_pairs

_log = logging.getLogger(__name__)
_SOURCE = pathlib.Path(__file__).with_name("runner.cc")
_SESSION_SCRIPT = pathlib.Path(__file__).with_name("session_runner.py")
_BARE_PYTHON = """
import runpy, sys
sys.modules.update(dict.fromkeys(["keras_attention", "keras", "tf_keras"]))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class RunError(RuntimeError):
    """A SavedModel that did not load or run, with the runtime's message."""


class Runner:
    """A process that holds a loaded SavedModel and answers requests.

    Use it as a context manager. Inputs and outputs are NumPy arrays.

    Args:
        path: A version folder.
        cpp: Whether the C++ program runs it; None for yes where it can be
            compiled.

    Raises:
        RunError: the folder does not load.

    Example:

    ```python
    with Runner("models/sentiment/1") as runner:
        runner.run("serving_default", {"ids": np.array([[4, 7, 2]])})
    ```
    """

    def __init__(self, path, cpp=None):
        program = build_runner() if cpp in (None, True) else None
        if cpp and program is None:
            raise RunError("The C++ program cannot be compiled here.")
        self.runtime = "C++ LoadSavedModel" if program else "Python session"
        if program:
            # Nothing of Python can be found; TensorFlow's own settings, such
            # as TF_ENABLE_ONEDNN_OPTS, are the user's.
            command = [str(program)]
            environment = {
                name: value
                for name, value in os.environ.items()
                if name.startswith("TF_")
            }
        else:
            command = [sys.executable, "-c", _BARE_PYTHON, _SESSION_SCRIPT]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*command, os.path.abspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def run(self, signature, inputs):
        """Runs one signature.

        Args:
            signature: Name of a signature.
            inputs: Dictionary from input names to arrays of the signature's
                dtypes.

        Returns:
            Dictionary from output names to arrays.

        Raises:
            RunError: the run failed; the process stays usable.
        """
        pairs = {
            name: tf.make_tensor_proto(value).SerializeToString()
            for name, value in inputs.items()
        }
        write_pairs(self._process.stdin, signature, pairs)
        outputs = self._answer()
        return {
            name: tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))
            for name, data in outputs.items()
        }

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _answer(self):
        try:
            error, pairs = read_pairs(self._process.stdout)
        except EOFError:
            self._log.seek(0)
            tail = self._log.read().decode(errors="replace")[-2000:]
            raise RunError(f"The process died: {tail}") from None
        if error:
            raise RunError(error)
        return pairs


@functools.cache
def build_runner():
    """Compiles the C++ program, once per TensorFlow version and user.

    Returns:
        Path of the program, or None where it cannot be compiled.
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
    if program.exists():
        return program
    _log.info("Compiling the C++ program that loads models, once")
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            built = pathlib.Path(folder) / "runner"
            subprocess.run(
                [*command, "-o", str(built)], check=True, capture_output=True
            )
            built.replace(program)
    except (OSError, subprocess.CalledProcessError):
        return None
    return program


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

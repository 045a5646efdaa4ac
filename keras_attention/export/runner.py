"""Runs a version folder outside this process, as a server would.

The first choice is a small C++ program, compiled on first use, that calls the
loader of TensorFlow Serving with no Python in the process. Where no compiler
is found, a bare Python process does the same with a plain session.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from keras_attention.export.compiling import build_runner
from keras_attention.export.session_runner import read_pairs, write_pairs

_SESSION_SCRIPT = pathlib.Path(__file__).with_name("session_runner.py")
_BARE_PYTHON = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(["keras_attention", "keras", "tf_keras"]))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_TIMEOUT = 600.0


class RunError(RuntimeError):
    """A SavedModel that did not load or run, with the runtime's message."""


class Runner:
    """A process that holds a loaded SavedModel and answers requests.

    Use it as a context manager. Inputs and outputs are NumPy arrays.

    The process ends with this one, whatever ends it.

    Args:
        path: A version folder.
        cpp: Whether the C++ program runs it; None for yes where it can be
            compiled.
        timeout: Seconds that loading, and each run, may take.
        memory_limit: Bytes of memory that the process may ask for. Defaults
            to those of the machine.

    Raises:
        RunError: the folder does not load.

    Example:

    ```python
    with Runner("models/sentiment/1") as runner:
        runner.run("serving_default", {"ids": np.array([[4, 7, 2]])})
    ```
    """

    def __init__(self, path, cpp=None, timeout=_TIMEOUT, memory_limit=None):
        program = build_runner() if cpp in (None, True) else None
        if cpp and program is None:
            raise RunError("The C++ program cannot be compiled here.")
        self.timeout = timeout
        self._limit = memory_limit or _memory_of_the_machine()
        self._path = os.path.abspath(path)
        self._log = tempfile.TemporaryFile()
        self._late = False
        self._process = self._start(program, cpp)
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def _start(self, program, cpp):
        """Starts the C++ program, or Python where there is none that runs."""
        options = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": self._log,
        }
        arguments = [self._path, str(self._limit)]
        if program:
            # Nothing of Python can be found; TensorFlow's own settings, such
            # as TF_ENABLE_ONEDNN_OPTS, are the user's.
            environment = {
                name: value
                for name, value in os.environ.items()
                if name.startswith("TF_")
            }
            self.runtime = "C++ LoadSavedModel"
            # It may not run from where it is, such as a mount without exec.
            with contextlib.ExitStack() as stack:
                if cpp is None:
                    stack.enter_context(contextlib.suppress(OSError))
                return subprocess.Popen(
                    [str(program), *arguments], env=environment, **options
                )
        self.runtime = "Python session"
        # Isolated, so that no module is taken from the current folder.
        command = [sys.executable, "-I", "-c", _BARE_PYTHON, _search_path()]
        return subprocess.Popen(
            [*command, str(_SESSION_SCRIPT), *arguments],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            **options,
        )

    def run(self, signature, inputs):
        """Runs one signature.

        Args:
            signature: Name of a signature.
            inputs: Dictionary from input names to arrays of the signature's
                dtypes.

        Returns:
            Dictionary from output names to arrays.

        Raises:
            RunError: the run failed. The process stays usable, unless it
                died or took longer than `timeout`.
        """
        pairs = {
            name: tf.make_tensor_proto(value).SerializeToString()
            for name, value in inputs.items()
        }
        # A process that has died says why where its answer is read.
        with contextlib.suppress(BrokenPipeError):
            write_pairs(self._process.stdin, signature, pairs)
        outputs = self._answer()
        return {
            name: tf.make_ndarray(tensor_pb2.TensorProto.FromString(data))
            for name, data in outputs.items()
        }

    def close(self):
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _answer(self):
        timer = threading.Timer(self.timeout, self._stop)
        timer.start()
        try:
            error, pairs = read_pairs(self._process.stdout)
        except (EOFError, UnicodeDecodeError):
            raise RunError(self._last_words()) from None
        finally:
            timer.cancel()
        if error:
            raise RunError(error)
        return pairs

    def _stop(self):
        self._late = True
        self._process.kill()

    def _last_words(self):
        """Returns why there is no answer."""
        if self._late:
            return (
                f"The run took longer than {self.timeout} s and was ended. "
                "Allow more by `timeout`, if the model needs it."
            )
        status = self._process.wait()
        how = f"with exit status {status}"
        if status < 0:
            how = f"by signal {signal.Signals(-status).name}"
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace")[-2000:].strip()
        return f"The process that ran the model died {how}. {tail}".strip()


def _search_path():
    """Returns where Python finds its packages, the current folder aside."""
    here = os.path.realpath(os.getcwd())
    absolute = [path for path in sys.path if path and os.path.isabs(path)]
    return json.dumps([p for p in absolute if os.path.realpath(p) != here])


def _memory_of_the_machine():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

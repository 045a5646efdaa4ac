"""The process that runs a model: its limits, its end, and where it is kept."""

import os
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from support.fresh_process import ROOT

from keras_attention.export import compiling
from keras_attention.export.runner import RunError, Runner

both = pytest.mark.parametrize("cpp", [None, False], ids=["cpp", "python"])


class Hostile(tf.Module):
    """Signatures that never end, or want more than there is."""

    @tf.function(input_signature=[tf.TensorSpec((), tf.int64, name="n")])
    def spin(self, n):
        n = tf.while_loop(lambda n: n > 0, lambda n: n + n % 3 + 1, [n])[0]
        return {"y": n}

    @tf.function(input_signature=[tf.TensorSpec((), tf.int64, name="n")])
    def fill(self, n):
        return {"y": tf.reduce_sum(tf.random.uniform([n]))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("hostile") / "1")
    module = Hostile()
    signatures = {
        name: getattr(module, name).get_concrete_function()
        for name in ("spin", "fill")
    }
    tf.saved_model.save(module, path, signatures)
    return path


def number(n):
    return {"n": np.array(n, "int64")}


@both
def test_a_run_without_end_is_ended(folder, cpp):
    with Runner(folder, cpp) as runner:
        assert runner.run("spin", number(0))["y"] == 0
        runner.timeout = 1.0
        with pytest.raises(RunError, match=r"longer than 1\.0 s.*`timeout`"):
            runner.run("spin", number(1))
        with pytest.raises(RunError):
            runner.run("spin", number(0))


def test_memory_has_a_limit(folder):
    # TensorFlow asks for ten seconds before it gives up.
    with Runner(folder, memory_limit=2_000_000_000) as runner:
        assert runner.run("fill", number(1000))["y"] > 0
        with pytest.raises(RunError, match=r"OOM|alloc|died"):
            runner.run("fill", number(1_000_000_000))


@both
def test_a_process_that_dies_is_told_of_with_its_signal(folder, cpp):
    with Runner(folder, cpp) as runner:
        os.kill(runner._process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(RunError, match="died by signal SIGKILL"):
                runner.run("spin", number(0))


@both
def test_the_process_ends_with_its_parent_amid_a_run(folder, cpp):
    code = (
        "import sys, threading, numpy as np\n"
        "from keras_attention.export.runner import Runner\n"
        f"runner = Runner({folder!r}, {cpp})\n"
        "print(runner._process.pid, flush=True)\n"
        "runner.run('spin', {'n': np.array(1, 'int64')})\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_python_takes_no_module_from_the_current_folder(
    folder, tmp_path, monkeypatch
):
    for name in ("tensorflow", "struct", "select", "resource", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    with Runner(folder, cpp=False) as runner:
        assert runner.run("spin", number(0))["y"] == 0


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that writes a script, and a cache of its own."""
    script = tmp_path / "compiler"
    script.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/calls\n"
        'while [ "$1" != -o ]; do shift; done\n'
        'printf "#!/bin/sh\\n" > "$2"; chmod +x "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def build():
        return compiling.build_runner.__wrapped__()

    build.calls = lambda: len((tmp_path / "calls").read_text())
    return build


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377, 0o777])
def test_the_program_is_its_users_own_whatever_the_umask(compiler, umask):
    before = os.umask(umask)
    try:
        program = compiler()
    finally:
        os.umask(before)
    assert mode(program) == 0o700 and mode(program.parent) == 0o700
    assert compiler() == program and compiler.calls() == 1


@pytest.mark.parametrize("harm", ["empty", "no program", "writable"])
def test_a_program_that_is_not_whole_is_compiled_anew(compiler, harm):
    program = compiler()
    if harm == "empty":
        program.write_bytes(b"")
    program.chmod({"no program": 0o600, "writable": 0o777}.get(harm, 0o700))
    assert compiler() == program and compiler.calls() == 2
    assert mode(program) == 0o700 and program.stat().st_size > 0


def test_an_open_cache_is_closed(compiler):
    program = compiler()
    program.parent.chmod(0o777)
    assert compiler() == program and mode(program.parent) == 0o700


@pytest.mark.parametrize("whose", ["program", "folder"])
def test_what_belongs_to_somebody_else_is_not_run(compiler, whose, monkeypatch):
    program = compiler()
    strangers = program if whose == "program" else program.parent
    found = os.stat(strangers)
    real = type(program).lstat

    def lstat(self):
        if self != strangers:
            return real(self)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:10]))

    monkeypatch.setattr(type(program), "lstat", lstat)
    assert compiler() is None


def test_a_link_in_place_of_the_cache_or_the_program_is_not_followed(
    compiler, tmp_path
):
    program = compiler()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("#!/bin/sh\n")
    elsewhere.chmod(0o700)
    program.unlink()
    program.symlink_to(elsewhere)
    assert compiler() is None
    program.parent.rename(tmp_path / "moved")
    program.parent.symlink_to(tmp_path / "moved")
    assert compiler() is None


def test_a_program_that_does_not_start_gives_way_to_python(
    folder, tmp_path, monkeypatch
):
    broken = tmp_path / "runner"
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o700)
    monkeypatch.setattr(
        "keras_attention.export.runner.build_runner", lambda: broken
    )
    with Runner(folder) as runner:
        assert runner.runtime == "Python session"
        assert runner.run("spin", number(0))["y"] == 0

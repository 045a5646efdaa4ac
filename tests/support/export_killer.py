"""Kills exports at ten moments; started as a process of its own by a test.

Usage: python export_killer.py BASE_PATH

Prints a line of JSON for each moment: the versions that a server sees, and
whether every file of version 1 is as before. Each export runs in a fork of
this process, made before TensorFlow starts any thread.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys
import time

import keras

from keras_attention.export import export_for_serving


def export(base):
    inputs = keras.Input((300,))
    outputs = keras.layers.Dense(2000, name="y")(inputs)
    return export_for_serving(keras.Model(inputs, outputs), base)


def stop_at_event(name, count, stop):
    """Calls `stop` just before a file operation of this process."""
    seen = [0]

    def hook(event, arguments):
        if event == name and ".incomplete-" in str(arguments[0]):
            seen[0] += 1
            if seen[0] == count:
                stop()

    sys.addaudithook(hook)


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_kill():
    time.sleep(600)


def stage_has(pattern):
    """Whether the hidden folder of an export holds a path."""
    return lambda base: any(base.glob(f".incomplete-*{pattern}"))


# A moment is a condition that is watched from outside, or a file operation
# that the export never gets to.
MOMENTS = {
    "tracing": lambda base: True,
    "made the hidden folder": stage_has(""),
    "made the folder of weights": stage_has("/variables"),
    "began the weights": stage_has("/variables/*"),
    "wrote the weights": stage_has("/variables/variables.index"),
    "wrote the graph": stage_has("/saved_model.pb"),
    "first flush": ("os.chmod", 1),
    "later flush": ("os.chmod", 4),
    "about to appear": ("os.rename", 1),
    "just appeared": ("shutil.rmtree", 1),
}


def digest(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    content = [(str(file), file.read_bytes()) for file in files]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def run_and_kill(base, moment):
    watched = not isinstance(moment, tuple)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if watched:
            # However slow the watcher is, the export does not get away.
            stop_at_event("os.chmod", 1, wait_for_the_kill)
        else:
            stop_at_event(*moment, kill_self)
        os.write(writer, b"started")
        export(base)
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    if watched:
        while not moment(base) and not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return "killed" if os.WIFSIGNALED(status) else "finished"


def main(base):
    if os.fork() == 0:
        export(base)
        os._exit(0)
    os.wait()
    before = digest(base / "1")
    for name, moment in MOMENTS.items():
        for leftover in base.glob(".incomplete-*"):
            leftover.rename(base.parent / leftover.name)
        outcome = run_and_kill(base, moment)
        visible = sorted(p.name for p in base.iterdir() if p.name.isdecimal())
        untouched = digest(base / "1") == before
        print(json.dumps([name, outcome, visible, untouched]), flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

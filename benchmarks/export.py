"""Disk and memory of an export, beside Keras's own `model.export`.

Each export runs in a process of its own, on the same model. Disk is the
size of the version folder, memory the peak of the process less what it held
before the model was built, both as multiples of the parameters: the model
itself is one of the memory multiples. Linux only.

Usage: python benchmarks/export.py [--hidden-dim 512] [--num-layers 6]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import process_memory  # noqa: E402

from keras_attention import models  # noqa: E402
from keras_attention.export import export_for_serving  # noqa: E402

EXPORTS = {
    "export_for_serving": export_for_serving,
    "model.export": lambda model, path: model.export(path, verbose=False),
}


def warm_up(export):
    """Has TensorFlow load what any export needs, with a tiny model."""
    tiny = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    tiny.predict(np.ones((1, 2)), verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        export(tiny, folder)


def measure(name, hidden_dim, num_layers):
    export = EXPORTS[name]
    warm_up(export)
    before = process_memory.resident()
    model = models.text_classifier(
        30_000,
        2,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        num_heads=8,
        intermediate_dim=4 * hidden_dim,
    )
    parameters = 4 * model.count_params()
    process_memory.reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        export(model, folder)
        seconds = time.perf_counter() - start
        files = (p for p in pathlib.Path(folder).rglob("*") if p.is_file())
        disk = sum(file.stat().st_size for file in files)
    return {
        "parameters": parameters,
        "disk": disk / parameters,
        "memory": (process_memory.peak() - before) / parameters,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden-dim", type=int, default=512)
    parser.add_argument("--num-layers", type=int, default=6)
    parser.add_argument("--only", choices=EXPORTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sizes = (arguments.hidden_dim, arguments.num_layers)
    if arguments.only:
        print(json.dumps(measure(arguments.only, *sizes)))
        return
    print(f"{'':20}{'MB':>8}{'disk':>8}{'memory':>8}{'seconds':>9}")
    for name in EXPORTS:
        command = [sys.executable, __file__, "--only", name]
        command += ["--hidden-dim", str(arguments.hidden_dim)]
        command += ["--num-layers", str(arguments.num_layers)]
        output = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        row = json.loads(output.splitlines()[-1])
        print(
            f"{name:20}{row['parameters'] / 1e6:8.1f}{row['disk']:8.3f}"
            f"{row['memory']:8.2f}{row['seconds']:9.1f}"
        )


if __name__ == "__main__":
    main()

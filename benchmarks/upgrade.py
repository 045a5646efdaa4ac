"""Time and memory of a model of Keras's layers, before and after `upgrade`.

Each line is measured in a process of its own: the median time of a call, and
the peak of the process less what it held before, warmed up, the first call
on long inputs. Linux only.

Usage: python benchmarks/upgrade.py [--length 2048] [--batch-size 1]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_attention  # noqa: E402

CALLS = ("predict", "train")
MODELS = ("original", "upgraded")


def build(args):
    """Returns a compiled pre-norm encoder of Keras's own layers."""
    layers = keras.layers
    inputs = x = keras.Input((None, args.hidden_dim))
    for _ in range(args.num_layers):
        attend = layers.MultiHeadAttention(
            args.num_heads, args.hidden_dim // args.num_heads
        )
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, attend(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * args.hidden_dim, activation="relu")(y)
        x = layers.Add()([x, layers.Dense(args.hidden_dim)(y)])
    model = keras.Model(inputs, layers.GlobalAveragePooling1D()(x))
    model.compile("sgd", "mse")
    return model


def memory(field):
    """Reads a size from the status of this process, in bytes."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return 1024 * int(lines[field].split()[0])


def measure(args):
    """Returns the seconds of a call, and the memory that it takes."""
    model = build(args)
    if args.model == "upgraded":
        model = keras_attention.upgrade(model)

    def call(length):
        x = np.ones((args.batch_size, length, args.hidden_dim), "float32")
        if args.call == "predict":
            return model.predict_on_batch(x)
        return model.train_on_batch(x, x[:, 0])

    call(8)
    before = memory("VmRSS")
    call(args.length)
    times = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        call(args.length)
        times.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(times),
        "bytes": memory("VmHWM") - before,
    }


def run(args, call, model):
    """Returns what `measure` returns, from a process of its own."""
    options = [
        f"--{k.replace('_', '-')}={v}"
        for k, v in vars(args).items()
        if v is not None and k not in ("call", "model")
    ]
    process = subprocess.run(
        [
            sys.executable,
            __file__,
            *options,
            f"--call={call}",
            f"--model={model}",
        ],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (
        ("length", 2048),
        ("batch-size", 1),
        ("hidden-dim", 256),
        ("num-heads", 4),
        ("num-layers", 4),
        ("repeats", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--call", choices=CALLS, help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.call:
        print(json.dumps(measure(args)))
        return
    print("| call | model | time | memory |")
    print("|---|---|---|---|")
    for call in CALLS:
        for model in MODELS:
            found = run(args, call, model)
            print(
                f"| {call} | {model} | {1000 * found['seconds']:.0f} ms "
                f"| {found['bytes'] / 1e6:,.0f} MB |"
            )


if __name__ == "__main__":
    main()

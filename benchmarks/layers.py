"""A training step of two attention layers, beside Keras's own.

Functional models of two `MultiHeadAttention` layers each, in turn in one
process; medians. Prints a Markdown table.

Usage: python benchmarks/layers.py
"""

import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402

from keras_attention import layers  # noqa: E402

# Batch, length, width, heads.
SHAPES = [(128, 9, 128, 4), (32, 128, 256, 8), (8, 512, 256, 4)]
RUNS = 15


def make_model(layer_class, length, width, heads):
    """Returns a compiled model."""
    inputs = outputs = keras.Input((length, width))
    for _ in range(2):
        outputs = layer_class(heads, width // heads)(outputs, outputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=False)
    return model


def time_in_turn(models, batch):
    """Returns the median seconds of a step of each model."""
    seconds = [[] for _ in models]
    for model in models:
        model.train_on_batch(batch, batch)
    for _ in range(RUNS):
        for model, runs in zip(models, seconds, strict=True):
            start = time.perf_counter()
            model.train_on_batch(batch, batch)
            runs.append(time.perf_counter() - start)
    return map(statistics.median, seconds)


def main():
    print("| B x T x D | ours, ms | Keras, ms | Keras / ours |")
    print("|---|---:|---:|---:|")
    for size, length, width, heads in SHAPES:
        rng = np.random.default_rng(0)
        batch = rng.standard_normal((size, length, width), dtype="float32")
        classes = (layers.MultiHeadAttention, keras.layers.MultiHeadAttention)
        models = [make_model(c, length, width, heads) for c in classes]
        ours, theirs = time_in_turn(models, batch)
        print(
            f"| {size} x {length} x {width} | {1e3 * ours:.1f} "
            f"| {1e3 * theirs:.1f} | {theirs / ours:.2f} |"
        )


if __name__ == "__main__":
    main()

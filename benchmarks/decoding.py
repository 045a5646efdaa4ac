"""Time of one token: with a cache, without, and beside KerasHub.

Three tables. A token of `models.causal_language_model` at several contexts,
beside reading everything again with a model of Keras's own layers on the same
weights; the attention of one block beside `CachedMultiHeadAttention` of
KerasHub, if that is installed. Every loop is one graph, batch 1, float32;
each number is the least of several runs, which take turns.

Usage: python benchmarks/decoding.py [--contexts 64 256 1024 4096]
"""

import argparse
import importlib.util
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from keras_attention import layers, models  # noqa: E402
from keras_attention.models.compiled_loop import compiled_loop  # noqa: E402

WIDTH, HEADS, BLOCKS, VOCABULARY = 256, 4, 6, 8000
STEPS, REPEATS = 32, 15


def writer(max_length):
    return models.causal_language_model(
        VOCABULARY,
        hidden_dim=WIDTH,
        num_heads=HEADS,
        num_layers=BLOCKS,
        positions="learned",
        max_length=max_length,
        activation="relu",
        tie_embeddings=False,
        dropout=0.0,
    )


def keras_twin(model):
    """The same model of Keras's own layers, on the same weights."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, WIDTH)(ids)
    x = _Positions(model.get_layer("positions").sequence_length)(x)
    for _ in range(BLOCKS):
        attend = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        y = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + attend(y, y, use_causal_mask=True)
        y = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        y = keras.layers.Dense(4 * WIDTH, activation="relu")(y)
        x = x + keras.layers.Dense(WIDTH)(y)
    x = keras.layers.LayerNormalization(epsilon=1e-5)(x)
    twin = keras.Model(ids, keras.layers.Dense(VOCABULARY)(x))
    left = list(model.weights)
    for weight in twin.weights:
        places = (n for n, w in enumerate(left) if _alike(w, weight))
        weight.assign(left.pop(next(places)))
    return twin


class _Positions(keras.layers.Layer):
    def __init__(self, length):
        super().__init__()
        self.embeddings = self.add_weight(
            name="embeddings", shape=(length, WIDTH)
        )

    def call(self, inputs):
        return inputs + self.embeddings[: keras.ops.shape(inputs)[1]]


def _alike(ours, theirs):
    return ours.shape == theirs.shape and _kind(ours) == _kind(theirs)


def _kind(weight):
    """What a weight is, by the end of its path: layer apart from its block."""
    parts = weight.path.replace("_1/", "/").split("/")
    roles = ("query", "key", "value", "attention_output")
    role = next((p for p in parts if p in roles), "")
    return role, parts[-1]


def least(*functions):
    """Seconds of each function, the least of some runs in turns."""
    for function in functions:
        function()
    times = [[] for _ in functions]
    for _ in range(REPEATS):
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def token_times(model, twin, context):
    """Seconds a token at a context, with a cache and without."""
    settings = models.GenerationSettings()
    loop = compiled_loop(model, settings)
    numbers = settings.numbers()
    rng = np.random.default_rng(0)
    count = context - STEPS
    ids = rng.integers(1, VOCABULARY, (1, count)).astype("int32")
    size = np.int32(STEPS + 1)
    request, state = loop.start(
        numbers, ids, np.array([size]), np.zeros((1, 2), "int32"), size
    )

    steps = tf.constant(STEPS)

    def step_by_step():
        np.asarray(loop.advance(numbers, request, state, steps).tokens)

    whole = tf.constant(rng.integers(1, VOCABULARY, (1, context)), "int32")

    @tf.function(autograph=False)
    def last_logits(ids):
        return twin(ids, training=False)[:, -1]

    cached, anew = least(step_by_step, lambda: np.asarray(last_logits(whole)))
    return cached / STEPS, anew


def attention_loop(attend, context):
    """A graph of `STEPS` calls of cached attention, at the end of a cache."""
    shape = (1, 2, context, HEADS, WIDTH // HEADS)
    x = tf.random.stateless_normal((1, 1, WIDTH), (1, 2))

    @tf.function(autograph=False)
    def run():
        def body(index, x, cache):
            y, cache = attend(x, cache, index)
            return index + 1, y, cache

        first = tf.constant(context - STEPS)
        return tf.while_loop(
            lambda index, *_: index < context,
            body,
            (first, x, tf.zeros(shape)),
        )[1]

    return lambda: np.asarray(run())


def attention_times(context):
    """Seconds of one call: ours, KerasHub's."""
    from keras_hub.layers import CachedMultiHeadAttention

    size = WIDTH // HEADS
    ours = layers.MultiHeadAttention(HEADS, size)
    theirs = CachedMultiHeadAttention(HEADS, size)
    for layer in (ours, theirs):
        layer.build((1, None, WIDTH), (1, None, WIDTH))
    theirs.set_weights(ours.get_weights())
    places = tf.range(context)

    def attend_ours(x, cache, index):
        return ours(
            x, x, cache=cache, cache_update_index=index, use_causal_mask=True
        )

    def attend_theirs(x, cache, index):
        mask = (places <= index)[tf.newaxis, tf.newaxis]
        return theirs(
            x,
            x,
            attention_mask=mask,
            cache=cache,
            cache_update_index=index,
        )

    runs = [attention_loop(f, context) for f in (attend_ours, attend_theirs)]
    np.testing.assert_allclose(runs[0](), runs[1](), atol=1e-4)
    return [seconds / STEPS for seconds in least(*runs)]


def print_tokens(contexts):
    model = writer(max(contexts) + 1)
    twin = keras_twin(model)
    ids = np.arange(1, 40)[None]
    np.testing.assert_allclose(model(ids), twin(ids), atol=1e-4)
    print(f"{BLOCKS} blocks of width {WIDTH}, {HEADS} heads\n")
    print("| context | token, cached | x first | read anew, Keras | gain |")
    print("|--:|--:|--:|--:|--:|")
    first = None
    for context in contexts:
        cached, anew = token_times(model, twin, context)
        first = first or cached
        print(
            f"| {context} | {1e3 * cached:.2f} ms | {cached / first:.1f} "
            f"| {1e3 * anew:.1f} ms | {anew / cached:.0f} |"
        )


def print_attention(contexts):
    print("\n| context | attention, cached | KerasHub | ratio |")
    print("|--:|--:|--:|--:|")
    for context in contexts:
        ours, theirs = attention_times(context)
        print(
            f"| {context} | {1e3 * ours:.3f} ms | {1e3 * theirs:.3f} ms "
            f"| {theirs / ours:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--contexts", type=int, nargs="+", default=[64, 256, 1024, 4096]
    )
    contexts = parser.parse_args().contexts
    print_tokens(contexts)
    if importlib.util.find_spec("keras_hub"):
        print_attention(contexts)


if __name__ == "__main__":
    main()

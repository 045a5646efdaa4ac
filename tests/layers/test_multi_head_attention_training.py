"""Multi-head attention while it learns: dropout, losses, precision, XLA."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import fresh_process
from support.arrays import normal
from support.layer_contract import randomize, to_numpy
from support.peers import needs

from keras_attention.layers import MultiHeadAttention

B, T, S, D, DV = 2, 4, 5, 16, 8
QUERY, VALUE = normal((B, T, D), (B, S, DV))


def largest_difference(one, other):
    return np.abs(to_numpy(one) - to_numpy(other)).max()


# Dropout.


class Outer(keras.layers.Layer):
    """Holds the layer one level down and says nothing of training."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def build(self, shape):
        self.layer.build(shape, shape)

    def call(self, inputs):
        return self.layer(inputs, inputs)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    "options, drops",
    [({"training": True}, True), ({"training": False}, False), ({}, False)],
    ids=str,
)
def test_dropout_falls_in_training_alone(depth, options, drops):
    layer = outer = MultiHeadAttention(3, 6, dropout=0.5)
    for _ in range(depth):
        outer = Outer(outer) if outer is layer else keras.Sequential([outer])
    inputs = [QUERY] if depth else [QUERY, QUERY]
    expected = outer(*inputs, training=False)
    outputs = [outer(*inputs, **options) for _ in range(2)]
    for output in outputs:
        assert (largest_difference(output, expected) > 1e-3) == drops
    assert (largest_difference(*outputs) > 1e-3) == drops


def test_dropout_follows_fit_and_predict():
    query = keras.Input((T, D))
    layer = MultiHeadAttention(3, 6, dropout=0.5)
    model = keras.Model(query, layer(query, query))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    target = model.predict(QUERY, verbose=0)
    assert model.evaluate(QUERY, target, verbose=0) == 0
    history = model.fit(QUERY, target, epochs=2, verbose=0).history["loss"]
    assert min(history) > 1e-4 and history[0] != history[1]


def test_seeded_dropout_repeats():
    def run(seed):
        layer = MultiHeadAttention(3, 6, dropout=0.5, seed=seed)
        layer.build(QUERY.shape, VALUE.shape)
        randomize(layer)
        return [layer(QUERY, VALUE, training=True) for _ in range(2)]

    first, again, other = run(7), run(7), run(8)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert largest_difference(*first) > 1e-3
    assert largest_difference(first[0], other[0]) > 1e-3


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_dropout_keeps_the_mean(policy):
    layer = MultiHeadAttention(3, 6, dropout=0.4, seed=1, dtype=policy)
    query, value = (np.tile(x, (500, 1, 1)) for x in (QUERY, VALUE))
    dropped, scores = layer(
        query, value, training=True, return_attention_scores=True
    )
    kept, scores_kept = layer(query, value, return_attention_scores=True)
    np.testing.assert_array_equal(scores, scores_kept)
    dropped, kept = to_numpy(dropped), to_numpy(kept)
    spread = dropped.reshape(500, B, T, D).std(axis=0) / np.sqrt(500)
    gap = dropped.reshape(500, B, T, D).mean(axis=0) - kept[:B]
    assert spread.min() > 1e-4
    assert np.abs(gap / spread).max() < 5


# Losses and weights.


def twins(**options):
    needs(keras.layers.MultiHeadAttention, *options)
    ours = MultiHeadAttention(3, 6, **options)
    theirs = keras.layers.MultiHeadAttention(3, 6, **options)
    for layer in (ours, theirs):
        layer.build(QUERY.shape, VALUE.shape)
    randomize(theirs)
    ours.set_weights(theirs.get_weights())
    return ours, theirs


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_regularizer": "l2"},
        {"bias_regularizer": "l1"},
        {"activity_regularizer": "l2"},
        {
            "kernel_regularizer": keras.regularizers.L1L2(0.1, 0.2),
            "bias_regularizer": "l2",
            "activity_regularizer": "l1",
            "use_gate": True,
        },
    ],
    ids=["kernel", "bias", "activity", "all"],
)
def test_losses_are_counted_as_keras_counts_them(options):
    ours, theirs = twins(**options)
    for layer in (ours, theirs):
        layer(QUERY, VALUE)
    assert len(ours.losses) == len(theirs.losses) > 0
    np.testing.assert_allclose(
        sorted(map(float, ours.losses)),
        sorted(map(float, theirs.losses)),
        rtol=1e-5,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_keras(causal):
    ours, theirs = twins(use_gate=True)
    mask = np.arange(S) < [[4], [3]]
    gradients = []
    for layer in (ours, theirs):
        inputs = [tf.constant(QUERY), tf.constant(VALUE)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(*inputs, value_mask=mask, use_causal_mask=causal)
            loss = ops.sum(output**2)
        weights = [w.value for w in layer.trainable_weights]
        gradients.append(tape.gradient(loss, [*inputs, *weights]))
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_constraints_hold_after_a_step():
    query, value = keras.Input((T, D)), keras.Input((S, DV))
    layer = MultiHeadAttention(
        3,
        6,
        use_gate=True,
        kernel_constraint="non_neg",
        bias_constraint=keras.constraints.MaxNorm(0.01, axis=None),
        bias_initializer="ones",
    )
    model = keras.Model([query, value], layer(query, value))
    model.compile("sgd", "mse")
    assert any(to_numpy(w).min() < 0 for w in layer.weights)
    model.fit([QUERY, VALUE], np.zeros((B, T, D)), verbose=0)
    for weight in layer.weights:
        if weight.name == "kernel":
            assert to_numpy(weight).min() == 0
        else:
            assert np.linalg.norm(to_numpy(weight)) <= 0.0101


def test_each_projection_draws_values_of_its_own():
    layer = MultiHeadAttention(
        4,
        4,
        use_gate=True,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        bias_initializer="normal",
    )
    layer.build((B, T, D), (B, S, D))
    for name in ("kernel", "bias"):
        drawn = [
            to_numpy(w).reshape(-1) for w in layer.weights if w.name == name
        ]
        assert len({array.tobytes() for array in drawn}) == 5


def test_a_function_will_do_as_initializer():
    layer = MultiHeadAttention(
        2, 3, kernel_initializer=lambda shape, dtype: ops.full(shape, 0.5)
    )
    layer.build((B, T, D), (B, S, D))
    assert np.all(to_numpy(layer.query_dense.kernel) == 0.5)


def test_a_layer_that_does_not_train_has_no_trainable_weights():
    layer = MultiHeadAttention(2, 3, trainable=False)
    layer.build((B, T, D), (B, S, D))
    assert layer.trainable_weights == []
    assert len(layer.non_trainable_weights) == 8


# Precision and compilation.


def classifier(policy, **options):
    ids = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(9, D, mask_zero=True, dtype=policy)(ids)
    x = MultiHeadAttention(3, 6, dropout=0.2, dtype=policy, **options)(x, x)
    # A mean over the mask would divide by zero in a row of padding alone.
    pooled = ops.mean(x, axis=1)
    return keras.Model(ids, keras.layers.Dense(2, dtype="float32")(pooled))


def sentences(count):
    rng = np.random.default_rng(2)
    ids = rng.integers(1, 9, (count, 6))
    ids[np.arange(6) >= rng.integers(0, 7, count)[:, None]] = 0
    assert (ids == 0).all(axis=1).any()
    return ids, (ids == 3).any(axis=1).astype("int32")


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_learns_in_half_precision_with_padding_and_empty_rows(policy):
    model = classifier(policy)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    ids, labels = sentences(64)
    history = model.fit(ids, labels, batch_size=16, epochs=8, verbose=0)
    losses = history.history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.7 * losses[0]
    assert all(np.isfinite(to_numpy(w)).all() for w in model.weights)


def test_trains_compiled_with_a_smaller_last_batch():
    model = classifier("float32", num_key_value_heads=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=True)
    ids, labels = sentences(22)
    before = [to_numpy(w) for w in model.trainable_weights]
    history = model.fit(ids, labels, batch_size=16, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    moved = [
        np.abs(to_numpy(w) - b).max()
        for w, b in zip(model.trainable_weights, before, strict=True)
    ]
    assert sum(m > 1e-6 for m in moved) >= len(moved) - 1  # bias of the key


REPLICAS = """
import sys
import keras
import numpy as np
import tensorflow as tf
from keras_attention.layers import MultiHeadAttention

cpu = tf.config.list_physical_devices("CPU")[0]
half = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [half, half])
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(8, 5, 16)).astype("float32")
with strategy.scope():
    inputs = keras.Input((5, 16))
    layer = MultiHeadAttention(3, 6, dropout=0.2, num_key_value_heads=1)
    model = keras.Model(inputs, layer(inputs, inputs))
    model.compile("sgd", "mse")
    before = layer.get_weights()
    count = len(model.variables)
    model.fit(x, x, batch_size=4, epochs=2, verbose=0)
    assert len(model.variables) == count
    model.save(sys.argv[1])
moved = [np.abs(a - b).max() for a, b in zip(before, layer.get_weights())]
assert sum(m > 1e-6 for m in moved) >= 7, moved
expected = model.predict(x, verbose=0)
loaded = keras.saving.load_model(sys.argv[1])
np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-5)
print("equal")
"""


def test_trains_on_two_replicas_and_comes_back_without_them(tmp_path):
    printed = fresh_process.run(REPLICAS, tmp_path / "model.keras")
    assert printed.split()[-1] == "equal"

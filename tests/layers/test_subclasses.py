"""Subclasses attend in their own way by one public hook, and no other."""

import operator

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import fresh_process
from support.arrays import coins, normal
from support.layer_contract import randomize, rebuilt, to_numpy

from keras_attention import layers, reference
from keras_attention.export import export_for_serving
from keras_attention.layers import EncoderBlock, MultiHeadAttention
from keras_attention.ops import causal_mask


@keras.saving.register_keras_serializable("test_subclasses")
class LocalitySelfAttention(layers.MultiHeadAttention):
    """No patch attends to itself, and the temperature is learned.

    From "Vision Transformer for Small-Size Datasets", arXiv:2112.13492.
    """

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.temperature = self.add_weight(
            name="temperature",
            initializer=keras.initializers.Constant(self.key_dim**0.5),
        )

    def compute_attention(self, query, key, value, mask, **options):
        size = ops.shape(query)[-2]
        others = ops.logical_not(ops.eye(size, dtype="bool"))
        return super().compute_attention(
            query,
            key,
            value,
            mask.restricted_to(others),
            **{**options, "scale": 1 / self.temperature},
        )


@keras.saving.register_keras_serializable("test_subclasses")
class SigmoidAttention(layers.MultiHeadAttention):
    """Weighs each key by itself, without the kernels of the package."""

    def compute_attention(self, query, key, value, mask, **options):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
        weights = ops.sigmoid(scores / self.key_dim**0.5)
        visible = mask.dense(query.shape[-2], key.shape[-2])
        if visible is not None:
            weights = ops.where(visible, weights, 0.0)
        return ops.matmul(weights, value), weights


@keras.saving.register_keras_serializable("test_subclasses")
class SharpAttention(layers.Attention):
    """Dot products, cubed."""

    def compute_attention(self, query, key, value, mask, **options):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) ** 3
        visible = mask.dense(query.shape[-2], key.shape[-2])
        if visible is not None:
            scores = ops.where(visible, scores, np.finfo("float32").min)
        weights = ops.softmax(scores)
        return ops.matmul(weights, value), weights


@keras.saving.register_keras_serializable("test_subclasses")
class AlwaysCausal(layers.ScaledDotProductAttention):
    """Causal, however it is called, at twice the scale."""

    def compute_attention(self, query, key, value, mask, **options):
        past = causal_mask(query.shape[-2], key.shape[-2])
        scale = 2 * query.shape[-1] ** -0.5
        return super().compute_attention(
            query,
            key,
            value,
            mask.restricted_to(past),
            **{**options, "scale": scale},
        )


B, T, S, D, N, H = 3, 5, 7, 12, 2, 4
X, VALUE = normal((B, T, D), (B, S, D))
TOKENS = coins(B, T)
OTHERS = ~np.eye(T, dtype=bool)


def locality(**options):
    layer = LocalitySelfAttention(N, H, **options)
    layer.build((B, T, D), (B, T, D))
    randomize(layer)
    layer.temperature.assign(1.7)
    return layer


def expected_locality(layer, x, tokens=TOKENS, temperature=1.7):
    weights = [w.numpy() for w in layer.weights if w is not layer.temperature]
    return reference.multi_head_attention(
        x,
        x,
        weights=weights,
        scale=1 / temperature,
        attention_mask=OTHERS,
        query_mask=tokens,
        value_mask=tokens,
    )


@pytest.mark.parametrize("flash", [False, True, None])
def test_locality_self_attention_on_both_kernels(flash):
    layer = locality(flash_attention=flash)
    output = layer(X, X, query_mask=TOKENS, value_mask=TOKENS)
    expected, _ = expected_locality(layer, X)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert layer.attention_path == ("blockwise" if flash else "dense")


def test_scores_of_a_subclass_are_those_of_its_hook():
    layer = locality()
    _, scores = layer(
        X,
        X,
        query_mask=TOKENS,
        value_mask=TOKENS,
        return_attention_scores=True,
    )
    _, expected = expected_locality(layer, X)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_array_equal(np.diagonal(scores, axis1=2, axis2=3), 0)


@pytest.mark.parametrize("flash", [False, True])
def test_the_weight_of_a_subclass_has_its_gradient(flash):
    layer = locality(flash_attention=flash)

    def loss(temperature):
        output, _ = expected_locality(layer, X, temperature=temperature)
        return np.sum(output**2)

    with tf.GradientTape() as tape:
        output = layer(X, X, query_mask=TOKENS, value_mask=TOKENS)
        total = tf.reduce_sum(output**2)
    slope = tape.gradient(total, layer.temperature.value)
    expected = (loss(1.7 + 1e-5) - loss(1.7 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, expected, rtol=1e-3)


@pytest.mark.parametrize("flash", [False, True])
def test_dropout_of_a_subclass_obeys_training(flash):
    layer = locality(flash_attention=flash, dropout=0.5, seed=3)
    first, again = (layer(X, X, training=False) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(layer(X, X, training=True) - first).max() > 0.01


def test_subclasses_come_back_from_files_and_configurations(tmp_path):
    block = EncoderBlock(None, 6, attention=locality(name="local"))
    inputs = keras.Input((T, D))
    model = keras.Model(inputs, block(inputs))
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(back(X), model(X))
    inner = back.layers[-1].attention
    assert type(inner) is LocalitySelfAttention
    assert float(inner.temperature) == pytest.approx(1.7)
    assert rebuilt(block).attention.name == "local"


def test_an_exported_subclass_needs_no_package(tmp_path):
    inputs = keras.Input((T, D), name="x")
    model = keras.Model(inputs, locality()(inputs, inputs))
    export_for_serving(model, tmp_path / "served")
    np.save(tmp_path / "x.npy", X.astype("float32"))
    served = fresh_process.run(
        "import sys, numpy as np, tensorflow as tf\n"
        "folder = sys.argv[1]\n"
        "served = tf.saved_model.load(f'{folder}/served/1')\n"
        "run = served.signatures['serving_default']\n"
        "(found,) = run(x=tf.constant(np.load(f'{folder}/x.npy'))).values()\n"
        "np.save(f'{folder}/found.npy', found)\n"
        "print('keras_attention' in sys.modules)\n",
        str(tmp_path),
    )
    assert served.split()[-1] == "False"
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, model(X), atol=1e-6)


def test_a_hook_without_our_kernels_gets_clean_heads_and_masks():
    layer = SigmoidAttention(N, H)
    layer.build((B, T, D), (B, S, D))
    randomize(layer)
    seen = coins(B, S)
    broken = np.where(seen[..., None], VALUE, np.nan)
    output = layer(X, broken, value_mask=seen)
    wq, bq, wk, bk, wv, bv, wo, bo = layer.get_weights()
    query = np.einsum("btd,dnh->bnth", X, wq) + bq[:, None]
    key = np.einsum("bsd,dnh->bnsh", VALUE, wk) + bk[:, None]
    value = np.einsum("bsd,dnh->bnsh", VALUE, wv) + bv[:, None]
    scores = 1 / (1 + np.exp(-query @ key.swapaxes(2, 3) / H**0.5))
    context = (scores * seen[:, None, None]) @ value
    expected = np.einsum("bnth,nhd->btd", context, wo) + bo
    np.testing.assert_allclose(output, expected, atol=1e-5)
    assert layer.attention_path is None


def test_a_hook_of_its_own_decodes_from_a_cache_with_garbage():
    layer = SigmoidAttention(N, H)
    whole = layer(X, X, use_causal_mask=True)
    cache = layer.make_cache(B, S)
    cache = keras.ops.full(cache.shape, np.nan)
    steps = []
    for step in range(T):
        x = X[:, step : step + 1]
        found, cache = layer(x, x, cache=cache, cache_update_index=step)
        steps.append(to_numpy(found))
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, atol=1e-5)


def test_list_layers_have_the_hook():
    layer = SharpAttention()
    context, scores = layer(
        [X, VALUE], mask=[None, coins(B, S)], return_attention_scores=True
    )
    raw = np.where(coins(B, S)[:, None], (X @ VALUE.swapaxes(1, 2)) ** 3, -1e30)
    expected = np.exp(raw - raw.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(context, expected @ VALUE, atol=1e-4)
    assert type(rebuilt(layer)) is SharpAttention


@pytest.mark.parametrize("flash", [False, True])
def test_the_hook_of_scaled_dot_product_attention(flash):
    layer = AlwaysCausal(flash_attention=flash)
    query, key, value = normal((B, T, H), (B, S, H), (B, S, D))
    expected, _ = reference.dot_product_attention(
        query, key, value, use_causal_mask=True, scale=2 / H**0.5
    )
    np.testing.assert_allclose(layer(query, key, value), expected, atol=1e-5)


REFUSED = [
    ("MultiHeadAttention", "_compute_attention"),
    ("MultiHeadAttention", "_compute_attention_mask"),
    ("MultiHeadAttention", "_masked_softmax"),
    ("GroupedQueryAttention", "_compute_attention"),
    ("Attention", "_calculate_scores"),
    ("Attention", "_apply_scores"),
    ("AdditiveAttention", "_calculate_scores"),
]


@pytest.mark.parametrize(("parent", "method"), REFUSED)
def test_what_nothing_would_call_is_refused(parent, method):
    with pytest.raises(TypeError, match=f"`{method}`.*`compute_attention"):
        type("Mine", (getattr(layers, parent),), {method: lambda self: None})


def test_other_private_names_are_the_users_own():
    members = {"_mine": lambda self: 5, "_compute": 3, "build": lambda: 1}
    mine = type("Mine", (MultiHeadAttention,), members)
    assert mine(N, H)._mine() == 5


PRIVATE = ["num_heads", "key_dim", "value_dim", "dropout", "use_bias"]


@pytest.mark.parametrize("name", PRIVATE)
def test_private_attributes_of_keras_name_the_public_one(name):
    layer = MultiHeadAttention(N, H)
    with pytest.raises(AttributeError, match=f"public here: `{name}`"):
        getattr(layer, f"_{name}")


def test_an_attribute_that_nobody_has_is_missing_as_ever():
    layer = MultiHeadAttention(N, H)
    with pytest.raises(AttributeError, match="no attribute '_nothing'$"):
        operator.attrgetter("_nothing")(layer)
    assert not hasattr(layer, "nothing")
    with pytest.raises(AttributeError, match="`scale` to `compute_attention`"):
        operator.attrgetter("_inverse_sqrt_key_dim")(layer)

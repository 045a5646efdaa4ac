"""The kernel of linear memory gives what the dense one gives."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.arrays import coins, normal
from support.layer_contract import to_numpy

from keras_attention.layers import MultiHeadAttention
from keras_attention.ops import (
    attention,
    blockwise,
    blockwise_geometry,
    dot_product_attention,
    processor,
)

# Longer than a block and no multiple of it; lengths that differ.
B, N, K, T, S, H, HV = 2, 4, 2, 301, 287, 8, 6
RNG = np.random.default_rng(3)
PADDING_T, PADDING_S = RNG.random((B, T)) < 0.8, RNG.random((B, S)) < 0.8
HIDDEN_ROW = coins(B, T, S)
HIDDEN_ROW[0, 7] = False
BIAS = normal((N, T, S)).astype("float32")[None]
BIAS_HIDING = BIAS.copy()
BIAS_HIDING[:, :, :, 5] = -np.inf

OPTIONS = {
    "plain": {},
    "causal": {"use_causal_mask": True},
    "window": {"sliding_window": 40},
    "causal_window": {"use_causal_mask": True, "sliding_window": 40},
    "padding": {"query_mask": PADDING_T, "key_mask": PADDING_S},
    "all_padding": {"key_mask": PADDING_S & np.array([[False], [True]])},
    "mask_rank_2": {"attention_mask": coins(T, S)},
    "hidden_row": {"attention_mask": HIDDEN_ROW},
    "mask_per_head": {"attention_mask": coins(B, N, T, S)},
    "mask_of_keys": {"attention_mask": PADDING_S[:, None, None, :]},
    "bias": {"attention_bias": BIAS},
    "hiding_bias": {"attention_bias": BIAS_HIDING, "use_causal_mask": True},
    "scale": {"scale": 0.7, "use_causal_mask": True},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def _inputs(heads=N, dtype="float32"):
    shapes = (B, N, T, H), (B, heads, S, H), (B, heads, S, HV)
    return [tf.cast(x, dtype) for x in normal(*shapes)]


def _with_gradients(inputs, flash_attention, **options):
    weight = tf.cast(normal((B, N, T, HV)), "float32")
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = dot_product_attention(
            *inputs, flash_attention=flash_attention, **options
        )
        loss = tf.reduce_sum(tf.cast(context, "float32") * weight)
    return [to_numpy(x) for x in (context, *tape.gradient(loss, inputs))]


def _assert_same(inputs, tolerance, **options):
    ours = _with_gradients(inputs, True, **options)
    dense = _with_gradients(inputs, False, **options)
    for factor, one, other in zip((1, 10, 10, 10), ours, dense, strict=True):
        assert np.isfinite(one).all()
        bound = factor * tolerance
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound)


@each_option
@pytest.mark.parametrize("heads", [N, K, 1])
def test_equals_dense_with_gradients(options, heads):
    _assert_same(_inputs(heads), 1e-5, **options)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)]
)
def test_half_types(dtype, tolerance):
    _assert_same(_inputs(dtype=dtype), tolerance, **OPTIONS["padding"])


@each_option
def test_lengths_known_only_at_run_time(options, monkeypatch):
    """The choice is made in the graph, on either side of the threshold."""
    unknown = [
        tf.TensorSpec((None, n, None, w)) for n, w in ((N, H), (K, H), (K, HV))
    ]
    inputs = _inputs(K)
    expected = dot_product_attention(*inputs, flash_attention=False, **options)
    for threshold in (1, 10**9):
        borders = dict.fromkeys(attention.DENSE_SCORES, threshold)
        monkeypatch.setattr(attention, "DENSE_SCORES", borders)

        @tf.function(input_signature=unknown)
        def run(query, key, value):
            return dot_product_attention(query, key, value, **options)

        np.testing.assert_allclose(run(*inputs), expected, rtol=1e-5, atol=1e-5)


def test_a_row_that_sees_nothing_is_zero():
    context = dot_product_attention(
        *_inputs(), attention_mask=HIDDEN_ROW, flash_attention=True
    )
    assert not to_numpy(context)[0, :, 7].any()
    assert to_numpy(context)[1].any()


def test_a_row_that_sees_nothing_is_zero_beside_nan():
    """A NaN that others see does not reach it."""
    query, key, value = map(np.array, _inputs())
    value[0, :, 3] = np.nan
    context = dot_product_attention(
        query, key, value, attention_mask=HIDDEN_ROW, flash_attention=True
    )
    assert not to_numpy(context)[0, :, 7].any()
    assert np.isnan(to_numpy(context)[0]).any()


def test_nan_at_padding_stays_there():
    inputs = _inputs()
    clean = _with_gradients(inputs, True, key_mask=PADDING_S)
    poison = tf.where(PADDING_S[:, None, :, None], inputs[1], np.nan)
    dirty = _with_gradients(
        [inputs[0], poison, inputs[2]], True, key_mask=PADDING_S
    )
    for one, other in zip(dirty, clean, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_dropout_repeats_keeps_the_mean_and_has_its_gradient():
    inputs = _inputs()
    options = {"dropout": 0.4, "seed": 5, "flash_attention": True}
    once = to_numpy(dot_product_attention(*inputs, **options))
    again = to_numpy(dot_product_attention(*inputs, **options))
    np.testing.assert_array_equal(once, again)
    whole = to_numpy(dot_product_attention(*inputs))
    assert np.abs(once - whole).max() > 0.05
    ones = [inputs[0], inputs[1], tf.ones_like(inputs[2])]
    drawn = to_numpy(dot_product_attention(*ones, **options))
    assert abs(drawn.mean() - 1) < 0.01
    # The context is linear in the value: its gradient times the value is it,
    # if both passes drop the same weights.
    with tf.GradientTape() as tape:
        tape.watch(inputs[2])
        total = tf.reduce_sum(dot_product_attention(*inputs, **options) ** 2)
    gradient = tape.gradient(total, inputs[2])
    np.testing.assert_allclose(
        tf.reduce_sum(gradient * inputs[2]), 2 * total, rtol=1e-4
    )


def test_no_tensor_of_queries_by_keys_is_made():
    length = 2048
    shapes = (1, 1, length, H), (1, 1, length, H), (1, 1, length, HV)
    specs = [tf.TensorSpec(shape) for shape in shapes]

    @tf.function(input_signature=specs)
    def train(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            context = dot_product_attention(
                query,
                key,
                value,
                use_causal_mask=True,
                key_mask=tf.ones((1, length), "bool"),
            )
        return tape.gradient(context, [query, key, value])

    graph = train.get_concrete_function().graph
    graphs = [graph, *_inner(graph, set())]
    assert len(graphs) > 1
    sizes = [
        tensor.shape.num_elements() or 0
        for inner in graphs
        for operation in inner.get_operations()
        for tensor in operation.outputs
        if tensor.shape.is_fully_defined()
    ]
    assert max(sizes) < length * length


def _inner(graph, seen):
    for name in graph._functions:
        function = graph._get_function(name)
        inner = getattr(function, "graph", None)
        if inner is not None and name not in seen:
            seen.add(name)
            yield inner
            yield from _inner(inner, seen)


def test_trains_under_xla():
    inputs = keras.Input((T, 8))
    output = MultiHeadAttention(2, 4, flash_attention=True)(inputs, inputs)
    model = keras.Model(inputs, output)
    model.compile("sgd", "mse", jit_compile=True)
    x = normal((3, T, 8)).astype("float32")
    losses = [model.train_on_batch(x, x) for _ in range(3)]
    assert np.isfinite(losses).all() and losses[2] < losses[0]


def test_scores_cannot_be_had():
    with pytest.raises(ValueError, match="flash_attention=True"):
        dot_product_attention(
            *_inputs(), flash_attention=True, return_attention_scores=True
        )


def test_the_choice_is_by_length():
    choose = attention.choose_kernel
    assert choose(query_length=64, key_length=64) == "dense"
    assert choose(query_length=2048, key_length=2048) == "blockwise"
    assert choose(query_length=None, key_length=64) == "by_length"
    assert choose(False, query_length=2048, key_length=2048) == "dense"
    layer, x = MultiHeadAttention(2, 4), np.ones((1, 800, 8), "float32")
    layer(x, x, use_causal_mask=True)
    assert layer.attention_path == "blockwise"
    layer(x, x, return_attention_scores=True)
    assert layer.attention_path == "dense"


def test_whole_matrices_are_longer_worth_it_where_onednn_multiplies(
    monkeypatch,
):
    longest = {}
    for setting in ("0", "1"):
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", setting)
        processor.multiplies_with_onednn.cache_clear()
        for by_position in (False, True):
            longest[setting, by_position] = max(
                length
                for length in range(100, 2000, 100)
                if attention.choose_kernel(
                    query_length=length,
                    key_length=length,
                    by_position=by_position,
                )
                == "dense"
            )
    processor.multiplies_with_onednn.cache_clear()
    assert longest == {
        ("0", False): 500,
        ("0", True): 300,
        ("1", False): 1000,
        ("1", True): 500,
    }


def test_large_scores_are_shifted():
    """Past the range in which exponentials are safe as they are."""
    query, key, value = _inputs()
    _assert_same([query * 60, key, value], 1e-4, use_causal_mask=True)


@pytest.mark.parametrize(
    "with_onednn, window, groups, rows",
    [
        # Keys of 64 numbers; 319 by 64 of them are for one core, 1,087 are not.
        (False, 256, 1, 64),
        (False, 1024, 1, 512),
        # Queries of four heads are laid side by side.
        (False, 256, 4, 256),
        (False, 16, 4, 64),
        (True, 256, 1, 128),
        (True, 1024, 4, 128),
    ],
)
def test_rows_of_a_block_follow_the_window(
    with_onednn, window, groups, rows, monkeypatch
):
    settings = {
        "_WITH_ONEDNN": with_onednn,
        "SCORES": 2**20,
        "LEAST_ROWS": 128,
        "MOST_ROWS": 512,
    }
    for name, value in settings.items():
        monkeypatch.setattr(blockwise_geometry, name, value)
    geometry = blockwise_geometry.Geometry(
        4096, 4096, True, window, 0, groups, width=64
    )
    assert geometry.rows == rows
    assert geometry.blocks * geometry.rows >= 4096


@pytest.mark.parametrize("scores", [2**12, 2**16])
def test_any_size_of_a_step(scores, monkeypatch):
    """Several blocks, of one head or of more."""
    blockwise._as_graph.cache_clear()
    monkeypatch.setattr(blockwise_geometry, "SCORES", scores)
    monkeypatch.setattr(blockwise_geometry, "LEAST_ROWS", 16)
    monkeypatch.setattr(blockwise_geometry, "ONE_CORE", 0)
    monkeypatch.setattr(blockwise_geometry, "TILE", 48)
    names = "causal", "padding", "mask_per_head", "hiding_bias", "causal_window"
    for name in names:
        _assert_same(_inputs(K), 1e-5, **OPTIONS[name])
    blockwise._as_graph.cache_clear()

"""With a cache, step by step, the numbers are those of one pass."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import randomize, to_numpy

from keras_attention.export.runner import RunError, Runner
from keras_attention.layers import MultiHeadAttention

B, T, S, D, DV, N, H = 2, 19, 5, 12, 8, 4, 6
X, VALUE = normal((B, T, D), (B, S, DV))
ATOL = {"float32": 1e-5, "bfloat16": 2e-2}

OPTIONS = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2, "use_gate": True},
    "one key head, rotary": {"num_key_value_heads": 1, "position": "rotary"},
    "alibi": {"position": "alibi"},
    "qk_norm": {"qk_norm": True},
    "window": {"sliding_window": 5},
    "window of one": {"sliding_window": 1},
    "window beyond the end": {"sliding_window": T + 1},
    "all": {
        "sliding_window": 5,
        "position": "rotary",
        "qk_norm": True,
        "num_key_value_heads": 2,
    },
    "window, alibi": {"sliding_window": 4, "position": "alibi"},
}


def built(value_shape=(B, T, D), **options):
    layer = MultiHeadAttention(N, H, **options)
    layer.build((B, T, D), value_shape)
    randomize(layer)
    return layer


def chunks(prefill):
    """The calls of a generation: the prompt, then one step at a time."""
    return [slice(0, prefill), *(slice(i, i + 1) for i in range(prefill, T))]


def by_row(index):
    return np.full(B, index)


@pytest.mark.parametrize(
    "dtype, index",
    [
        ("float32", int),
        ("float32", by_row),
        ("bfloat16", ops.convert_to_tensor),
    ],
)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_one_pass_at_each_index(options, dtype, index):
    layer = built(dtype=dtype, **options)
    expected, scores = layer(
        X, X, use_causal_mask=True, return_attention_scores=True
    )
    for prefill in (1, 3, 17):
        cache = layer.make_cache(B, T)
        for part in chunks(prefill):
            output, found, cache = layer(
                X[:, part],
                X[:, part],
                use_causal_mask=True,
                cache=cache,
                cache_update_index=index(part.start),
                return_attention_scores=True,
            )
            assert output.dtype == cache.dtype == dtype
            np.testing.assert_allclose(
                to_numpy(output), to_numpy(expected[:, part]), atol=ATOL[dtype]
            )
            # The last key of a window is the newest.
            start = part.stop - found.shape[-1] if cache.shape[2] < T else 0
            stop = min(start + found.shape[-1], T)
            np.testing.assert_allclose(
                to_numpy(found)[..., max(-start, 0) : stop - start],
                to_numpy(scores)[:, :, part, max(start, 0) : stop],
                atol=ATOL[dtype],
            )


@pytest.mark.parametrize("size, steps", [(5, 1), (6, 4), (9, 7), (T, 3)])
def test_a_ring_of_any_size_takes_steps_of_any_length(size, steps):
    layer = built(sliding_window=5, position="rotary")
    for causal in (False, True):
        cache = ops.zeros((B, 2, size, N, H))
        for start in range(0, T, steps):
            step = X[:, start : start + steps]
            output, cache = layer(
                step,
                step,
                use_causal_mask=causal,
                cache=cache,
                cache_update_index=start,
            )
            # A query sees no key of a later call.
            seen = X[:, : start + steps]
            expected = layer(seen, seen, use_causal_mask=causal)[:, start:]
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_cache_for_a_window_holds_no_more_than_the_window():
    assert built(sliding_window=5).make_cache(3, 100).shape == (3, 2, 5, N, H)
    assert built(sliding_window=5).make_cache(3, 4).shape == (3, 2, 4, N, H)
    layer = built(num_key_value_heads=2, dtype="mixed_bfloat16")
    assert layer.make_cache(3, 100).shape == (3, 2, 100, 2, H)
    assert layer.make_cache(3, 100).dtype == "bfloat16"


@pytest.mark.parametrize("garbage", [7.0, np.nan, np.inf])
@pytest.mark.parametrize("window", [None, 5])
def test_slots_not_yet_written_are_never_seen(garbage, window):
    layer = built(sliding_window=window)
    expected = layer(X[:, :3], X[:, :3])
    cache = ops.full((B, 2, 9, N, H), garbage)
    output, _ = layer(X[:, :3], X[:, :3], cache=cache, cache_update_index=0)
    np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("flash_attention", [True, False])
def test_slots_not_yet_written_reach_no_gradient(flash_attention):
    layer = built(flash_attention=flash_attention)
    query = tf.Variable(X[:, :3])
    gradients = []
    for slots in (0.0, np.nan):
        cache = ops.full((B, 2, 9, N, H), slots)
        with tf.GradientTape() as tape:
            output, _ = layer(
                query,
                X[:, :3],
                cache=cache,
                cache_update_index=0,
                training=True,
            )
            loss = ops.sum(output**2)
        gradients.append(tape.gradient(loss, query))
    assert np.isfinite(gradients[0]).all()
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("flash_attention", [True, False])
def test_either_kernel_serves_a_long_prompt(flash_attention):
    layer = built(flash_attention=flash_attention, num_key_value_heads=2)
    x = normal((B, 300, D))
    expected = layer(x, x, use_causal_mask=True)
    cache = layer.make_cache(B, 310)
    for part in (slice(0, 200), slice(200, 300)):
        output, cache = layer(
            x[:, part],
            x[:, part],
            use_causal_mask=True,
            cache=cache,
            cache_update_index=part.start,
        )
        np.testing.assert_allclose(output, expected[:, part], atol=1e-5)


@pytest.mark.parametrize("position", [None, "rotary", "alibi"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_ragged_prompts_get_what_each_gets_alone(side, window, position):
    layer = built(sliding_window=window, position=position)
    lengths, width, end = np.array([3, 6]), 6, 10
    padding = np.ones((B, end), bool)
    if side == "left":
        padding[:, :width] = np.arange(width) >= width - lengths[:, None]
    else:
        padding[:, :width] = np.arange(width) < lengths[:, None]
    prompt = np.full((B, width, D), np.nan, "float32")
    for row, length in enumerate(lengths):
        prompt[row, padding[row, :width]] = X[row, :length]
    options = {"value_mask": padding} if side == "left" else {}
    output, cache = layer(
        prompt,
        prompt,
        query_mask=padding[:, :width],
        use_causal_mask=True,
        cache=layer.make_cache(B, end),
        cache_update_index=0,
        **options,
    )
    found = [list(to_numpy(output)[r][padding[r, :width]]) for r in range(B)]
    for step in range(end - width):
        token = X[np.arange(B), lengths + step][:, None]
        output, cache = layer(
            token,
            token,
            cache=cache,
            cache_update_index=(
                width + step if side == "left" else lengths + step
            ),
            **options,
        )
        for row in range(B):
            found[row].append(output[row, 0])
    for row, length in enumerate(lengths):
        alone = X[row : row + 1, : length + end - width]
        expected = layer(alone, alone, use_causal_mask=True)
        np.testing.assert_allclose(found[row], expected[0], atol=1e-5)


@pytest.mark.parametrize("window", [None, 3])
def test_masks_of_the_calls_own_tokens_fit_a_ring_of_their_length(window):
    layer = built(sliding_window=window)
    padding = np.arange(9) < np.array([[9], [7]])
    x = np.where(padding[..., None], X[:, :9], np.nan)
    expected = layer(
        x, x, query_mask=padding, value_mask=padding, use_causal_mask=True
    )
    cache = layer.make_cache(B, 9)
    for start in (0, 3, 6):
        part = slice(start, start + 3)
        output, cache = layer(
            x[:, part],
            x[:, part],
            query_mask=padding[:, part],
            value_mask=padding[:, part],
            use_causal_mask=True,
            cache=cache,
            cache_update_index=start,
        )
        tokens = padding[:, part]
        np.testing.assert_allclose(
            to_numpy(output)[tokens],
            to_numpy(expected)[:, part][tokens],
            atol=1e-5,
        )


@pytest.mark.parametrize("window", [None, 4])
def test_masks_and_biases_are_about_positions(window):
    layer = built(sliding_window=window)
    full, bias = coins(B, T, T, true=0.7), normal((B, N, T, T))
    keys = coins(B, T, true=0.8, seed=5)
    expected = layer(
        X,
        X,
        attention_mask=full,
        attention_bias=bias,
        value_mask=keys,
        use_causal_mask=True,
    )
    cache = layer.make_cache(B, T)
    for part in chunks(3):
        output, cache = layer(
            X[:, part],
            X[:, part],
            attention_mask=full[:, part],
            attention_bias=bias[:, :, part],
            value_mask=keys,
            use_causal_mask=True,
            cache=cache,
            cache_update_index=by_row(part.start) if window else part.start,
        )
        np.testing.assert_allclose(output, expected[:, part], atol=1e-5)


def test_the_mask_that_keras_carries_is_about_the_new_tokens():
    ids = np.array([[3, 7, 2, 0], [5, 1, 4, 6]])
    x = keras.layers.Embedding(8, D, mask_zero=True)(ids)
    layer = built()
    expected = layer(x, x, use_causal_mask=True)
    output, _ = layer(
        x,
        x,
        use_causal_mask=True,
        cache=layer.make_cache(B, 9),
        cache_update_index=2,
        attention_mask=np.arange(9)[None] >= 2,
    )
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_array_equal(output._keras_mask, ids > 0)


def test_keys_that_a_mask_hides_from_all_queries_are_not_seen():
    layer = built(num_key_value_heads=2)
    x = np.where(np.arange(T)[:, None] == 2, np.nan, X)
    mask = np.broadcast_to(np.arange(T) != 2, (B, N, T, T))
    expected = layer(x, x, attention_mask=mask, use_causal_mask=True)
    assert np.isfinite(to_numpy(expected)[:, 3:]).all()
    output, _ = layer(
        x,
        x,
        attention_mask=mask,
        use_causal_mask=True,
        cache=layer.make_cache(B, T),
        cache_update_index=0,
    )
    np.testing.assert_allclose(output[:, 3:], expected[:, 3:], atol=1e-5)


def test_cross_attention_uses_a_cache_as_it_is():
    layer = built(VALUE.shape, num_key_value_heads=2)
    mask = np.arange(S) < np.array([[3], [5]])
    value = np.where(mask[..., None], VALUE, np.nan)
    cache = layer.compute_cache(value, value_mask=mask)
    assert cache.shape == (B, 2, S, 2, H)
    assert np.isfinite(to_numpy(cache)).all()
    expected = layer(X, value, value_mask=mask)
    for ignored in (None, value):
        output, same = layer(X, ignored, value_mask=mask, cache=cache)
        np.testing.assert_allclose(output, expected, atol=1e-6)
        np.testing.assert_array_equal(same, cache)


def test_one_graph_serves_all_indices_and_lengths():
    layer = built(position="rotary")

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, D)),
            tf.TensorSpec((None, 2, None, N, H)),
            tf.TensorSpec((), "int32"),
        ]
    )
    def step(x, cache, index):
        return layer(
            x, x, use_causal_mask=True, cache=cache, cache_update_index=index
        )

    expected = layer(X, X, use_causal_mask=True)
    cache = layer.make_cache(B, T)
    for part in chunks(17):
        output, cache = step(X[:, part], cache, part.start)
        np.testing.assert_allclose(output, expected[:, part], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="over the end"):
        step(X[:, :2], cache, T - 1)


@pytest.mark.parametrize("index", [np.int32(4), np.array([4, 2], "int32")])
@pytest.mark.parametrize("window", [None, 4])
def test_a_step_compiled_by_xla_gives_the_same(index, window):
    layer = built(sliding_window=window)
    cache = normal((B, 2, 7, N, H))

    def step(index):
        return layer(X[:, :1], X[:, :1], cache=cache, cache_update_index=index)

    compiled = tf.function(step, jit_compile=True, autograph=False)
    for one, other in zip(
        compiled(tf.constant(index)), step(index), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_a_step_makes_no_second_cache(window):
    layer = built(sliding_window=window)
    shape = (1, 2, 7, N, H)

    @tf.function(autograph=False)
    def step(x, cache, index):
        return layer(x, x, cache=cache, cache_update_index=index)

    graph = step.get_concrete_function(
        tf.TensorSpec((1, 1, D)),
        tf.TensorSpec(shape),
        tf.TensorSpec((), "int32"),
    ).graph
    makes = {
        operation.type
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape == shape
    }
    # The second may write in place, the others only pass on what they get.
    assert makes <= {
        "Placeholder",
        "TensorStridedSliceUpdate",
        "EnsureShape",
        "Identity",
        "StopGradient",
    }
    assert "TensorStridedSliceUpdate" in makes


def test_gradients_reach_keys_through_the_cache():
    layer = built()
    with tf.GradientTape() as tape:
        first, cache = layer(
            X[:, :3],
            X[:, :3],
            cache=layer.make_cache(B, 4),
            cache_update_index=0,
        )
        last, _ = layer(X[:, 3:4], X[:, 3:4], cache=cache, cache_update_index=3)
        loss = ops.sum(last**2)
    cached = tape.gradient(loss, layer.value_dense.kernel)
    with tf.GradientTape() as tape:
        loss = ops.sum(
            layer(X[:, :4], X[:, :4], use_causal_mask=True)[:, 3] ** 2
        )
    expected = tape.gradient(loss, layer.value_dense.kernel)
    np.testing.assert_allclose(cached, expected, rtol=1e-4, atol=1e-4)


def test_symbolic_equals_eager():
    layer = built(sliding_window=5)
    layer_contract.assert_symbolic_equals_eager(
        Cached(layer), X[:, :3], to_numpy(layer.make_cache(B, 9)).astype("f")
    )


class Cached(keras.layers.Layer):
    """Takes a cache as an input, for the contract of symbolic shapes."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def build(self, *shapes):
        """Finds its layer built."""

    def call(self, x, cache):
        return self.layer(
            x,
            x,
            cache=cache,
            cache_update_index=2,
            return_attention_scores=True,
        )


def test_an_overrun_is_refused_outside_python_too(tmp_path):
    layer = built()
    module = tf.Module()
    module.held = [v.value for v in layer.variables]

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 1, D), name="x"),
            tf.TensorSpec((None, 2, 4, N, H), name="cache"),
            tf.TensorSpec((), "int32", name="index"),
        ]
    )
    def serve(x, cache, index):
        output, _ = layer(x, x, cache=cache, cache_update_index=index)
        return {"output": output}

    tf.saved_model.save(
        module, str(tmp_path), signatures={"serving_default": serve}
    )
    inputs = {
        "x": X[:, :1],
        "cache": to_numpy(layer.make_cache(B, 4)).astype("f"),
    }
    with Runner(tmp_path) as runner:
        for index in (0, 3):
            output = runner.run(
                "serving_default", {**inputs, "index": np.int32(index)}
            )
            assert np.isfinite(output["output"]).all()
        for index in (4, -1):
            with pytest.raises(RunError, match="over the end"):
                runner.run(
                    "serving_default", {**inputs, "index": np.int32(index)}
                )


CACHE = np.zeros((B, 2, 4, N, H), "float32")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"cache": CACHE, "cache_update_index": 2}, "over the end"),
        ({"cache": CACHE, "cache_update_index": np.array([0, 2])}, "over the"),
        ({"cache": CACHE, "cache_update_index": -1}, "over the end"),
        ({"cache": CACHE, "cache_update_index": np.zeros(3, int)}, "each row"),
        ({"cache_update_index": 2}, "there is none"),
        ({"cache": CACHE[:1], "cache_update_index": 0}, r"\(B, 2, S, K, H\)"),
        ({"cache": CACHE[..., :5], "cache_update_index": 0}, r"4, 5\)"),
        (
            {"cache": CACHE, "cache_update_index": 0, "key": X[:, :2]},
            "same new positions",
        ),
        (
            {
                "cache": CACHE,
                "cache_update_index": 0,
                "value_mask": np.ones((B, 5), bool),
            },
            "value_mask",
        ),
    ],
)
def test_refuses_what_does_not_fit(options, words):
    layer = built()
    value = options.pop("key", X[:, :3])
    with pytest.raises(ValueError, match=words):
        layer(X[:, :3], value, **options)


def test_refuses_caches_that_the_layer_cannot_have():
    with pytest.raises(ValueError, match="value_dim=5"):
        built(value_dim=5)(X, X, cache=CACHE, cache_update_index=0)
    with pytest.raises(ValueError, match="position='rotary'"):
        built(position="rotary")(X, X, cache=CACHE)
    with pytest.raises(TypeError, match="must be an integer"):
        built()(X[:, :1], X[:, :1], cache=CACHE, cache_update_index=0.5)
    with pytest.raises(ValueError, match="no weights yet"):
        MultiHeadAttention(2, 3).compute_cache(X)
    wide = MultiHeadAttention(N, H)
    wide.build((B, 3, 4, D), (B, 3, 4, D))
    with pytest.raises(ValueError, match="one axis of positions"):
        x = X[:, :12].reshape((B, 3, 4, D))
        wide(x, x, cache=CACHE, cache_update_index=0)
    ring = built(sliding_window=2)
    with pytest.raises(ValueError, match="must reach to the last position"):
        ring(
            X[:, :3],
            X[:, :3],
            cache=CACHE,
            cache_update_index=4,
            value_mask=np.ones((B, 6), bool),
        )

"""Grouped-query attention is Keras's, and multi-head attention inside."""

import inspect
import json

import keras
import numpy as np
import pytest
from support import layer_contract
from support.arrays import coins, normal
from support.layer_contract import randomize, to_numpy

from keras_attention import layers
from keras_attention.layers import GroupedQueryAttention, MultiHeadAttention
from keras_attention.models import attention_scores_model

B, T, S, D, DK, H, N, K = 2, 4, 5, 16, 12, 3, 6, 2
QUERY, VALUE, KEY = normal((B, T, D), (B, S, D), (B, S, DK))

# Earlier releases of Keras have fewer arguments.
KNOWN = inspect.signature(keras.layers.GroupQueryAttention).parameters
OPTIONS = {
    name: options
    for name, options in {
        "plain": {},
        "no bias": {"use_bias": False},
        "gate and dropout": {"use_gate": True, "dropout": 0.4},
        "window": {"sliding_window": 2},
    }.items()
    if set(options) <= set(KNOWN)
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def model_of(layer_class, **options):
    """A model of a grouped layer, as Keras saves it."""
    inputs = [keras.Input((None, D)), keras.Input((None, D))]
    layer = layer_class(H, N, K, name="grouped", **options)
    model = keras.Model(inputs, layer(*inputs))
    randomize(model)
    return model


@pytest.mark.parametrize("causal", [False, True])
@every_option
def test_equals_keras(options, causal):
    ours = GroupedQueryAttention(H, N, K, **options)
    theirs = keras.layers.GroupQueryAttention(H, N, K, **options)
    for layer in (ours, theirs):
        layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(theirs)
    shapes = [w.shape for w in theirs.get_weights()]
    assert [w.shape for w in ours.get_weights()] == shapes
    ours.set_weights(theirs.get_weights())
    call = {
        "attention_mask": coins(B, T, S) | (np.arange(S) == 0),
        "value_mask": np.arange(S) < [[4], [5]],
        "use_causal_mask": causal,
    }
    for scores in (False, True):
        results, expected = (
            keras.tree.flatten(
                layer(QUERY, VALUE, KEY, return_attention_scores=scores, **call)
            )
            for layer in (ours, theirs)
        )
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@every_option
def test_weights_files_go_both_ways(tmp_path, options):
    path = tmp_path / "model.weights.h5"
    for writer, reader in [
        (keras.layers.GroupQueryAttention, GroupedQueryAttention),
        (GroupedQueryAttention, keras.layers.GroupQueryAttention),
        (GroupedQueryAttention, GroupedQueryAttention),
    ]:
        written, read = model_of(writer, **options), model_of(reader, **options)
        read.set_weights([w + 1.0 for w in read.get_weights()])
        written.save_weights(path)
        read.load_weights(path)
        for one, other in zip(
            read.get_weights(), written.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)


@every_option
def test_takes_the_configuration_of_keras(options):
    theirs = keras.layers.GroupQueryAttention(
        H, N, K, kernel_initializer="he_normal", seed=3, **options
    )
    config = json.loads(json.dumps(theirs.get_config()))
    ours = GroupedQueryAttention.from_config(config).get_config()
    assert {name: ours[name] for name in config} == config


def test_is_found_under_both_names():
    assert layers.GroupQueryAttention is GroupedQueryAttention
    layer = GroupedQueryAttention(H, N, K)
    assert isinstance(layer, MultiHeadAttention)
    assert (layer.head_dim, layer.num_query_heads) == (H, N)
    assert (layer.num_key_value_heads, layer.num_repeats) == (K, N // K)


@pytest.mark.parametrize("size, heads", [(3, 8), (2, 2)])
def test_each_row_as_if_alone(size, heads):
    x = normal((2, size, D))
    layer = GroupedQueryAttention(H, heads, 1)
    lengths = [size - 1, size]
    padding = np.arange(size) < np.array(lengths)[:, None]
    full = coins(2, size, size) | np.eye(size, dtype=bool)
    batch = layer(
        x, x, query_mask=padding, value_mask=padding, attention_mask=full
    )
    for row, length in enumerate(lengths):
        part = x[row : row + 1, :length]
        alone = layer(part, part, attention_mask=full[row, :length, :length])
        np.testing.assert_allclose(batch[row, :length], alone[0], atol=1e-5)


def test_symbolic_equals_eager():
    layer_contract.assert_symbolic_equals_eager(
        GroupedQueryAttention(H, N, K, dtype="mixed_bfloat16"),
        QUERY,
        VALUE,
        KEY,
        return_attention_scores=True,
    )


def test_a_cache_gives_what_the_whole_sequence_gives():
    layer = GroupedQueryAttention(H, N, K)
    whole = layer(QUERY, QUERY, use_causal_mask=True)
    cache = layer.make_cache(batch_size=B, max_length=T)
    assert cache.shape == (B, 2, T, K, H)
    for step in range(T):
        token = QUERY[:, step : step + 1]
        output, cache = layer(
            token, token, cache=cache, cache_update_index=step
        )
        np.testing.assert_allclose(output[:, 0], whole[:, step], atol=1e-5)


def test_int8_and_lora():
    model = model_of(GroupedQueryAttention)
    before = to_numpy(model([QUERY, VALUE]))
    model.quantize("int8")
    layer = model.get_layer("grouped")
    for name in ("query", "key", "value", "output"):
        dense = getattr(layer, f"{name}_dense")
        assert dense.quantization_mode == "int8"
    quantized = to_numpy(model([QUERY, VALUE]))
    assert 0 < np.abs(quantized - before).max() < 0.1
    layer.query_dense.enable_lora(2)
    np.testing.assert_array_equal(model([QUERY, VALUE]), quantized)


def test_scores_out_of_a_model():
    model = attention_scores_model(model_of(GroupedQueryAttention))
    _, scores = model([QUERY, VALUE])
    assert scores["grouped"].shape == (B, N, T, S)


def test_widths_that_differ_have_no_output_shape_but_can_be_called():
    value = VALUE[..., :DK]
    layer = GroupedQueryAttention(H, N, K)
    with pytest.raises(ValueError, match="must be equal.*num_key_value_heads"):
        layer.compute_output_shape(QUERY.shape, value.shape)
    assert layer.compute_output_shape((B, T, D), (B, S, None)) == (B, T, D)
    assert layer(QUERY, value).shape == (B, T, D)
    theirs = keras.layers.GroupQueryAttention(H, N, K)
    theirs.build(QUERY.shape, value.shape)
    theirs.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        layer(QUERY, value), theirs(QUERY, value), atol=1e-5
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0, N, K), "head_dim=0"),
        ((H, 6, 4), "num_query_heads=6, num_key_value_heads=4"),
        ((H, N, None), "num_key_value_heads=None"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupedQueryAttention(*arguments)

"""The commonest mistakes are told of in words that name the way out."""

import re

import keras
import numpy as np
import pytest
from support.arrays import normal

from keras_attention import layers, models
from keras_attention.layers import MultiHeadAttention

B, T, S, D = 2, 3, 5, 8
X, MEMORY = normal((B, T, D), (B, S, D))
MADE = {
    "MultiHeadAttention": (lambda: MultiHeadAttention(2, 4), "layer(x, x)"),
    "GroupedQueryAttention": (
        lambda: layers.GroupedQueryAttention(4, 2, 1),
        "layer(x, x)",
    ),
    "ScaledDotProductAttention": (
        layers.ScaledDotProductAttention,
        "layer(x, x, x)",
    ),
    "MultiplicativeAttention": (
        layers.MultiplicativeAttention,
        "layer(x, x, x)",
    ),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("options", [{}, {"training": True}])
def test_one_tensor_is_told_how_to_attend_to_itself(name, options):
    make, call = MADE[name]
    for x in (X, keras.Input((T, D))):
        with pytest.raises(TypeError, match=re.escape(call)):
            make()(x, **options)


def test_a_call_by_name_and_a_call_on_a_cache_are_none():
    layer = MultiHeadAttention(2, 4)
    expected = layer(X, X)
    np.testing.assert_array_equal(layer(X, value=X), expected)
    cache = layer.compute_cache(X)
    output, _ = layer(X, None, cache=cache)
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_the_order_of_pytorch_is_told_of_where_lengths_differ():
    with pytest.raises(ValueError, match="`\\(query, value, key\\)`.*PyTorch"):
        MultiHeadAttention(2, 4)(X, MEMORY, X)


def test_batches_that_differ_are_told_without_empty_brackets():
    with pytest.raises(ValueError, match="at the batch axis. Received"):
        MultiHeadAttention(2, 4)(X, MEMORY[:1].repeat(3, axis=0))


@pytest.mark.parametrize("value", ["4", 4.0, None, True])
def test_a_value_is_shown_as_it_was_written(value):
    with pytest.raises(ValueError, match=re.escape(f"num_heads={value!r}")):
        MultiHeadAttention(value, 4)


def test_positions_that_lack_name_the_argument_of_a_model():
    model = models.encoder(
        9,
        hidden_dim=8,
        num_layers=1,
        num_heads=2,
        max_length=4,
        positions="learned",
    )
    with pytest.raises(ValueError, match="`max_length` of a model"):
        model(np.ones((1, 5), "int32"))


def test_a_padding_mask_as_attention_mask_is_told_its_place():
    with pytest.raises(ValueError, match="padding mask.*`value_mask`"):
        MultiHeadAttention(2, 4)(
            X, MEMORY, attention_mask=np.ones((B, S), bool)
        )

"""Constructor arguments: what is taken, and what is refused by name."""

import json

import keras
import numpy as np
import pytest

from keras_attention.layers import MultiHeadAttention, arguments


@pytest.mark.parametrize("value", [1, 8, np.int32(3), np.int64(7)])
def test_positive_integers(value):
    taken = arguments.positive_integer("units", value)
    assert taken == value and type(taken) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, "3", None, True, (2,)])
def test_what_is_no_positive_integer(value):
    with pytest.raises(ValueError) as error:
        arguments.positive_integer("units", value)
    assert "`units`" in str(error.value)
    assert f"units={value!r}" in str(error.value)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25), np.int64(0)])
def test_rates(value):
    taken = arguments.rate("dropout", value)
    assert taken == value and type(taken) is float


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_what_is_no_rate(value):
    with pytest.raises(ValueError) as error:
        arguments.rate("dropout", value)
    assert f"dropout={value!r}" in str(error.value)


@pytest.mark.parametrize(
    "value, taken",
    [(None, None), (8, (8,)), ([3, 5], (3, 5)), ((np.int64(4),), (4,))],
    ids=str,
)
def test_feature_shapes(value, taken):
    assert arguments.feature_shape("output_shape", value) == taken
    json.dumps(arguments.feature_shape("output_shape", value))


@pytest.mark.parametrize("value", [0, -3, 2.5, "8", (3, -1), (3, None), True])
def test_what_is_no_feature_shape(value):
    with pytest.raises(ValueError) as error:
        arguments.feature_shape("output_shape", value)
    assert f"output_shape={value}" in str(error.value)


@pytest.mark.parametrize(
    "value, taken",
    [(None, None), (-2, (-2,)), ([1, 3], (1, 3)), (np.int64(1), (1,))],
    ids=str,
)
def test_axes(value, taken):
    assert arguments.axes("attention_axes", value) == taken
    json.dumps(arguments.axes("attention_axes", value))


@pytest.mark.parametrize("value", [1.5, "1", (), (1, 2.5), {1}, (None,)])
def test_what_are_no_axes(value):
    with pytest.raises(ValueError) as error:
        arguments.axes("attention_axes", value)
    assert f"attention_axes={value}" in str(error.value)


def test_head_groups():
    assert arguments.head_groups(6, None) == 6
    assert [arguments.head_groups(6, k) for k in (1, 2, 3, 6)] == [1, 2, 3, 6]


@pytest.mark.parametrize("groups", [4, 12, 0, -2, 1.5])
def test_groups_that_do_not_divide(groups):
    with pytest.raises(ValueError) as error:
        arguments.head_groups(6, groups)
    assert f"num_key_value_heads={groups}" in str(error.value)
    if isinstance(groups, int) and groups > 0:
        assert "num_heads=6" in str(error.value)


def test_one_of():
    assert arguments.one_of("mode", "b", ("a", "b")) == "b"
    with pytest.raises(ValueError, match="'a', 'b'. Received: mode='c'"):
        arguments.one_of("mode", "c", ("a", "b"))


def test_activations():
    assert arguments.activation("activation", "gelu") is keras.activations.gelu
    with pytest.raises(ValueError, match="Received: activation='no such'"):
        arguments.activation("activation", "no such")


def test_separate_initializers():
    given = keras.initializers.GlorotUniform()
    separate = arguments.separate(given)
    assert type(separate) is type(given)
    drawn = [np.asarray(i((3, 4))) for i in (given, given, separate)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 0.01
    assert arguments.separate(np.zeros) is np.zeros


def test_serialized_dense_is_ready_for_json():
    layer = MultiHeadAttention(
        2,
        3,
        kernel_initializer=keras.initializers.HeNormal(seed=1),
        bias_constraint="non_neg",
    )
    config = arguments.serialize_dense(layer, keras.regularizers.L1(0.5))
    assert json.loads(json.dumps(config)) == config
    assert config["kernel_initializer"]["class_name"] == "HeNormal"
    assert config["bias_constraint"]["class_name"] == "NonNeg"
    assert config["activity_regularizer"]["config"] == {"l1": 0.5}
    assert config["kernel_regularizer"] is None
    kernel = arguments.serialize_kernel(layer)
    assert kernel == {k: v for k, v in config.items() if k in kernel}
    assert len(kernel) == 3


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_heads", 0),
        ("num_heads", 2.5),
        ("key_dim", -4),
        ("value_dim", 0),
        ("dropout", 1.5),
        ("output_shape", "8"),
        ("attention_axes", "1"),
        ("sliding_window", 0),
        ("flash_attention", "auto"),
        ("num_key_value_heads", 3),
        ("num_key_value_heads", 0),
    ],
)
def test_multi_head_attention_names_the_bad_argument(name, value):
    options = {"num_heads": 4, "key_dim": 6, name: value}
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(**options)
    received = (f"{name}={value}", f"{name}={value!r}")
    assert any(text in str(error.value) for text in received)


@pytest.mark.parametrize("late", ["query", "value", "key"])
def test_multi_head_attention_names_a_width_it_was_not_built_for(late):
    layer = MultiHeadAttention(4, 6)
    widths = {"query": 8, "value": 9, "key": 10}
    layer.build(*((2, 3, width) for width in widths.values()))
    inputs = {k: np.zeros((2, 3, w), "float32") for k, w in widths.items()}
    inputs[late] = inputs[late][..., 1:]
    with pytest.raises(ValueError, match=f"to have value {widths[late]}"):
        layer(**inputs)


@pytest.mark.parametrize("axes", [0, 3, -1, (1, 1), (2, -2)])
def test_multi_head_attention_names_axes_that_the_inputs_lack(axes):
    layer = MultiHeadAttention(4, 6, attention_axes=axes)
    with pytest.raises(ValueError, match="attention_axes="):
        layer.build((2, 3, 5, 8), (2, 3, 5, 8))


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 8), (2, 8)),
        ((2, 3, 8), (2, 3, 5, 8)),
        ((2, 3, 8), (2, 5, 8), (2, 6, 8)),
        ((2, 3, 8), (4, 5, 8)),
        ((2, 3, 8), (1, 5, 8)),
        ((2, 3, 8), (2, 5, 8), (3, 5, 8)),
    ],
)
def test_multi_head_attention_names_shapes_that_do_not_fit(shapes):
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(4, 6)(*(np.zeros(s, "float32") for s in shapes))
    if len(shapes[0]) > 2:
        assert str(shapes[-1]) in str(error.value)


def test_multi_head_attention_names_free_axes_that_do_not_fit():
    layer = MultiHeadAttention(4, 6, attention_axes=2)
    with pytest.raises(
        ValueError, match=r"not attended over, \(1,\).*\(2, 4, 5, 8\)"
    ):
        layer.build((2, 3, 5, 8), (2, 4, 5, 8))


def test_multi_head_attention_leaves_unknown_sizes_alone():
    layer = MultiHeadAttention(4, 6)
    shapes = (None, 3, 8), (None, None, 8), (2, 5, 7)
    assert layer.compute_output_shape(*shapes) == (None, 3, 8)

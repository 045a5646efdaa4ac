import keras
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import FeedForward
from keras_attention.ops import masks

B, T, D, F, E = 2, 3, 8, 10, 6


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_equals_the_reference(inputs, policy, activation):
    function = keras.activations.get(activation)
    if activation == "gelu":

        def function(x):
            return keras.activations.gelu(x, approximate=False)

    layer = FeedForward(F, activation=function, dtype=policy)
    dtype = layer.compute_dtype
    layer.build(inputs.shape)
    layer_contract.randomize(layer, scale=0.2)
    inputs = ops.cast(inputs, dtype)
    expected = reference.feed_forward(
        to_numpy(inputs),
        layer.get_weights(),
        activation=getattr(reference, activation),
    )
    layer_contract.assert_close(layer(inputs), expected, dtype)


@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_exist_once_built(use_bias):
    layer = FeedForward(
        F, output_dim=E, use_bias=use_bias, dtype="mixed_float16"
    )
    layer.build((None, T, D))
    biases = F + E if use_bias else 0
    assert layer.count_params() == D * F + F * E + biases
    assert {w.dtype for w in layer.weights} == {"float32"}


def test_kernels_start_apart():
    layer = FeedForward(D)
    layer.build((None, T, D))
    kernels = layer.intermediate_dense.kernel, layer.output_dense.kernel
    assert (to_numpy(kernels[0]) != to_numpy(kernels[1])).any()


@pytest.mark.parametrize("output_dim", [None, E])
def test_symbolic_equals_eager(inputs, output_dim):
    layer = FeedForward(F, output_dim=output_dim, dtype="mixed_bfloat16")
    layer_contract.assert_symbolic_equals_eager(layer, inputs)


def test_dropout_acts_in_training_alone(inputs):
    layer = FeedForward(F, dropout=0.5, seed=7)
    plain = to_numpy(layer(inputs))
    np.testing.assert_array_equal(
        to_numpy(layer(inputs, training=False)), plain
    )
    dropped = to_numpy(layer(inputs, training=True))
    assert (dropped == 0).any()
    np.testing.assert_allclose(dropped[dropped != 0], 2 * plain[dropped != 0])


def test_mask_is_passed_on(inputs):
    tensor = ops.convert_to_tensor(inputs)
    mask = ops.convert_to_tensor([[True, True, False], [True] * 3])
    masks.set_implicit_mask(tensor, mask)
    assert masks.get_implicit_mask(FeedForward(F)(tensor)) is mask


def test_config():
    arguments = {
        "intermediate_dim": F,
        "activation": "silu",
        "dropout": 0.3,
        "output_dim": E,
        "use_bias": False,
        "seed": 5,
        "name": "ffn",
    }
    layer = FeedForward(
        **arguments,
        kernel_initializer=keras.initializers.HeNormal(seed=2),
        bias_initializer="ones",
        kernel_regularizer=keras.regularizers.L2(0.1),
        bias_regularizer="l1",
        activity_regularizer="L1L2",
        kernel_constraint=keras.constraints.MaxNorm(2.0),
        bias_constraint="non_neg",
        dtype="mixed_bfloat16",
    )
    layer_contract.assert_round_trip(layer, **arguments)
    back = layer_contract.rebuilt(layer)
    assert back.kernel_initializer.seed == 2
    assert isinstance(back.bias_initializer, keras.initializers.Ones)
    assert isinstance(back.kernel_regularizer, keras.regularizers.L2)
    assert isinstance(back.bias_regularizer, keras.regularizers.L1)
    assert isinstance(back.activity_regularizer, keras.regularizers.L1L2)
    assert back.kernel_constraint.max_value == 2.0
    assert isinstance(back.bias_constraint, keras.constraints.NonNeg)
    assert back.dtype_policy == layer.dtype_policy


def test_arguments_reach_the_weights(inputs):
    layer = FeedForward(
        F,
        bias_initializer="ones",
        kernel_regularizer="l2",
        bias_regularizer="l1",
        activity_regularizer="l2",
        kernel_constraint="max_norm",
        bias_constraint="non_neg",
    )
    layer(inputs)
    assert len(layer.losses) == 5
    for dense in (layer.intermediate_dense, layer.output_dense):
        assert to_numpy(dense.bias).all()
        assert isinstance(dense.kernel.constraint, keras.constraints.MaxNorm)
        assert isinstance(dense.bias.constraint, keras.constraints.NonNeg)


def test_rebuilt_equals(inputs):
    layer = FeedForward(F, activation="gelu", output_dim=E)
    layer_contract.assert_same_after_rebuild(layer, inputs)


@pytest.mark.parametrize(
    "arguments",
    [
        {"intermediate_dim": 0},
        {"activation": "rellu"},
        {"dropout": 1.5},
        {"output_dim": -2},
    ],
)
def test_bad_arguments(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"`{name}`.*{name}='?{value}"):
        FeedForward(**{"intermediate_dim": F, **arguments})

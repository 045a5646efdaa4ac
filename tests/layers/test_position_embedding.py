import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention.layers import PositionEmbedding
from keras_attention.ops import masks

B, T, D, LENGTH = 2, 5, 7, 9


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("start_index", [0, 3, LENGTH - T])
def test_adds_the_rows_of_its_positions(inputs, policy, start_index):
    layer = PositionEmbedding(LENGTH, dtype=policy)
    layer.build(inputs.shape)
    layer_contract.randomize(layer)
    rows = to_numpy(layer.embeddings)[start_index : start_index + T]
    marked = layer(inputs, start_index=start_index)
    layer_contract.assert_close(marked, inputs + rows, layer.compute_dtype)
    tensor = ops.convert_to_tensor(start_index)
    np.testing.assert_array_equal(
        to_numpy(layer(inputs, start_index=tensor)), to_numpy(marked)
    )


def test_weights_exist_once_built():
    layer = PositionEmbedding(LENGTH, dtype="mixed_float16")
    layer.build((None, None, D))
    assert [w.shape for w in layer.weights] == [(LENGTH, D)]
    assert layer.embeddings.dtype == "float32"


def test_integers_are_marked():
    layer = PositionEmbedding(LENGTH, dtype="mixed_float16")
    marked = layer(np.full((B, T, D), 3))
    expected = np.broadcast_to(to_numpy(layer.embeddings)[:T] + 3, (B, T, D))
    layer_contract.assert_close(marked, expected, "float16")


def test_another_width_than_it_was_built_for(inputs):
    layer = PositionEmbedding(LENGTH)
    layer(inputs)
    for x in (inputs[..., 1:], keras.KerasTensor((B, T, D - 1))):
        with pytest.raises(ValueError, match="to have value 7"):
            layer(x)


def test_symbolic_equals_eager(inputs):
    layer = PositionEmbedding(LENGTH, dtype="mixed_bfloat16")
    layer_contract.assert_symbolic_equals_eager(layer, inputs)


def test_mask_is_passed_on(inputs):
    tensor = ops.convert_to_tensor(inputs)
    mask = ops.convert_to_tensor(np.arange(T) < [[3], [5]])
    masks.set_implicit_mask(tensor, mask)
    for start_index in (0, ops.convert_to_tensor(2)):
        marked = PositionEmbedding(LENGTH)(tensor, start_index=start_index)
        assert masks.get_implicit_mask(marked) is mask


def test_config(inputs):
    layer = PositionEmbedding(
        LENGTH,
        initializer=keras.initializers.RandomNormal(seed=2),
        name="positions",
        dtype="mixed_float16",
    )
    layer_contract.assert_round_trip(
        layer, sequence_length=LENGTH, name="positions"
    )
    assert layer_contract.rebuilt(layer).initializer.seed == 2
    layer_contract.assert_same_after_rebuild(layer, inputs)


@pytest.mark.parametrize("length, start_index", [(10, 0), (5, 5), (1, -1)])
def test_beyond_the_last_position(length, start_index):
    layer = PositionEmbedding(LENGTH)
    layer.build((B, T, D))
    tensors = [ops.ones((B, length, D)), keras.KerasTensor((B, length, D))]
    for tensor in tensors:
        with pytest.raises(ValueError, match=f"start_index={start_index}"):
            layer(tensor, start_index=start_index)


def test_beyond_the_last_position_in_a_running_graph():
    layer = PositionEmbedding(LENGTH)
    layer.build((B, None, D))
    spec = tf.TensorSpec((None, None, D)), tf.TensorSpec((), "int32")
    function = tf.function(
        lambda x, start: layer(x, start_index=start), input_signature=spec
    )
    function(tf.ones((B, 5, D)), 4)
    for length, start in [(10, 0), (5, 5), (1, -1)]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected"):
            function(tf.ones((B, length, D)), start)


@pytest.mark.parametrize("value", [0, -1, 2.5, None])
def test_bad_sequence_length(value):
    with pytest.raises(ValueError, match=f"sequence_length={value}"):
        PositionEmbedding(value)


def test_each_sequence_starts_at_its_own_position(inputs):
    layer = PositionEmbedding(LENGTH)
    together = to_numpy(layer(inputs, start_index=ops.array([4, 1])))
    for row, start in enumerate([4, 1]):
        alone = to_numpy(layer(inputs[row : row + 1], start_index=start))
        np.testing.assert_array_equal(together[row], alone[0])


@pytest.mark.parametrize("rank", [3, 4])
def test_adds_the_rows_of_given_positions(inputs, rank):
    layer = PositionEmbedding(LENGTH)
    layer.build(inputs.shape)
    layer_contract.randomize(layer)
    table = to_numpy(layer.embeddings)
    given = np.array([[8, 0, 0, 3, 2], [1, 5, 4, 4, 7]])
    rows = table[given]
    if rank == 4:
        inputs = np.stack([inputs, 2 * inputs, 3 * inputs], axis=1)
        rows = rows[:, None]
    np.testing.assert_allclose(
        layer(inputs, positions=given), inputs + rows, atol=1e-6
    )
    np.testing.assert_allclose(
        layer(inputs, positions=given[1]), inputs + table[given[1]], atol=1e-6
    )
    symbols = keras.Input(inputs.shape[1:]), keras.Input((T,), dtype="int32")
    model = keras.Model(symbols, layer(symbols[0], positions=symbols[1]))
    back = keras.Model.from_config(model.get_config())
    back.set_weights(model.get_weights())
    np.testing.assert_allclose(back([inputs, given]), inputs + rows, atol=1e-6)


def test_given_positions_are_checked(inputs):
    layer = PositionEmbedding(LENGTH)
    with pytest.raises(ValueError, match="Positions 0 to 9.*0 to 8"):
        layer(inputs, positions=[0, 1, 2, 3, 9])
    with pytest.raises(ValueError, match="Positions -1 to 3"):
        layer(inputs, positions=[0, 1, 2, 3, -1])
    with pytest.raises(ValueError, match=r"positions.shape=\(4,\)"):
        layer(inputs, positions=[0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"positions.shape=\(3, 5\)"):
        layer(inputs, positions=np.zeros((3, T), int))
    with pytest.raises(TypeError, match="integers.*float"):
        layer(inputs, positions=np.zeros(T))

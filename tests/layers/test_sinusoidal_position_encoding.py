import keras
import ml_dtypes
import numpy as np
import pytest
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import SinusoidalPositionEncoding
from keras_attention.ops import masks

B, T, D = 2, 5, 7


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("start_index", [0, 3])
def test_equals_the_reference(inputs, policy, start_index):
    layer = SinusoidalPositionEncoding(max_wavelength=500, dtype=policy)
    dtype = layer.compute_dtype
    inputs = ops.cast(inputs, dtype)
    table = reference.sinusoidal_positions(T, D, 500, start_index)
    layer_contract.assert_close(
        layer(inputs, start_index=start_index), to_numpy(inputs) + table, dtype
    )


def test_start_index_as_a_tensor(inputs):
    layer = SinusoidalPositionEncoding()
    np.testing.assert_array_equal(
        to_numpy(layer(inputs, start_index=ops.convert_to_tensor(3))),
        to_numpy(layer(inputs, start_index=3)),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_long_positions_stay_apart_in_half_precision(dtype):
    layer = SinusoidalPositionEncoding(dtype=dtype)
    rows = to_numpy(layer(ops.zeros((1, 258, 64))))[0]
    assert (rows[256] != rows[257]).sum() > 20
    exact = reference.sinusoidal_positions(258, 64)
    # Rounding to the dtype once is off by half the last place at most.
    np.testing.assert_allclose(
        rows, exact, rtol=0.51 * float(ml_dtypes.finfo(dtype).eps), atol=1e-5
    )


def test_float64_inputs_are_not_narrowed(inputs):
    inputs = inputs.astype("float64")
    encoded = SinusoidalPositionEncoding(dtype="float64")(inputs)
    table = to_numpy(encoded) - inputs
    np.testing.assert_allclose(table[0], table[1], atol=1e-15)


def test_symbolic_equals_eager(inputs):
    layer = SinusoidalPositionEncoding(dtype="mixed_bfloat16")
    layer_contract.assert_symbolic_equals_eager(layer, inputs)


def test_mask_is_passed_on(inputs):
    tensor = ops.convert_to_tensor(inputs)
    mask = ops.convert_to_tensor(np.arange(T) < [[3], [5]])
    masks.set_implicit_mask(tensor, mask)
    for start_index in (0, ops.convert_to_tensor(2)):
        encoded = SinusoidalPositionEncoding()(tensor, start_index=start_index)
        assert masks.get_implicit_mask(encoded) is mask


def test_config(inputs):
    layer = SinusoidalPositionEncoding(
        max_wavelength=500, name="positions", dtype="mixed_float16"
    )
    layer_contract.assert_round_trip(
        layer, max_wavelength=500, name="positions"
    )
    layer_contract.assert_same_after_rebuild(layer, inputs)
    assert layer.weights == []


@pytest.mark.parametrize("value", [0, -1, "long", None])
def test_bad_wavelength(value):
    with pytest.raises(ValueError, match=f"max_wavelength.*{value}"):
        SinusoidalPositionEncoding(max_wavelength=value)


def test_each_sequence_starts_at_its_own_position(inputs):
    layer = SinusoidalPositionEncoding()
    together = to_numpy(layer(inputs, start_index=ops.array([4, 1])))
    for row, start in enumerate([4, 1]):
        alone = to_numpy(layer(inputs[row : row + 1], start_index=start))
        np.testing.assert_array_equal(together[row], alone[0])


def test_given_positions_may_be_in_any_order(inputs):
    layer = SinusoidalPositionEncoding(max_wavelength=500)
    table = reference.sinusoidal_positions(10, D, 500)
    given = np.array([[8, 0, 0, 3, 2], [1, 5, 9, 4, 7]])
    more = np.stack([inputs, 2 * inputs, 3 * inputs], axis=1)
    for x, positions, rows in [
        (inputs, given, table[given]),
        (inputs, given[1], table[given[1]]),
        (inputs, given[:1], table[given[:1]]),
        (more, given, table[given][:, None]),
    ]:
        marked = layer(x, positions=positions)
        np.testing.assert_allclose(marked, x + rows, atol=1e-5)
    symbol, ids = keras.Input((None, D)), keras.Input((None,), dtype="int32")
    model = keras.Model([symbol, ids], layer(symbol, positions=ids))
    back = keras.Model.from_config(model.get_config())
    np.testing.assert_allclose(
        back([inputs, given]), inputs + table[given], atol=1e-5
    )
    with pytest.raises(ValueError, match=r"positions.shape=\(4,\)"):
        layer(inputs, positions=given[0, :4])
    with pytest.raises(TypeError, match="integers.*float"):
        layer(inputs, positions=given / 2)

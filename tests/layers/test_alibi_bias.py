"""The bias of positions is the paper's, whatever the policy."""

import keras
import numpy as np
import pytest
from support import layer_contract

from keras_attention import reference
from keras_attention.layers import AlibiBias

QUERY, KEY = np.array([4, 5, 6]), np.arange(7)


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12])
@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
def test_equals_the_reference(num_heads, policy):
    bias = AlibiBias(num_heads, dtype=policy)(QUERY, KEY)
    assert bias.dtype == "float32"
    expected = reference.alibi_bias(num_heads, QUERY, KEY)
    np.testing.assert_allclose(bias, expected, rtol=1e-6)


def test_slopes_of_the_paper():
    bias = AlibiBias(8)(np.array([1]), np.array([0]))
    np.testing.assert_array_equal(
        bias[:, 0, 0], [-(0.5**i) for i in range(1, 9)]
    )
    gentle = AlibiBias(2, alibi_bias_max=2)(np.array([0]), np.array([8]))
    np.testing.assert_array_equal(gentle[:, 0, 0], [-4, -2])


def test_positions_by_row():
    rows = np.array([[4, 5, 6], [0, 1, 2]])
    bias = AlibiBias(3)(rows, KEY)
    assert bias.shape == (2, 3, 3, 7)
    for row, positions in enumerate(rows):
        np.testing.assert_array_equal(bias[row], AlibiBias(3)(positions, KEY))


def test_symbolic_equals_eager_and_config_comes_back():
    layer = AlibiBias(3, alibi_bias_max=6)
    layer_contract.assert_round_trip(layer, num_heads=3, alibi_bias_max=6)
    for query, key in (((3,), (7,)), ((2, 3), (2, 7)), ((3,), (2, 7))):
        symbolic = layer(
            keras.KerasTensor(query, "int32"), keras.KerasTensor(key, "int32")
        )
        eager = layer(np.zeros(query, "int32"), np.zeros(key, "int32"))
        assert symbolic.shape == eager.shape and symbolic.dtype == eager.dtype


@pytest.mark.parametrize("options", [{"num_heads": 0}, {"alibi_bias_max": -1}])
def test_refuses_what_is_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        AlibiBias(**{"num_heads": 2, **options})

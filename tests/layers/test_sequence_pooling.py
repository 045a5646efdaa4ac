import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention.layers import SequencePooling
from keras_attention.ops import masks

B, T, D = 4, 5, 6
MASK = np.array(
    [
        [True, True, True, False, False],
        [False, False, True, True, True],
        [False] * 5,
        [True, False, True, False, True],
    ]
)
EXACT = {
    "mean": lambda rows: rows.mean(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "first": lambda rows: rows[0],
}
every_mode = pytest.mark.parametrize("mode", EXACT)


def pooled_by_hand(inputs, mask, mode):
    """Each row alone, with its padding cut out."""
    rows = [x[m] for x, m in zip(inputs, mask, strict=True)]
    nothing = np.zeros(inputs.shape[-1])
    return np.stack([EXACT[mode](r) if len(r) else nothing for r in rows])


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, T, D)).astype("float32")


@every_mode
@pytest.mark.parametrize("policy", layer_contract.POLICIES)
def test_equals_each_row_alone(inputs, mode, policy):
    layer = SequencePooling(mode, dtype=policy)
    dtype = layer.compute_dtype
    inputs = ops.cast(inputs, dtype)
    for mask in (MASK, MASK.astype("int32")):
        expected = pooled_by_hand(to_numpy(inputs), MASK, mode)
        layer_contract.assert_close(layer(inputs, mask=mask), expected, dtype)
    everything = np.ones((B, T), bool)
    expected = pooled_by_hand(to_numpy(inputs), everything, mode)
    layer_contract.assert_close(layer(inputs), expected, dtype)


@every_mode
@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D), (0, 0, D)])
def test_nothing_to_pool_gives_zeros(mode, shape):
    pooled = SequencePooling(mode)(np.ones(shape, "float32"))
    np.testing.assert_array_equal(to_numpy(pooled), np.zeros((shape[0], D)))


@every_mode
def test_integers_are_pooled_as_floats(mode):
    numbers = np.array([[[1], [2]], [[4], [3]]])
    expected = EXACT[mode](numbers.swapaxes(0, 1))
    pooled = SequencePooling(mode, dtype="mixed_float16")(numbers)
    layer_contract.assert_close(pooled, expected, "float16")


@every_mode
def test_one_mask_for_all_rows(inputs, mode):
    layer = SequencePooling(mode)
    np.testing.assert_array_equal(
        to_numpy(layer(inputs, mask=MASK[3:])),
        to_numpy(layer(inputs, mask=np.repeat(MASK[3:], B, axis=0))),
    )


@every_mode
def test_negative_values_are_not_beaten_by_padding(mode):
    inputs = np.full((B, T, D), -3.0, "float32")
    pooled = to_numpy(SequencePooling(mode)(inputs, mask=MASK))
    np.testing.assert_array_equal(pooled, pooled_by_hand(inputs, MASK, mode))


@every_mode
def test_nan_at_padding_vanishes(inputs, mode):
    spoilt = inputs.copy()
    spoilt[~MASK] = np.nan
    layer = SequencePooling(mode)

    def pooled_and_gradient(x):
        x = ops.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            pooled = layer(x, mask=MASK)
            loss = ops.sum(ops.square(pooled))
        return to_numpy(pooled), to_numpy(tape.gradient(loss, x))

    pooled, gradient = pooled_and_gradient(spoilt)
    expected, expected_gradient = pooled_and_gradient(inputs)
    np.testing.assert_array_equal(pooled, expected)
    np.testing.assert_array_equal(gradient, expected_gradient)
    assert not gradient[~MASK].any() and gradient[0].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mean_of_many_steps_in_half_precision(dtype):
    inputs = np.full((1, 70_000, 1), 2.0)
    pooled = SequencePooling("mean", dtype=dtype)(inputs)
    layer_contract.assert_close(pooled, [[2.0]], dtype)


@every_mode
def test_implicit_mask_is_used_and_ends_here(inputs, mode):
    tensor = ops.convert_to_tensor(inputs)
    masks.set_implicit_mask(tensor, ops.convert_to_tensor(MASK))
    layer = SequencePooling(mode)
    pooled = layer(tensor)
    np.testing.assert_array_equal(
        to_numpy(pooled), to_numpy(layer(inputs, mask=MASK))
    )
    assert masks.get_implicit_mask(pooled) is None
    explicit = layer(tensor, mask=np.ones((B, T), bool))
    np.testing.assert_allclose(
        to_numpy(explicit), to_numpy(layer(inputs)), atol=1e-6
    )


@every_mode
def test_mask_of_an_embedding_in_a_model(mode):
    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    model = keras.Sequential([embedding, SequencePooling(mode)])
    ids = np.array([[4, 2, 0, 0], [5, 1, 3, 2]])
    np.testing.assert_allclose(
        to_numpy(model(ids))[0], to_numpy(model(ids[:1, :2]))[0], atol=1e-6
    )


@every_mode
def test_symbolic_equals_eager(inputs, mode):
    layer = SequencePooling(mode, dtype="mixed_bfloat16")
    layer_contract.assert_symbolic_equals_eager(layer, inputs)


def test_config(inputs):
    layer = SequencePooling("max", name="pooling", dtype="mixed_float16")
    layer_contract.assert_round_trip(layer, mode="max", name="pooling")
    layer_contract.assert_same_after_rebuild(layer, inputs)
    assert layer.weights == []


def test_bad_inputs(inputs):
    with pytest.raises(ValueError, match="mode.*mode='median'"):
        SequencePooling("median")
    layer = SequencePooling()
    for x in (inputs, keras.KerasTensor(inputs.shape)):
        with pytest.raises(ValueError, match=r"mask.shape=\(4, 3\)"):
            layer(x, mask=MASK[:, :3])
    with pytest.raises(ValueError, match=r"inputs.shape=\(5, 6\)"):
        layer(inputs[0])
    with pytest.raises(TypeError, match="mask.dtype=float32"):
        layer(inputs, mask=np.full((B, T), 0.5, "float32"))

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import layer_contract
from support.layer_contract import to_numpy

from keras_attention import reference
from keras_attention.layers import (
    EncoderBlock,
    MultiHeadAttention,
    ScaledDotProductAttention,
    SequencePooling,
)
from keras_attention.ops import masks

B, T, D, N, F = 3, 5, 12, 4, 10
PADDING = np.arange(T) < [[3], [5], [4]]


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(1)


@pytest.fixture
def inputs():
    rng = np.random.default_rng(3)
    return rng.normal(size=(B, T, D)).astype("float32")


def built(*args, **arguments):
    block = EncoderBlock(*(args or (N, F)), **arguments)
    block.build((None, None, D))
    layer_contract.randomize(block, scale=0.2)
    return block


def weights_of(block):
    return reference.EncoderWeights(
        block.attention.get_weights(),
        block.attention_norm.get_weights(),
        block.feed_forward.get_weights(),
        block.feed_forward_norm.get_weights(),
    )


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("normalize_first", [False, True])
def test_equals_the_reference(inputs, policy, normalize_first):
    block = built(
        normalize_first=normalize_first,
        layer_norm_epsilon=1e-3,
        dtype=policy,
    )
    dtype = block.compute_dtype
    inputs = ops.cast(inputs, dtype)
    options = {
        "attention_mask": np.random.default_rng(5).random((B, T, T)) < 0.7,
        "attention_bias": np.linspace(-1, 1, T * T).reshape(T, T),
        "use_causal_mask": True,
    }
    output, scores = block(
        inputs,
        padding_mask=PADDING,
        **options,
        return_attention_scores=True,
    )
    expected, expected_scores = reference.encoder_block(
        to_numpy(inputs),
        weights_of(block),
        padding_mask=PADDING,
        layer_norm_epsilon=1e-3,
        normalize_first=normalize_first,
        **options,
    )
    layer_contract.assert_close(output[PADDING], expected[PADDING], dtype)
    layer_contract.assert_close(scores, expected_scores, dtype)
    np.testing.assert_array_equal(
        to_numpy(block(inputs, padding_mask=PADDING, **options)),
        to_numpy(output),
    )


def test_activation_reaches_the_feed_forward_network(inputs):
    def gelu(x):
        return keras.activations.gelu(x, approximate=False)

    block = built(activation=gelu)
    expected, _ = reference.encoder_block(
        inputs, weights_of(block), activation=reference.gelu
    )
    layer_contract.assert_close(block(inputs), expected, "float32")


@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_exist_once_built(use_bias):
    block = EncoderBlock(N, F, use_bias=use_bias, dtype="mixed_float16")
    block.build((None, None, D))
    kernels, biases = 4 * D * D + 2 * D * F, 4 * D + F + D
    norms = 4 * D
    assert block.count_params() == kernels + norms + use_bias * biases
    assert {w.dtype for w in block.weights} == {"float32"}
    assert [x.name for x in (block.attention, block.feed_forward)] == [
        "attention",
        "feed_forward",
    ]


def test_initializers_reach_the_weights():
    block = EncoderBlock(
        N, F, kernel_initializer="zeros", bias_initializer="ones"
    )
    block.build((None, None, D))
    for weight in block.attention.weights + block.feed_forward.weights:
        is_bias = "bias" in weight.name
        assert (to_numpy(weight) == is_bias).all()


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("attention", ["default", "ours", "keras"])
def test_symbolic_equals_eager(inputs, attention, return_attention_scores):
    attention = {
        "default": lambda: None,
        "ours": lambda: MultiHeadAttention(2, 7, dtype="mixed_bfloat16"),
        "keras": lambda: keras.layers.MultiHeadAttention(
            2, 7, dtype="mixed_bfloat16"
        ),
    }[attention]()
    layer_contract.assert_symbolic_equals_eager(
        EncoderBlock(N, F, attention=attention, dtype="mixed_bfloat16"),
        inputs,
        return_attention_scores=return_attention_scores,
    )


@pytest.mark.parametrize("policy", layer_contract.POLICIES)
@pytest.mark.parametrize("normalize_first", [False, True])
def test_nan_at_padding_reaches_nothing(inputs, policy, normalize_first):
    block = built(normalize_first=normalize_first, dtype=policy)
    spoilt = inputs.copy()
    spoilt[~PADDING] = np.nan
    variables = [w.value for w in block.trainable_variables]

    def output_and_gradients(x):
        x = ops.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = block(x, padding_mask=PADDING)
            loss = ops.sum(ops.square(ops.cast(output, "float32")))
        return [output, *tape.gradient(loss, [x, *variables])]

    for one, other in zip(
        output_and_gradients(spoilt), output_and_gradients(inputs), strict=True
    ):
        assert np.isfinite(to_numpy(one)).all()
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_each_row_as_if_alone(inputs):
    block = built()
    output = to_numpy(block(inputs, padding_mask=PADDING))
    for row, length in enumerate(PADDING.sum(axis=1)):
        alone = to_numpy(block(inputs[row : row + 1, :length]))
        np.testing.assert_allclose(output[row, :length], alone[0], atol=1e-5)


def test_large_negative_bias_is_no_mask_in_half_precision(inputs):
    block = built(dtype="mixed_float16")
    bias = np.full((T, T), -1e9, "float32")
    _, scores = block(inputs, attention_bias=bias, return_attention_scores=True)
    np.testing.assert_allclose(
        to_numpy(scores).sum(-1), np.ones((B, N, T)), atol=2e-3
    )


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_row_of_nothing_but_padding(inputs, policy):
    block = built(dtype=policy)
    padding = PADDING.copy()
    padding[1] = False
    output, scores = block(
        inputs, padding_mask=padding, return_attention_scores=True
    )
    assert np.isfinite(to_numpy(output)).all()
    assert not to_numpy(scores)[1].any()
    assert to_numpy(scores)[0].any()


def test_implicit_mask_is_used_and_passed_on(inputs):
    block = built()
    tensor = ops.convert_to_tensor(inputs)
    masks.set_implicit_mask(tensor, ops.convert_to_tensor(PADDING))
    expected = block(inputs, padding_mask=PADDING)
    for scores in (False, True):
        output = block(tensor, return_attention_scores=scores)
        output = output[0] if scores else output
        np.testing.assert_array_equal(to_numpy(output), to_numpy(expected))
        np.testing.assert_array_equal(masks.get_implicit_mask(output), PADDING)
    np.testing.assert_array_equal(masks.get_implicit_mask(tensor), PADDING)
    assert np.abs(to_numpy(expected) - to_numpy(block(inputs))).max() > 0.01


def test_explicit_mask_wins_over_the_implicit_one(inputs):
    block = built()
    tensor = ops.convert_to_tensor(inputs)
    masks.set_implicit_mask(tensor, ops.zeros((B, T), "bool"))
    output = block(tensor, padding_mask=PADDING.astype("int32"))
    expected = block(inputs, padding_mask=PADDING)
    np.testing.assert_array_equal(to_numpy(output), to_numpy(expected))
    np.testing.assert_array_equal(masks.get_implicit_mask(output), PADDING)


def test_explicit_mask_is_passed_on_in_a_functional_model(inputs):
    x = keras.Input((None, D))
    padding = keras.Input((None,), dtype="bool")
    output = EncoderBlock(N, F)(x, padding_mask=padding)
    assert tuple(masks.get_implicit_mask(output).shape) == (None, None)
    pooled = SequencePooling("mean")(output)
    model = keras.Model([x, padding], [output, pooled])
    output, pooled = (to_numpy(y) for y in model([inputs, PADDING]))
    for row in range(B):
        expected = output[row, PADDING[row]].mean(axis=0)
        np.testing.assert_allclose(pooled[row], expected, atol=1e-5)


def test_mask_of_an_embedding_goes_through_a_stack():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, D, mask_zero=True)(ids)
    for _ in range(2):
        x = EncoderBlock(N, F)(x)
    assert masks.get_implicit_mask(x) is not None
    model = keras.Model(ids, x)
    token_ids = np.array([[4, 2, 0, 0], [5, 1, 3, 2]])
    np.testing.assert_allclose(
        to_numpy(model(token_ids))[0, :2],
        to_numpy(model(token_ids[:1, :2]))[0],
        atol=1e-5,
    )


def test_dropout_acts_in_training_alone(inputs):
    block = built(dropout=0.4, seed=7)
    plain = to_numpy(built()(inputs))
    np.testing.assert_array_equal(to_numpy(block(inputs)), plain)
    np.testing.assert_array_equal(
        to_numpy(block(inputs, training=False)), plain
    )
    first, second = (to_numpy(block(inputs, training=True)) for _ in range(2))
    assert (first != plain).any() and (first != second).any()
    again = built(dropout=0.4, seed=7)
    np.testing.assert_array_equal(to_numpy(again(inputs, training=True)), first)


def test_training_reaches_each_dropout(inputs):
    """The state of a seed generator moves on exactly when it is used."""

    class Outer(keras.Model):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def call(self, x):
            return self.block(x)

    block = built(dropout=0.4)
    generators = [
        block.attention._dropout_layer.seed_generator,
        block._attention_dropout.seed_generator,
        block.feed_forward._dropout_layer.seed_generator,
    ]
    for call in (block, Outer(block)):
        for options in ({}, {"training": False}, {"training": True}):
            before = [to_numpy(g.state) for g in generators]
            call(inputs, **options)
            moved = [
                (to_numpy(g.state) != state).any()
                for g, state in zip(generators, before, strict=True)
            ]
            assert moved == [options.get("training", False)] * 3


def test_parts_do_not_drop_the_same_entries():
    block = built(dropout=0.5, seed=7)
    ones = ops.ones((B, T, D))
    dropped = [
        to_numpy(layer(ones, training=True)) == 0
        for layer in (
            block._attention_dropout,
            block.feed_forward._dropout_layer,
        )
    ]
    assert (dropped[0] != dropped[1]).any()


def test_trains_in_half_precision(inputs):
    x = keras.Input((T, D))
    padding = keras.Input((T,), dtype="bool")
    block = EncoderBlock(N, F, dropout=0.1, dtype="mixed_float16")
    model = keras.Model([x, padding], block(x, padding_mask=padding))
    model.compile("adam", "mse")
    spoilt = inputs * 100
    spoilt[~PADDING] = np.inf
    target = np.zeros_like(inputs)
    history = model.fit([spoilt, PADDING], target, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_config(inputs):
    arguments = {
        "num_heads": N,
        "intermediate_dim": F,
        "dropout": 0.3,
        "activation": "silu",
        "layer_norm_epsilon": 1e-3,
        "normalize_first": True,
        "attention": None,
        "use_bias": False,
        "seed": 5,
        "name": "block",
    }
    block = EncoderBlock(
        **arguments,
        kernel_initializer=keras.initializers.HeNormal(seed=2),
        bias_initializer="ones",
        dtype="mixed_bfloat16",
    )
    layer_contract.assert_round_trip(block, **arguments)
    back = layer_contract.rebuilt(block)
    assert back.kernel_initializer.seed == 2
    assert isinstance(back.bias_initializer, keras.initializers.Ones)
    assert back.dtype_policy == block.dtype_policy
    layer_contract.assert_same_after_rebuild(block, inputs)
    assert block.get_config()["attention"] is None


def test_injected_attention_is_saved_with_the_block(inputs):
    attention = MultiHeadAttention(2, 7, sliding_window=2, name="local")
    block = EncoderBlock(None, F, attention=attention)
    layer_contract.assert_same_after_rebuild(
        block, inputs, return_attention_scores=True
    )
    back = layer_contract.rebuilt(block)
    assert type(back.attention) is MultiHeadAttention
    assert back.attention is not attention
    assert back.attention.get_config() == attention.get_config()


def test_injected_attention_is_used(inputs):
    attention = MultiHeadAttention(2, 7)
    block = built(None, F, attention=attention)
    assert block.attention is attention
    expected, scores = reference.encoder_block(
        inputs, weights_of(block), padding_mask=PADDING
    )
    output, actual = block(
        inputs, padding_mask=PADDING, return_attention_scores=True
    )
    layer_contract.assert_close(output[PADDING], expected[PADDING], "float32")
    layer_contract.assert_close(actual, scores, "float32")


def test_injected_layer_of_keras(inputs):
    """The padding mask reaches it, and other dtypes do no harm."""
    block = built(
        None,
        F,
        attention=keras.layers.MultiHeadAttention(2, 7, dtype="float32"),
        dtype="bfloat16",
    )
    output = block(inputs, padding_mask=PADDING)
    assert output.dtype == "bfloat16"
    other = inputs.copy()
    other[~PADDING] += 1.0
    np.testing.assert_array_equal(
        to_numpy(block(other, padding_mask=PADDING)), to_numpy(output)
    )


class Average(keras.layers.Layer):
    """An attention layer with neither masks nor scores nor a build."""

    def call(self, query, value):
        return query * 0 + ops.mean(value, axis=1, keepdims=True)


def test_options_are_not_lost_without_a_word(inputs):
    block = EncoderBlock(None, F, attention=Average(name="average"))
    assert block(inputs).shape == (B, T, D)
    for option, value in [
        ("padding_mask", PADDING),
        ("attention_mask", np.ones((T, T), "bool")),
        ("attention_bias", np.ones((T, T), "float32")),
        ("use_causal_mask", True),
        ("return_attention_scores", True),
    ]:
        name = "value_mask" if option == "padding_mask" else option
        for x in (inputs, keras.KerasTensor(inputs.shape)):
            with pytest.raises(ValueError, match=f"'average'.*`{name}`"):
                block(x, **{option: value})


def test_bad_masks_are_refused_before_the_model_runs():
    block = EncoderBlock(N, F)
    x = keras.Input((T, D))
    with pytest.raises(ValueError, match=r"padding_mask.*\(None, 4\)"):
        block(x, padding_mask=keras.Input((4,), dtype="bool"))
    with pytest.raises(ValueError, match=r"attention_mask.*\(None, 5, 4\)"):
        block(x, attention_mask=keras.Input((T, 4), dtype="bool"))
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        block(keras.Input((D,)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_heads": 0},
        {"num_heads": None},
        {"intermediate_dim": -1},
        {"dropout": 1.5},
        {"activation": "rellu"},
        {"layer_norm_epsilon": 0},
        {"attention": "linear"},
    ],
)
def test_bad_arguments(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"`{name}`.*{name}='?{value}"):
        EncoderBlock(**{"num_heads": N, "intermediate_dim": F, **arguments})


def test_heads_that_do_not_divide_the_width_are_narrower(inputs):
    block = EncoderBlock(5, F)
    same = EncoderBlock(None, F, attention=MultiHeadAttention(5, D // 5))
    for one in (block, same):
        one.build(inputs.shape)
        layer_contract.randomize(one)
    assert (block.attention.num_heads, block.attention.key_dim) == (5, 2)
    np.testing.assert_array_equal(block(inputs), same(inputs))
    with pytest.raises(ValueError, match=r"\(12\).*\(13\).*num_heads=13"):
        EncoderBlock(13, F)(inputs)


def test_an_unknown_width():
    with pytest.raises(ValueError, match=r"known.*\(None, None, None\)"):
        EncoderBlock(N, F)(keras.KerasTensor((None, None, None)))


def test_another_width_than_it_was_built_for(inputs):
    block = built()
    for x in (inputs[..., 4:], keras.KerasTensor((B, T, D - 4))):
        with pytest.raises(ValueError, match=f"to have value {D}"):
            block(x)


@pytest.mark.parametrize(
    "layer", [ScaledDotProductAttention(), keras.layers.Flatten()]
)
def test_a_layer_that_is_called_otherwise_is_refused(layer):
    with pytest.raises(ValueError, match=r"called with `\(query, value\)`"):
        EncoderBlock(N, F, attention=layer)


def test_numpy_numbers_become_plain_ones(inputs):
    block = EncoderBlock(np.int64(N), np.int64(F), dropout=np.float32(0.5))
    config = json.loads(json.dumps(block.get_config()))
    assert (config["num_heads"], config["intermediate_dim"]) == (N, F)


def test_many_blocks_in_two_models_share_a_weights_file(tmp_path):
    def twelve():
        blocks = [EncoderBlock(N, F) for _ in range(12)]
        return keras.Sequential([keras.Input((None, D)), *blocks])

    first, second = twelve(), twelve()
    first.save_weights(tmp_path / "model.weights.h5")
    second.load_weights(tmp_path / "model.weights.h5")
    for one, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    kernels = [w for w in second.weights if "query/kernel" in w.path]
    assert len(kernels) == 12
    assert len({np.asarray(w).tobytes() for w in kernels}) == 12

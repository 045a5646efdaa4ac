"""What holds for every factory of encoders alike."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.catalogue import FACTORIES
from support.layer_contract import randomize, to_numpy

from keras_attention import export, models
from keras_attention.layers import EncoderBlock
from keras_attention.models import EncoderStack
from keras_attention.reference import (
    EncoderWeights,
    encoder_block,
    gelu,
    layer_norm,
    relu,
    sinusoidal_positions,
)

REQUIRED = {
    "encoder": {"vocabulary_size": 10},
    "image_classifier": {
        "image_shape": (4, 6, 3),
        "patch_size": (2, 3),
        "num_classes": 5,
    },
    "sequence_classifier": {"num_features": 8, "num_classes": 3},
    "sequence_regressor": {"num_features": 8},
    "text_classifier": {"vocabulary_size": 10, "num_classes": 4},
    "token_classifier": {"vocabulary_size": 10, "num_classes": 4},
}
NAMES = {
    "encoder": ("token_ids", "sequence_output"),
    "image_classifier": ("image", "probabilities"),
    "sequence_classifier": ("features", "probabilities"),
    "sequence_regressor": ("features", "values"),
    "text_classifier": ("token_ids", "probabilities"),
    "token_classifier": ("token_ids", "probabilities"),
}

each_factory = pytest.mark.parametrize("name", REQUIRED)


def small(name, **stack):
    """Returns a small model of the factory, its own arguments at defaults."""
    options = {"hidden_dim": 12, "num_heads": 3, "num_layers": 1, **stack}
    return getattr(models, name)(**REQUIRED[name], **options)


@each_factory
def test_it_is_a_plain_model_with_stable_names(name):
    small(name)
    model = small(name, num_layers=4)
    given, returned = NAMES[name]
    assert isinstance(model, keras.Model)
    assert type(model) is type(keras.Model(model.inputs, model.outputs))
    assert model.name == name
    assert [tensor.name for tensor in model.inputs] == [given]
    assert model.output_names == [returned]
    assert model.outputs[0].dtype == "float32"
    blocks = [x for x in model.layers if isinstance(x, EncoderBlock)]
    assert [b.name for b in blocks] == [f"encoder_block_{i}" for i in range(4)]
    assert model.get_layer("encoder_block_3") is blocks[3]


@each_factory
def test_the_arguments_reach_the_layers(name):
    case = FACTORIES[name]
    model = case.model(num_layers=1, name="mine")
    assert model.name == "mine"
    block = model.get_layer("encoder_block_0")
    for argument in ("num_heads", "intermediate_dim", "dropout"):
        assert getattr(block, argument) == case.arguments[argument]
    assert block.activation is keras.activations.gelu
    assert block.normalize_first is False
    assert model.get_layer("embedding_dropout").rate == 0.3
    assert "final_norm" not in [layer.name for layer in model.layers]
    shape = model(case.arrays).shape
    assert shape[-1] == model.output_shape[-1]
    assert len(shape) == len(model.output_shape)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, "mixed_float16") for name in REQUIRED),
        ("text_classifier", "mixed_bfloat16"),
    ],
)
def test_half_precision_trains_and_gives_float32(name, policy):
    model = small(name, dtype=policy)
    assert model.get_layer("encoder_block_0").compute_dtype == policy[6:]
    arrays = FACTORIES[name].arrays
    output = model(arrays)
    assert output.dtype == "float32"
    full = small(name)
    full.set_weights(model.get_weights())
    np.testing.assert_allclose(output, full(arrays), atol=0.1)
    model.compile("adam", "mse")
    before = [to_numpy(weight) for weight in model.trainable_weights]
    loss = model.train_on_batch(arrays, np.zeros(output.shape))
    assert np.isfinite(loss)
    for weight in model.trainable_weights:
        assert weight.dtype == "float32"
        assert np.isfinite(to_numpy(weight)).all(), weight.path
    assert any(
        (old != to_numpy(weight)).any()
        for old, weight in zip(before, model.trainable_weights, strict=True)
    )


@each_factory
def test_the_same_seed_gives_the_same_numbers(name):
    arrays = FACTORIES[name].arrays
    outputs = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(seed)
        model = small(name)
        outputs.append([model(arrays), model(arrays, training=True)])
    np.testing.assert_array_equal(outputs[0][0], outputs[1][0])
    np.testing.assert_array_equal(outputs[0][1], outputs[1][1])
    assert (outputs[0][0] != outputs[2][0]).numpy().any()


@pytest.mark.parametrize(
    "name",
    ["encoder", "image_classifier", "sequence_regressor", "text_classifier"],
)
def test_names_survive_saving_and_export(name, tmp_path):
    given, returned = NAMES[name]
    model = small(name)
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    assert [tensor.name for tensor in back.inputs] == [given]
    assert back.output_names == [returned]
    path = export.export_for_serving(
        back, tmp_path, attention=False, examples=False, warm_up=False
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    assert set(served.structured_input_signature[1]) == {given}
    assert set(served.structured_outputs) == {returned}


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_encoder_equals_its_definition(normalize_first, activation):
    """From ids to vectors, padding in the middle and at the end."""
    model = small(
        "encoder",
        num_layers=2,
        normalize_first=normalize_first,
        activation=activation,
    )
    randomize(model)
    ids = np.array([[5, 3, 0, 7, 9, 0, 0], [1, 2, 3, 4, 5, 6, 8]])

    def weights(layer):
        return [to_numpy(weight) for weight in layer.weights]

    x = weights(model.get_layer("token_embedding"))[0][ids]
    x = x + sinusoidal_positions(7, 12)
    for index in range(2):
        block = model.get_layer(f"encoder_block_{index}")
        parts = EncoderWeights(
            weights(block.attention),
            weights(block.attention_norm),
            weights(block.feed_forward),
            weights(block.feed_forward_norm),
        )
        x, _ = encoder_block(
            x,
            parts,
            padding_mask=ids != 0,
            activation={"relu": relu, "gelu": gelu}[activation],
            normalize_first=normalize_first,
        )
    if normalize_first:
        x = layer_norm(x, *weights(model.get_layer("final_norm")))
    seen = ids != 0
    np.testing.assert_allclose(
        to_numpy(model(ids))[seen], x[seen], rtol=1e-5, atol=1e-5
    )


def test_twelve_blocks_and_two_models_keep_their_weights_apart(tmp_path):
    """Whatever else was built before, in whatever order they are read."""
    sizes = {"text_classifier": 12, "encoder": 2}
    files = {}
    for name, num_layers in sizes.items():
        model = small(name, num_layers=num_layers)
        randomize(model, seed=num_layers)
        model.save_weights(tmp_path / f"{name}.weights.h5")
        files[name] = model
    for name in reversed(files):
        back = small(name, num_layers=sizes[name])
        back.load_weights(tmp_path / f"{name}.weights.h5")
        paths = [weight.path for weight in back.weights]
        assert paths == [weight.path for weight in files[name].weights]
        assert len(paths) == len(set(paths))
        for one, other in zip(
            back.get_weights(), files[name].get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_inputs_and_outputs_of_a_user_keep_their_names(tmp_path):
    """Dictionaries in, dictionaries out, on each way out of memory."""

    def build():
        inputs = {
            "foo": keras.Input((None, 8), name="foo"),
            "bar": keras.Input((None,), dtype="int32", name="bar"),
        }
        x = EncoderBlock(2, 16)(inputs["foo"], padding_mask=inputs["bar"] > 0)
        return keras.Model(inputs, {"baz": x, "qux": x * 2.0})

    build()
    model = build()
    model.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    arrays = {
        "foo": np.ones((2, 5, 8), "float32"),
        "bar": np.array([[1, 1, 1, 0, 0], [1] * 5], "int32"),
    }
    expected = model(arrays)
    assert set(expected) == {"baz", "qux"}
    path = export.export_for_serving(
        back, tmp_path, examples=False, warm_up=False
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    assert set(served.structured_input_signature[1]) == {"foo", "bar"}
    served = served(**{k: tf.constant(v) for k, v in arrays.items()})
    for outputs in (back(arrays), model.predict(arrays), served):
        assert set(outputs) == {"baz", "qux"}
        for key in outputs:
            np.testing.assert_allclose(
                outputs[key], expected[key], rtol=1e-6, atol=1e-6
            )


def test_a_stack_is_fixed_once_made():
    stack = EncoderStack(hidden_dim=12, num_heads=3)
    assert stack.intermediate_dim == 48
    with pytest.raises(dataclasses.FrozenInstanceError):
        stack.num_heads = 4


BAD = {
    "width": (
        {"hidden_dim": 10, "num_heads": 4},
        "multiple of `num_heads`.*hidden_dim=10, num_heads=4",
    ),
    "activation": ({"activation": "swoosh"}, "`activation`.*relu.*'swoosh'"),
    "positions": ({"positions": "rope"}, "`positions`.*learned.*'rope'"),
    "dropout": ({"dropout": 1.5}, "`dropout`.*from 0 to 1.*dropout=1.5"),
    "layers": ({"num_layers": 0}, "`num_layers`.*positive.*num_layers=0"),
    "heads": ({"num_heads": -1}, "`num_heads`.*positive.*num_heads=-1"),
    "length": ({"max_length": None}, "`max_length`.*max_length=None"),
    "unknown": (
        {"hiden_dim": 8},
        "`hiden_dim`.*takes hidden_dim, num_layers.*hiden_dim=8",
    ),
}


@each_factory
@pytest.mark.parametrize("bad", BAD)
def test_bad_arguments_are_named_with_the_way_out(name, bad):
    options, message = BAD[bad]
    error = TypeError if bad == "unknown" else ValueError
    with pytest.raises(error, match=message):
        small(name, **options)


@pytest.mark.parametrize(
    "name", [name for name in REQUIRED if "num_classes" in REQUIRED[name]]
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "`num_classes`.*positive.*num_classes=0"),
        ({"num_classes": 1}, "classifier_activation=.sigmoid.*num_classes=1"),
        (
            {
                "num_classes": 1,
                "classifier_activation": keras.activations.softmax,
            },
            "classifier_activation=.sigmoid.*num_classes=1",
        ),
        (
            {"classifier_activation": "soft"},
            "`classifier_activation`.*name of an activation.*'soft'",
        ),
    ],
)
def test_bad_arguments_of_classifiers(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(models, name)(**{**REQUIRED[name], **options})


@pytest.mark.parametrize(
    "name", ["image_classifier", "sequence_classifier", "text_classifier"]
)
def test_bad_pooling(name):
    with pytest.raises(ValueError, match="`pooling`.*'mean'.*pooling='sum'"):
        small(name, pooling="sum")

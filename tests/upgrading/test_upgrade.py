"""Models made without the package, and the same with its layers in them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import old_models
from support.arrays import normal
from support.layer_contract import to_numpy

import keras_attention
from keras_attention import layers
from keras_attention.upgrading import UpgradeReport

REPLACED = {
    old_models.bert_like: ["bert/mha_0", "bert/mha_1"],
    old_models.vit_like: ["vit/gqa"],
    old_models.encoder_decoder: [
        "seq2seq/bahdanau",
        "seq2seq/cross",
        "seq2seq/encoder/inner",
        "seq2seq/shared",
    ],
    old_models.subclassed: [
        f"classifier/{path}"
        for path in (
            "attention",
            "block/attend_0",
            "block/attend_1",
            "block_1/attend_0",
            "block_1/attend_1",
        )
    ],
    old_models.sequential: ["stack/block/attend_0", "stack/block/attend_1"],
}


def flat(model, inputs, **options):
    return [to_numpy(x) for x in keras.tree.flatten(model(inputs, **options))]


def assert_same_outputs(one, two, inputs):
    pairs = zip(flat(one, inputs), flat(two, inputs), strict=True)
    for expected, actual in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def gradients(model, inputs):
    with tf.GradientTape() as tape:
        outputs = keras.tree.flatten(model(inputs))
        loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in outputs])
    values = [v.value for v in model.trainable_variables]
    found = tape.gradient(loss, values)
    return [to_numpy(tf.convert_to_tensor(gradient)) for gradient in found]


def functional(layer, shape=(5, 8), **options):
    inputs = keras.Input(shape)
    return keras.Model(inputs, layer(inputs, inputs, **options))


@pytest.mark.parametrize("maker", REPLACED, ids=lambda m: m.__name__)
def test_every_layer_is_replaced_and_nothing_else_changes(maker, tmp_path):
    old, inputs = old_models.make(maker)
    before = [w.copy() for w in old.get_weights()]
    new, report = keras_attention.upgrade(old, return_report=True)

    assert sorted(change.path for change in report.changes) == REPLACED[maker]
    assert all(c.after.startswith("keras_attention.") for c in report.changes)
    assert [w.name for w in new.weights] == [w.name for w in old.weights]
    names = [sorted(m.name for m in model.layers) for model in (new, old)]
    assert names[0] == names[1]
    assert [v.trainable for v in new.weights] == [
        v.trainable for v in old.weights
    ]
    assert_same_outputs(old, new, inputs)
    pairs = zip(gradients(old, inputs), gradients(new, inputs), strict=True)
    for expected, actual in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)

    new.save(tmp_path / "new.keras")
    reloaded = keras.saving.load_model(tmp_path / "new.keras")
    assert_same_outputs(old, reloaded, inputs)
    new.set_weights([w + 1 for w in new.get_weights()])
    for weight, value in zip(old.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_shared_layers_stay_shared():
    attend = keras.layers.MultiHeadAttention(2, 4, name="shared")
    nested = functional(attend)
    nested.name = "nested"
    inputs = keras.Input((5, 8), name="first")
    other = keras.Input((5, 8), name="second")
    old = keras.Model([inputs, other], attend(nested(inputs), other))
    new = keras_attention.upgrade(old)
    shared = new.get_layer("shared")
    assert isinstance(shared, layers.MultiHeadAttention)
    assert shared is new.get_layer("nested").get_layer("shared")
    assert len(new.weights) == len(old.weights)
    assert [x.name for x in new.inputs] == ["first", "second"]
    assert_same_outputs(old, new, list(normal((2, 5, 8), (2, 5, 8))))


def test_training_goes_on_where_it_was():
    inputs = keras.Input((5, 8))
    attend = keras.layers.MultiHeadAttention(2, 4)
    old = keras.Model(inputs, attend(inputs, inputs)[:, 0])
    old.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x, y = normal((6, 5, 8), (6, 8))
    old.fit(x, y, epochs=2, batch_size=3, verbose=0)
    new = keras_attention.upgrade(old)
    assert new.evaluate(x, y, verbose=0, return_dict=True).keys() == {
        "loss",
        "mae",
    }
    for model in (old, new):
        model.fit(x, y, epochs=2, batch_size=3, shuffle=False, verbose=0)
    assert int(new.optimizer.iterations) == int(old.optimizer.iterations) == 8
    assert_same_outputs(old, new, x)


def test_a_loss_of_the_user_is_kept():
    def distance(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred))

    old = functional(keras.layers.MultiHeadAttention(2, 4))
    old.compile("sgd", distance)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert new.loss is distance and not report.notes


def test_the_optimizer_is_kept_beside_metrics_that_are_not():
    class Rule(keras.optimizers.SGD):
        pass

    class Distance(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)

    def unknown(y_true, y_pred):
        return keras.ops.mean(y_true - y_pred)

    old = functional(keras.layers.MultiHeadAttention(2, 4))
    old.compile(Rule(0.1, momentum=0.9), Distance(), metrics=[unknown])
    x, y = normal((4, 5, 8), (4, 5, 8))
    old.fit(x, y, epochs=2, verbose=0)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert type(new.optimizer) is Rule and type(new.loss) is Distance
    assert [note.what for note in report.notes] == ["metrics"]
    assert "unknown" in report.notes[0].why
    for model in (old, new):
        model.fit(x, y, verbose=0)
    assert_same_outputs(old, new, x)


def test_an_optimizer_of_other_weights_is_named():
    attend = keras.layers.MultiHeadAttention(2, 4)
    old = functional(attend)
    old.compile("adam", "mse")
    old.optimizer.build(old.trainable_variables)
    attend.query_dense.trainable = False
    _, report = keras_attention.upgrade(old, return_report=True)
    assert "built for other weights" in report.notes[0].why


def test_policies_and_flags_are_kept():
    attend = keras.layers.MultiHeadAttention(
        2, 4, dtype="mixed_float16", name="half"
    )
    old = functional(attend)
    attend.key_dense.trainable = False
    new = keras_attention.upgrade(old).get_layer("half")
    assert new.dtype_policy.name == "mixed_float16"
    assert not new.key_dense.trainable and new.query_dense.trainable
    attend.trainable = False
    assert not keras_attention.upgrade(old).trainable_weights


def test_low_rank_and_quantized_projections_are_kept():
    old = functional(keras.layers.MultiHeadAttention(2, 4, name="a"))
    old.get_layer("a").query_dense.enable_lora(2)
    x = normal((2, 5, 8))
    new = keras_attention.upgrade(old)
    assert new.get_layer("a").query_dense.lora_enabled
    assert_same_outputs(old, new, x)
    old = functional(keras.layers.MultiHeadAttention(2, 4, name="a"))
    old.quantize("int8")
    new = keras_attention.upgrade(old)
    assert new.get_layer("a").query_dense.quantization_mode == "int8"
    assert_same_outputs(old, new, x)


@pytest.mark.parametrize(
    "name, options",
    [
        ("Int8QuantizationConfig", {"activation_quantizer": None}),
        ("Int4QuantizationConfig", {"block_size": 2}),
    ],
)
def test_the_quantizers_of_projections_are_kept(name, options):
    config = getattr(getattr(keras, "quantizers", None), name, None)
    if config is None:
        pytest.skip("this release of Keras has one way to quantize")
    old = functional(keras.layers.MultiHeadAttention(2, 4, name="a"))
    old.quantize(config=config(**options))
    new = keras_attention.upgrade(old)
    assert_same_outputs(old, new, normal((2, 5, 8)))


def test_a_class_of_its_own_is_left_alone_and_named():
    @keras.saving.register_keras_serializable(package="old")
    class Mine(keras.layers.MultiHeadAttention):
        pass

    old = functional(Mine(2, 4, name="mine"))
    new, report = keras_attention.upgrade(old, return_report=True)
    assert type(new.get_layer("mine")) is Mine and not report.changes
    assert "Mine" in report.notes[0].what
    assert_same_outputs(old, new, normal((2, 5, 8)))


def test_classes_that_make_the_old_layers_again_are_named():
    old, _ = old_models.make(old_models.sequential)
    _, report = keras_attention.upgrade(old, return_report=True)
    assert [n.path for n in report.notes] == ["stack/block"]
    assert "change the import" in report.notes[0].why
    # Only while the upgrade ran did Keras's class make ours.
    made = keras.layers.MultiHeadAttention(2, 4)
    assert type(made) is keras.layers.MultiHeadAttention


def test_layers_given_by_argument_are_replaced_for_good(tmp_path):
    inputs = keras.Input((5, 8))
    attend = keras.layers.MultiHeadAttention(2, 4)
    block = layers.EncoderBlock(None, 9, attention=attend, name="block")
    old = keras.Model(inputs, block(inputs))
    new, report = keras_attention.upgrade(old, return_report=True)
    assert len(report.changes) == 1 and not report.notes
    new.save(tmp_path / "new.keras")
    new = keras.saving.load_model(tmp_path / "new.keras")
    inner = new.get_layer("block").attention
    assert isinstance(inner, layers.MultiHeadAttention)


def test_text_layers_keep_their_vocabulary():
    vectorize = keras.layers.TextVectorization()
    vectorize.adapt(["a b c d"])
    texts = keras.Input((), dtype="string")
    x = keras.layers.Embedding(9, 8)(vectorize(texts))
    old = keras.Model(texts, keras.layers.MultiHeadAttention(2, 4)(x, x))
    new = keras_attention.upgrade(old)
    assert_same_outputs(old, new, tf.constant(["b d", "c a"]))


def test_what_is_computed_from_weights_and_assets_is_carried():
    @keras.saving.register_keras_serializable(package="old")
    class Reader(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.lookup = keras.layers.StringLookup()
            self.embed = keras.layers.Embedding(9, 8)
            self.normalize = keras.layers.Normalization()
            self.attend = keras.layers.MultiHeadAttention(2, 4)

        def call(self, texts):
            x = self.normalize(self.embed(self.lookup(texts)))
            return self.attend(x, x)

    reader = Reader()
    reader.lookup.adapt(["a", "b", "c"])
    reader.normalize.adapt(3 * normal((20, 8)) + 2)
    texts = keras.Input((3,), dtype="string")
    old = keras.Model(texts, reader(texts))
    new = keras_attention.upgrade(old)
    assert_same_outputs(old, new, tf.constant([["b", "c", "a"]]))


def test_float_masks_are_read_as_keras_reads_them(tmp_path):
    ids = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(9, 8)(ids)
    mask = keras.ops.cast(ids != 0, "float32")[:, None]
    attend = keras.layers.MultiHeadAttention(2, 4, name="attend")
    old = keras.Model(ids, attend(x, x, attention_mask=mask), name="model")
    new, report = keras_attention.upgrade(old, return_report=True)
    inputs = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 7, 8]])
    assert_same_outputs(old, new, inputs)
    (note,) = report.notes
    assert (note.path, note.what) == ("model/attend", "float mask")
    new.save(tmp_path / "new.keras")
    reloaded = keras.saving.load_model(tmp_path / "new.keras")
    assert_same_outputs(old, reloaded, inputs)
    old.save_weights(tmp_path / "old.weights.h5")
    new.load_weights(tmp_path / "old.weights.h5")


def test_attention_without_weights_is_reported_wherever_it_is():
    @keras.saving.register_keras_serializable(package="old")
    class Pool(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.parts = [
                keras.layers.Attention(name="dot"),
                keras.layers.AdditiveAttention(use_scale=False, name="sum"),
            ]

        def call(self, x):
            return [part([x, x]) for part in self.parts]

    inputs = keras.Input((5, 8))
    old = keras.Model(inputs, Pool(name="pool")(inputs), name="model")
    new, report = keras_attention.upgrade(old, return_report=True)
    assert sorted(change.path for change in report.changes) == [
        "model/pool/dot",
        "model/pool/sum",
    ]
    assert_same_outputs(old, new, normal((2, 5, 8)))


def test_models_that_are_not_built_are_refused():
    model = keras.Sequential([keras.layers.Dense(3)], name="empty")
    with pytest.raises(ValueError, match="'empty' is not built"):
        keras_attention.upgrade(model)


def test_functions_and_plain_constructors_are_made_again():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.attend = keras.layers.MultiHeadAttention(2, 4)
            self.double = keras.layers.Lambda(lambda x: 2 * x)

        def call(self, query, value):
            return self.double(self.attend(query, value))

    x, y = normal((2, 5, 8), (2, 3, 8))
    old = Plain()
    expected = to_numpy(old(x, y))
    new = keras_attention.upgrade(old)
    assert new.name == old.name
    np.testing.assert_allclose(new(x, y), expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_made_again_is_refused():
    class Closed(keras.layers.Layer):
        def __init__(self, attention, secret):
            super().__init__()
            self.attention = attention

        def call(self, inputs):
            return self.attention(inputs, inputs)

    inputs = keras.Input((5, 8))
    closed = Closed(keras.layers.MultiHeadAttention(2, 4), object())
    old = keras.Model(inputs, closed(inputs))
    x = normal((2, 5, 8))
    expected = flat(old, x)
    with pytest.raises(ValueError, match="Closed cannot be made again"):
        keras_attention.upgrade(old)
    np.testing.assert_array_equal(flat(old, x), expected)


def test_models_of_keras_2_and_other_things_are_refused():
    old_keras = type("Model", (), {"__module__": "tf_keras.src.engine"})
    with pytest.raises(TypeError, match="`model` is a model of Keras 2"):
        keras_attention.upgrade(old_keras())
    with pytest.raises(TypeError, match="must be a `keras.Model`"):
        keras_attention.upgrade("model.keras")


def test_the_report_is_printed(capsys):
    old = functional(keras.layers.MultiHeadAttention(2, 4, name="reader"))
    keras_attention.upgrade(old)
    assert not capsys.readouterr().out
    _, report = keras_attention.upgrade(old, verbose=1, return_report=True)
    assert "Replaced: 1 layer" in capsys.readouterr().out
    assert "reader  keras.MultiHeadAttention" in str(report)
    assert str(UpgradeReport()).startswith("Replaced: 0 layers")

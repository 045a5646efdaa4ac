"""Models made of KerasHub's layers; run by `make test-keras-hub`."""

import json
import zipfile

import keras
import keras_hub
import numpy as np
import pytest
from support import fresh_process
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

import keras_attention
from keras_attention.upgrading.files import upgrade_file

B, T, D = 2, 6, 12
IDS = np.array([[7, 4, 9, 1, 0, 0], [3, 8, 2, 6, 1, 5]], "int32")
MASK = (IDS > 0).astype("int32")
SIZES = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 3,
    "hidden_dim": D,
    "intermediate_dim": 20,
    "max_sequence_length": 9,
}
# Runs where KerasHub cannot be imported.
LOAD = """
import json, sys
sys.modules["keras_hub"] = None
import keras, numpy, keras_attention
model = keras.saving.load_model(sys.argv[1])
inputs = {
    name: numpy.array(ids, "int32")
    for name, ids in json.load(open(sys.argv[2])).items()
}
outputs = keras.tree.flatten(model.predict(inputs, verbose=0))
print(json.dumps([x.tolist() for x in outputs]))
"""


def bert():
    inputs = {"token_ids": IDS, "segment_ids": IDS % 2, "padding_mask": MASK}
    return keras_hub.models.BertBackbone(**SIZES, name="bert"), inputs


def gpt2():
    inputs = {"token_ids": IDS, "padding_mask": MASK}
    return keras_hub.models.GPT2Backbone(**SIZES, name="gpt2"), inputs


def encoder_decoder():
    """An encoder and a decoder on one embedding, put together by hand."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embed = keras_hub.layers.TokenAndPositionEmbedding(20, 9, D, mask_zero=True)
    encode = keras_hub.layers.TransformerEncoder(20, 3, normalize_first=True)
    decode = keras_hub.layers.TransformerDecoder(20, 3, activation="gelu")
    outputs = decode(embed(target), encode(embed(source)))
    model = keras.Model({"source": source, "target": target}, outputs)
    return model, {"source": IDS, "target": IDS[::-1, :5].copy()}


@pytest.mark.parametrize("maker", [bert, gpt2, encoder_decoder])
def test_a_model_is_loaded_without_keras_hub(maker, tmp_path):
    old, inputs = maker()
    randomize(old)
    new, report = keras_attention.upgrade(old, return_report=True)
    replaced = {change.before for change in report.changes}
    assert replaced & {
        "keras_hub.TransformerEncoder",
        "keras_hub.TransformerDecoder",
    }
    assert not [n for n in report.notes if "was left alone" in n.why]
    new.save(tmp_path / "new.keras")
    (tmp_path / "inputs.json").write_text(
        json.dumps({k: v.tolist() for k, v in inputs.items()})
    )
    loaded = json.loads(
        fresh_process.run(
            LOAD, tmp_path / "new.keras", tmp_path / "inputs.json"
        )
    )
    visible = inputs.get("target", IDS) > 0
    for one, two, three in zip(
        *(keras.tree.flatten(m(inputs)) for m in (old, new)),
        loaded,
        strict=True,
    ):
        one = to_numpy(one)
        keep = visible if one.ndim == 3 else slice(None)
        for other in (to_numpy(two), np.array(three)):
            np.testing.assert_allclose(
                other[keep], one[keep], rtol=1e-5, atol=1e-5
            )


def test_blocks_take_the_arguments_of_keras_hub():
    arguments = {
        "intermediate_dim": 20,
        "num_heads": 3,
        "dropout": 0.1,
        "activation": "gelu",
        "layer_norm_epsilon": 1e-6,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "normalize_first": True,
    }
    old = keras_hub.layers.TransformerEncoder(**arguments, name="block")
    x = normal((B, T, D))
    inputs = keras.Input((T, D))
    model = keras.Model(inputs, old(inputs))
    randomize(model)
    new = keras_attention.upgrade(model).get_layer("block")
    ours = keras_attention.layers.EncoderBlock(**arguments)
    ours.build(x.shape)
    ours.set_weights(new.get_weights())
    options = {
        "padding_mask": MASK,
        "attention_mask": np.tril(np.ones((B, T, T), "int32")),
        "training": False,
        "return_attention_scores": True,
    }
    pairs = zip(old(x, **options), ours(x, **options), strict=True)
    for (one, two), axis in zip(pairs, (1, 2), strict=True):
        one, two = (np.moveaxis(to_numpy(y), axis, 1) for y in (one, two))
        keep = MASK > 0
        np.testing.assert_allclose(two[keep], one[keep], rtol=1e-5, atol=1e-5)


def masked_ids(width=9):
    ids = np.zeros((B, width), "int32")
    ids[:, :3] = IDS[:, :3]
    return {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}


def causal_lm():
    backbone = keras_hub.models.GPT2Backbone(**SIZES)
    task = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    task.compile(sampler="greedy", jit_compile=False)
    return task, masked_ids()


def seq2seq_lm():
    sizes = {k: v for k, v in SIZES.items() if k != "num_layers"}
    backbone = keras_hub.models.BartBackbone(**sizes, num_layers=2)
    task = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    task.compile(sampler="greedy", jit_compile=False)
    inputs = {"encoder_token_ids": IDS, "encoder_padding_mask": MASK}
    inputs |= {f"decoder_{k}": v for k, v in masked_ids().items()}
    return task, inputs


@pytest.mark.parametrize("maker", [causal_lm, seq2seq_lm])
def test_a_task_keeps_its_class_and_writes_the_same(maker):
    old, inputs = maker()
    randomize(old)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert type(new) is type(old) and len(report.changes) >= 2
    assert any("keeps its methods" in note.why for note in report.notes)
    written = [
        model.generate({**inputs}, stop_token_ids=None) for model in (old, new)
    ]
    for name, expected in written[0].items():
        np.testing.assert_array_equal(written[1][name], expected)


@pytest.mark.parametrize("maker", [causal_lm, seq2seq_lm])
def test_a_task_goes_from_file_to_file(maker, tmp_path):
    old, _ = maker()
    randomize(old)
    old.save(tmp_path / "old.keras")
    result = upgrade_file(tmp_path / "old.keras", tmp_path / "new.keras")
    new = keras.saving.load_model(tmp_path / "new.keras")
    ones = {x.name: np.ones((B, 5), "int32") for x in old.inputs}
    np.testing.assert_allclose(new(ones), old(ones), atol=1e-5)
    config = zipfile.ZipFile(result.path).read("config.json")
    alone = any("without KerasHub" in n.why for n in result.report.notes)
    assert alone == (b"keras_hub" not in config)


def test_a_tied_embedding_stays_tied():
    backbone = keras_hub.models.BertBackbone(**SIZES)
    old = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    randomize(old)
    new = keras_attention.upgrade(old)
    table = new.backbone.get_layer("token_embedding")
    assert new.get_layer("mlm_head").token_embedding is table
    assert len(new.weights) == len(old.weights)
    inputs = {
        "token_ids": IDS[1:],
        "segment_ids": IDS[1:] % 2,
        "padding_mask": MASK[1:],
        "mask_positions": np.array([[1, 3]], "int32"),
    }
    np.testing.assert_allclose(new(inputs), old(inputs), atol=1e-5)


def test_a_task_keeps_its_preprocessor():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=words)
    old = keras_hub.models.BertTextClassifier(
        keras_hub.models.BertBackbone(**SIZES),
        num_classes=3,
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(
            tokenizer, sequence_length=6
        ),
    )
    new = keras_attention.upgrade(old)
    assert type(new) is type(old)
    texts = ["good bad", "bad bad good"]
    expected = old.predict(texts, verbose=0)
    np.testing.assert_allclose(
        new.predict(texts, verbose=0), expected, atol=1e-5
    )


@pytest.mark.parametrize(
    "positions", [np.arange(T)[::-1], np.stack([np.arange(T)] * B) // 2]
)
def test_positions_of_the_callers_own(positions):
    inputs = keras.Input((T, D))
    marked = inputs + keras_hub.layers.PositionEmbedding(9)(
        inputs, positions=positions.astype("int32")
    )
    attend = keras_hub.layers.TransformerEncoder(20, 3)
    old = keras.Model(inputs, attend(marked))
    randomize(old)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert len(report.changes) == 2
    x = normal((B, T, D))
    np.testing.assert_allclose(new(x), old(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("heads", [5, 7])
def test_heads_that_do_not_divide_the_width(heads):
    inputs, memory = keras.Input((T, D)), keras.Input((4, D))
    x = keras_hub.layers.TransformerEncoder(20, heads)(inputs)
    x = keras_hub.layers.TransformerDecoder(20, heads)(x, memory)
    old = keras.Model([inputs, memory], x)
    randomize(old)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert len(report.changes) == 2 and not report.notes
    x = normal((B, T, D), (B, 4, D))
    np.testing.assert_allclose(new(x), old(x), rtol=1e-5, atol=1e-5)


def bloom():
    return keras_hub.models.BloomBackbone(
        vocabulary_size=20,
        num_layers=2,
        num_heads=3,
        hidden_dim=D,
        intermediate_dim=20,
    )


def llama():
    """Its blocks cannot be made again from their configuration."""
    return keras_hub.models.LlamaBackbone(
        vocabulary_size=20,
        num_layers=2,
        num_query_heads=3,
        num_key_value_heads=3,
        hidden_dim=D,
        intermediate_dim=20,
    )


def f_net():
    return keras_hub.models.FNetBackbone(
        vocabulary_size=20,
        num_layers=2,
        hidden_dim=D,
        intermediate_dim=20,
        max_sequence_length=9,
    )


@pytest.mark.parametrize("maker", [bloom, llama, f_net])
def test_backbones_without_attention_of_ours_stay_as_they_are(maker):
    old = maker()
    new, report = keras_attention.upgrade(old, return_report=True)
    assert new is old and not report.changes


def test_a_backbone_with_layers_of_its_own_keeps_its_class():
    old = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3),
        patch_size=4,
        num_layers=2,
        num_heads=3,
        hidden_dim=D,
        mlp_dim=20,
    )
    randomize(old)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert type(new) is type(old) and len(report.changes) == 2
    assert not any("without KerasHub" in note.why for note in report.notes)
    x = normal((B, 16, 16, 3))
    np.testing.assert_allclose(new(x), old(x), rtol=1e-5, atol=1e-5)


def test_what_only_keras_hub_has_is_named():
    inputs = keras.Input((T, D))
    block = keras_hub.layers.TransformerEncoder(20, 3)
    mixed = keras_hub.layers.FNetEncoder(20)(block(inputs))
    old = keras.Model(inputs, mixed)
    new, report = keras_attention.upgrade(old, return_report=True)
    assert len(report.changes) == 1
    assert ["keras_hub.FNetEncoder"] == [note.what for note in report.notes]
    x = normal((B, T, D))
    np.testing.assert_allclose(new(x), old(x), rtol=1e-5, atol=1e-5)

"""Models made of KerasHub's layers; run by `make test-keras-hub`."""

import json

import keras
import keras_hub
import numpy as np
import pytest
from support import fresh_process
from support.arrays import normal
from support.layer_contract import randomize, to_numpy

import keras_attention

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

import keras
import numpy as np
import pytest
from support.layer_contract import to_numpy
from support.peers import where_keras_can

from keras_attention.layers import ReversibleEmbedding
from keras_attention.ops.masks import get_implicit_mask

IDS = np.array([[4, 0, 6, 4], [1, 2, 3, 5]])


def test_looks_up_and_scores_by_one_table():
    layer = ReversibleEmbedding(7, 3, embeddings_initializer="normal")
    vectors = to_numpy(layer(IDS))
    (table,) = layer.get_weights()
    np.testing.assert_array_equal(vectors, table[IDS])
    logits = to_numpy(layer(vectors, reverse=True))
    np.testing.assert_allclose(logits, vectors @ table.T, rtol=1e-5)


def test_logits_are_float32_under_any_policy():
    layer = ReversibleEmbedding(7, 3, dtype="mixed_bfloat16")
    vectors = layer(IDS)
    logits = layer(vectors, reverse=True)
    assert vectors.dtype == "bfloat16" and logits.dtype == "float32"
    table = layer.get_weights()[0]
    wide = to_numpy(keras.ops.cast(vectors, "float32"))
    np.testing.assert_allclose(to_numpy(logits), wide @ table.T, rtol=1e-5)
    symbolic = layer(layer(keras.Input((4,), dtype="int32")), reverse=True)
    assert symbolic.shape == (None, 4, 7) and symbolic.dtype == "float32"


def test_vectors_of_another_width_are_refused():
    layer = ReversibleEmbedding(7, 3)
    with pytest.raises(ValueError, match="3.*inputs.shape"):
        layer(keras.Input((4, 5)), reverse=True)
    with pytest.raises(ValueError, match="input_dim"):
        ReversibleEmbedding(0, 3)


def test_a_second_table_a_cap_and_a_dtype_for_the_way_back():
    layer = ReversibleEmbedding(
        7, 3, False, "normal", logit_soft_cap=0.05, reverse_dtype="float64"
    )
    vectors = layer(IDS)
    table, back = layer.get_weights()
    assert back.shape == (3, 7)
    np.testing.assert_array_equal(vectors, table[IDS])
    logits = layer(vectors, reverse=True)
    assert logits.dtype == "float64"
    right = np.tanh(to_numpy(vectors) @ back / 0.05) * 0.05
    assert np.abs(right).max() > 0.01
    np.testing.assert_allclose(to_numpy(logits), right, rtol=1e-6)
    with pytest.raises(ValueError, match="logit_soft_cap"):
        ReversibleEmbedding(7, 3, logit_soft_cap=0)


@pytest.mark.parametrize(
    "mode", [None, pytest.param("int8", marks=where_keras_can)]
)
def test_the_mask_of_ids_goes_with_the_vectors_and_the_logits(mode):
    layer = ReversibleEmbedding(7, 4, mask_zero=True)
    layer.build()
    if mode is not None:
        layer.quantize(mode)
    symbol = keras.Input((4,), dtype="int32")
    for ids in (IDS, symbol):
        vectors = layer(ids)
        mask = get_implicit_mask(vectors)
        logits = layer(vectors, reverse=True)
        assert logits.dtype == "float32"
        if ids is symbol:
            assert mask.shape == (None, 4)
        else:
            np.testing.assert_array_equal(mask, IDS > 0)
            np.testing.assert_array_equal(get_implicit_mask(logits), IDS > 0)
    assert get_implicit_mask(ReversibleEmbedding(7, 4)(IDS)) is None


def test_weights_and_configuration_are_those_of_keras(tmp_path):
    Keras = getattr(keras.layers, "ReversibleEmbedding", None)
    if Keras is None:
        assert not hasattr(ReversibleEmbedding(7, 4), "inputs_quantizer")
        return
    ids = keras.Input((4,), dtype="int32")
    theirs, ours = (
        keras.Model(ids, layer(layer(ids), reverse=True))
        for layer in (
            kind(7, 3, tie_weights=False, logit_soft_cap=2.0)
            for kind in (Keras, ReversibleEmbedding)
        )
    )
    theirs.save_weights(tmp_path / "model.weights.h5")
    ours.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(ours(IDS), theirs(IDS), atol=1e-6)
    config = theirs.layers[1].get_config()
    back = ReversibleEmbedding.from_config(config).get_config()
    assert {name: back[name] for name in config} == config

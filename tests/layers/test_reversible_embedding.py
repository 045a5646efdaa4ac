import keras
import numpy as np
import pytest
from support.layer_contract import to_numpy

from keras_attention.layers import ReversibleEmbedding

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

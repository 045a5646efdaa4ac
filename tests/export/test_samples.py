"""Made-up inputs fit the signature and stay in range."""

import numpy as np
import tensorflow as tf

from keras_attention.export.samples import Samples, find_bounds, pad_rows

SPECS = {
    "ids": tf.TensorSpec((None, None), "int32", "ids"),
    "padding_mask": tf.TensorSpec((None, None), "int32", "padding_mask"),
    "size": tf.TensorSpec((None, 3), "float32", "size"),
}


def test_batches_have_the_length_asked_for():
    samples = Samples(SPECS, bounds={"ids": 4})
    assert samples.has_length and samples.has_padding
    batch = samples.make(6, 7)
    assert batch["ids"].shape == batch["padding_mask"].shape == (6, 7)
    assert batch["ids"].dtype == np.int32
    assert set(batch["ids"].ravel()) == {1, 2, 3}
    assert batch["padding_mask"].all()
    assert batch["size"].shape == (6, 3)
    images = Samples({"x": tf.TensorSpec((None, None, 5, 3), "float32")})
    assert images.make(2, 1)["x"].shape == (2, 32, 5, 3)


def test_a_row_is_the_same_alone_and_beside_others():
    samples = Samples(SPECS, bounds={"ids": 900})
    rows = samples.rows([3, 6])
    batch, alone = samples.batch(rows), samples.batch(rows[:1])
    np.testing.assert_array_equal(batch["ids"][:1, :3], alone["ids"])
    np.testing.assert_array_equal(batch["size"][:1], alone["size"])
    assert not batch["ids"][0, 3:].any()
    assert not batch["padding_mask"][0, 3:].any()


def test_examples_hold_the_inputs_of_the_default_signature():
    spec = {"examples": tf.TensorSpec((None,), tf.string, "examples")}
    samples = Samples(spec, SPECS, {"ids": 9})
    (serialized,) = samples.make(1, 4)["examples"]
    feature = tf.train.Example.FromString(serialized).features.feature
    assert len(feature["ids"].int64_list.value) == 4
    assert len(feature["size"].float_list.value) == 3
    features = Samples(spec, {"size": SPECS["size"]})
    assert not features.has_padding and not features.has_length


def test_texts_have_as_many_words():
    samples = Samples({"text": tf.TensorSpec((None,), tf.string, "text")})
    texts = samples.batch(samples.rows([0, 1, 5]))["text"]
    assert [len(text.split()) for text in texts] == [0, 1, 5]


def test_texts_fit_the_shape_of_a_row():
    def make(*shape):
        spec = tf.TensorSpec((None, *shape), tf.string, "text")
        return Samples({"text": spec}).make(3, 4)["text"]

    assert make(1).shape == (3, 1) and len(make(1)[0, 0].split()) == 4
    assert make(2).shape == (3, 2) and len(make(2)[0, 0].split()) == 1
    assert make(None).shape == (3, 4)


def test_bounds_are_read_from_the_error():
    def run(inputs):
        if inputs["ids"].max() >= 30:
            raise RuntimeError("indices[0,1] = 1000 is not in [0, 30)")

    assert find_bounds(SPECS, run) == {"ids": 30}
    assert find_bounds(SPECS, lambda inputs: None) == {"ids": 1001}


def test_rows_of_any_rank_are_padded():
    rows = [np.ones((2, 3)), np.ones((4, 1))]
    padded = pad_rows(rows, -1)
    assert padded.shape == (2, 4, 3)
    assert padded[0, 2:].max() == padded[1, :, 1:].max() == -1
    assert pad_rows([np.array(3), np.array(4)]).tolist() == [3, 4]

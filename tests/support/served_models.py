"""Small models of each kind that the tests of the package serve."""

import keras
from keras import layers

from keras_attention.layers import MultiHeadAttention

VOCABULARY = ["good", "bad", "film", "very", "not"]


def vectorization(**kwargs):
    return layers.TextVectorization(vocabulary=VOCABULARY, **kwargs)


def encoded_ids(width=8, dropout=0.5):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(30, width, mask_zero=True)(ids)
    attend = MultiHeadAttention(2, 4, dropout=dropout, name="reader")
    x = layers.Add()([x, attend(x, x)])
    return ids, layers.Dropout(dropout)(x)


def text_classifier():
    ids, x = encoded_ids()
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(3, name="label")(x))


def tagger():
    ids, x = encoded_ids()
    tags = layers.Dense(4, activation="softmax", name="tag")(x)
    return keras.Model({"ids": ids}, {"tag": tags, "vector": x})


def image_classifier():
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(6, 2, strides=2)(image)
    x = layers.Reshape((16, 6))(x)
    x = MultiHeadAttention(3, 2, name="looker")(x, x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(image, layers.Dense(5, name="digit")(x))


def half_precision(policy):
    keras.config.set_dtype_policy(policy)
    try:
        features = keras.Input((None, 6), name="features")
        x = layers.Dense(8)(features)
        x = MultiHeadAttention(2, 4, name="reader")(x, x)
        return keras.Model(features, layers.Dense(3, name="score")(x))
    finally:
        keras.config.set_dtype_policy("float32")


BUILDERS = {
    "text": text_classifier,
    "tagger": tagger,
    "image": image_classifier,
    "mixed_float16": lambda: half_precision("mixed_float16"),
    "mixed_bfloat16": lambda: half_precision("mixed_bfloat16"),
}

"""Small models of each kind that the tests of the package serve."""

import functools

import keras
from keras import layers

from keras_attention import models
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


def _stack(policy="float32"):
    return {
        "hidden_dim": 8,
        "num_heads": 2,
        "num_layers": 1,
        "intermediate_dim": 12,
        "dropout": 0.5,
        "dtype": policy,
    }


def factory_text(policy="float32"):
    return models.text_classifier(30, 3, **_stack(policy))


def factory_tokens(policy="float32"):
    return models.token_classifier(30, 4, **_stack(policy))


def factory_image(policy="float32"):
    return models.image_classifier((8, 6, 1), 2, 5, **_stack(policy))


FACTORIES = {
    "text_classifier": factory_text,
    "token_classifier": factory_tokens,
    "image_classifier": factory_image,
}

BUILDERS = {
    "text": text_classifier,
    "tagger": tagger,
    "image": image_classifier,
    "mixed_float16": lambda: half_precision("mixed_float16"),
    "mixed_bfloat16": lambda: half_precision("mixed_bfloat16"),
    **FACTORIES,
    **{
        f"{name}-{policy}": functools.partial(FACTORIES[name], policy)
        for name in ("text_classifier", "image_classifier")
        for policy in ("mixed_float16", "mixed_bfloat16")
    },
}

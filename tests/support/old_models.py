"""Models made without the package, small, with random weights in them."""

import keras
import numpy as np
from keras import layers
from support.arrays import normal
from support.layer_contract import randomize

B, T, S, D = 2, 5, 4, 12


@keras.saving.register_keras_serializable(package="old")
class Block(keras.layers.Layer):
    """Holds its layers in a list and a dictionary, and makes them itself."""

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.attentions = [
            layers.MultiHeadAttention(num_heads, 4, name=f"attend_{i}")
            for i in range(2)
        ]
        self.others = {"norm": layers.LayerNormalization(name="norm")}

    def build(self, input_shape):
        for attention in self.attentions:
            attention.build(input_shape, input_shape)
        self.others["norm"].build(input_shape)

    def call(self, inputs):
        for attention in self.attentions:
            inputs = inputs + attention(inputs, inputs)
        return self.others["norm"](inputs)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


@keras.saving.register_keras_serializable(package="old")
class Classifier(keras.Model):
    """A subclassed model with layers of a user inside."""

    def __init__(self, num_heads=3, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.embed = layers.Embedding(20, D)
        self.blocks = [Block(num_heads), Block(num_heads)]
        self.query = layers.Dense(D)
        self.attend = layers.Attention(use_scale=True)

    def call(self, inputs, training=None):
        x = self.embed(inputs)
        for block in self.blocks:
            x = block(x)
        return self.attend([self.query(x), x])

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


def bert_like():
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(20, D, mask_zero=True)(ids)
    for i in range(2):
        attend = layers.MultiHeadAttention(3, 4, dropout=0.1, name=f"mha_{i}")
        x = layers.LayerNormalization()(layers.Add()([x, attend(x, x)]))
        y = layers.Dense(D)(layers.Dense(20, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, layers.Dense(3)(x), name="bert"), _IDS


def vit_like():
    image = keras.Input((8, 12, 3), name="image")
    x = layers.Conv2D(D, 4, strides=4)(image)
    x = keras.ops.reshape(x, (-1, 6, D))
    y = layers.LayerNormalization()(x)
    attend = layers.GroupQueryAttention(4, 6, 2, use_bias=False, name="gqa")
    x = x + attend(y, y)
    return keras.Model(image, x[:, 0], name="vit"), normal((B, 8, 12, 3))


def encoder_decoder():
    """Calls an embedding and an attention layer twice, and a nested model."""
    embed = layers.Embedding(20, D, name="embed")
    attend = layers.MultiHeadAttention(3, 4, name="shared")
    x = keras.Input((None, D))
    inner = layers.MultiHeadAttention(4, 3, name="inner")
    encoder = keras.Model(x, x + inner(x, x), name="encoder")
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = encoder(attend(embed(source), embed(source)))
    y = attend(embed(target), embed(target), use_causal_mask=True)
    y, scores = layers.MultiHeadAttention(2, 5, value_dim=7, name="cross")(
        y, memory, return_attention_scores=True
    )
    y = layers.AdditiveAttention(name="bahdanau")([y, memory])
    model = keras.Model(
        {"source": source, "target": target},
        {"decoded": y, "scores": scores, "memory": memory},
        name="seq2seq",
    )
    return model, {"source": _IDS[:, :S], "target": _IDS}


def subclassed():
    model = Classifier(name="classifier")
    model(_IDS)
    return model, _IDS


def sequential():
    model = keras.Sequential(
        [
            keras.Input((T, D)),
            layers.Dense(D, trainable=False),
            Block(3, name="block"),
            keras.Sequential([layers.Dense(7)], name="head"),
        ],
        name="stack",
    )
    return model, normal((B, T, D))


_IDS = np.array([[7, 4, 9, 1, 19], [3, 8, 2, 6, 1]], "int32")
MAKERS = (bert_like, vit_like, encoder_decoder, subclassed, sequential)


def make(maker):
    """Returns a model with random weights, and what it is called with."""
    model, inputs = maker()
    randomize(model)
    return model, inputs

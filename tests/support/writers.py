"""Small models that write, and the slow way to write with them."""

import keras
import numpy as np

from keras_attention import models

VOCABULARY, PAD, END = 20, 0, 5
PROMPTS = [[3, 4, 5, 6, 7], [9], [8, 2, 11], [1, 1], [19, 18, 17, 2]]
SOURCES = [[3, 4, 5, 6, 7, 1], [9], [8, 2, 11]]

STACK = {
    "hidden_dim": 16,
    "num_heads": 4,
    "num_layers": 1,
    "intermediate_dim": 12,
    "dropout": 0.3,
    "tie_embeddings": False,
}


def language_model(**stack):
    """Returns a model whose tokens change from step to step."""
    model = models.causal_language_model(VOCABULARY, **{**STACK, **stack})
    return scatter(model)


def translator(**stack):
    """Returns a sequence-to-sequence model of the same kind."""
    model = models.sequence_to_sequence(VOCABULARY, 18, **{**STACK, **stack})
    return scatter(model)


def scatter(model, seed=0):
    """Gives a model random weights that make it say many things."""
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        noise = rng.normal(size=variable.shape)
        if "embedding" in variable.path:
            variable.assign(noise)
        elif noise.ndim > 1:
            variable.assign(2 * noise / noise.shape[0] ** 0.5)
        else:
            variable.assign(variable + 0.1 * noise)
    return model


def write_anew(model, prompt, count, end_token=None, source=None):
    """Writes greedily, and reads everything again at each step."""
    tokens = []
    while len(tokens) < count and end_token not in tokens:
        ids = np.array([prompt + tokens], "int32")
        if source is not None:
            ids = {"source_ids": np.array([source]), "target_ids": ids}
        logits = model(ids, training=False)[0, -1]
        logits = keras.ops.convert_to_numpy(logits).copy()
        logits[PAD] = -np.inf
        tokens.append(int(np.argmax(logits)))
    return tokens + [PAD] * (count - len(tokens))


def padded(rows):
    """Returns rows as an array, filled up with padding."""
    array = np.full((len(rows), max(map(len, rows))), PAD, "int32")
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = row
    return array

"""Every public layer and model factory, as tests and archives need them.

A layer stands here with each constructor argument away from its default, so
that an argument lost on the way changes a configuration, a weight or an
output. Sizes of distinct axes are distinct.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from support.arrays import coins, normal
from support.layer_contract import randomize

from keras_attention import layers, models

B, T, S, D, DV = 2, 5, 3, 8, 6


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """A layer by its arguments, and arrays to call it with.

    Attributes:
        layer_class: The class.
        arguments: Every constructor argument of its own, none at its default.
        tensors: Arrays by call argument, as `build` takes their shapes.
        options: Further arrays by call argument, such as masks.
    """

    layer_class: type
    arguments: dict[str, Any]
    tensors: dict[str, np.ndarray]
    options: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def arrays(self):
        """All arrays to call the layer with."""
        return {**self.tensors, **self.options}

    @property
    def has_dropout(self):
        """Whether a call in training draws random numbers."""
        return "dropout" in self.arguments

    def make(self, **arguments):
        """Returns a new layer."""
        own = {name: _copy(value) for name, value in self.arguments.items()}
        return self.layer_class(**{**own, **arguments})

    def by_default(self):
        """Returns the case with all that has a default left at it."""
        parameters = inspect.signature(self.layer_class).parameters
        required = {
            name: value
            for name, value in self.arguments.items()
            if parameters[name].default is parameters[name].empty
        }
        return dataclasses.replace(self, arguments=required)

    def build(self, layer):
        """Builds a layer, or whatever has its `build`, without a call."""
        names = inspect.signature(self.layer_class.build).parameters
        shapes = [self.tensors[argument].shape for argument in self.tensors]
        layer.build(*[(None, *s[1:]) for s in shapes][: len(names) - 1])

    def model(self, layer=None):
        """Returns a functional model around a layer, random weights in it."""
        inputs = symbolic(self.arrays)
        outputs = (layer or self.make(name="subject"))(**inputs)
        model = keras.Model(inputs, {"outputs": outputs})
        randomize(model)
        return model


@dataclasses.dataclass(frozen=True)
class FactoryCase:
    """A model factory by its arguments, and arrays to call the model with."""

    factory: Callable
    arguments: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def model(self, **arguments):
        """Returns a new model, random weights in it."""
        model = self.factory(**{**self.arguments, **arguments})
        randomize(model)
        return model


def symbolic(arrays, prefix=""):
    """Returns a `keras.Input` for each array, its lengths left open.

    Features and the size of an image are fixed; batch and time are not, nor
    any axis of a mask.
    """
    return {
        name: keras.Input(
            _open_shape(array), name=prefix + name, dtype=str(array.dtype)
        )
        for name, array in arrays.items()
    }


def _copy(argument):
    """Returns a layer of its own for each layer that is injected."""
    if isinstance(argument, keras.Layer):
        return type(argument).from_config(argument.get_config())
    return argument


def _open_shape(array):
    if array.dtype == bool or array.ndim == 2:
        return (None,) * (array.ndim - 1)
    return array.shape[1:] if array.ndim == 4 else (None, array.shape[-1])


_KERNEL = {
    "kernel_initializer": keras.initializers.HeNormal(seed=7),
    "kernel_regularizer": keras.regularizers.L2(0.03),
    "kernel_constraint": keras.constraints.MaxNorm(2.0),
}
_DENSE = {
    **_KERNEL,
    "bias_initializer": keras.initializers.RandomUniform(seed=5),
    "bias_regularizer": keras.regularizers.L1(0.02),
    "bias_constraint": keras.constraints.NonNeg(),
    "activity_regularizer": keras.regularizers.L1L2(0.01, 0.04),
}
_DROPOUT = {"dropout": 0.3, "seed": 13}

_BLOCK = {
    "num_heads": 2,
    "intermediate_dim": 11,
    "activation": "gelu",
    "layer_norm_epsilon": 0.01,
    "normalize_first": True,
    "use_bias": False,
    "kernel_initializer": keras.initializers.HeNormal(seed=7),
    "bias_initializer": keras.initializers.RandomUniform(seed=5),
    **_DROPOUT,
}

_SEQUENCE = normal((B, T, D))
_QUERY, _KEY, _VALUE = normal((B, T, D), (B, S, D), (B, S, DV))
_QUERY_KEY_VALUE = {"query": _QUERY, "key": _KEY, "value": _VALUE}
_MASKS = {
    "query_mask": np.array([[True] * 4 + [False], [True] * 5]),
    "value_mask": np.array([[True, True, False], [True] * 3]),
    "attention_mask": coins(B, T, S),
}
_IDS = np.array([[7, 4, 9, 0, 0], [3, 8, 2, 6, 1]], "int32")
_FEATURES = _SEQUENCE * (_IDS > 0)[:, :, None]
_IMAGE = normal((B, 4, 6, 3))


def _catalogue(*cases):
    return {case.layer_class.__name__: case for case in cases}


LAYERS: dict[str, LayerCase] = _catalogue(
    LayerCase(
        layers.AdditiveAttention,
        {"units": 7, "use_scale": False, **_KERNEL, **_DROPOUT},
        _QUERY_KEY_VALUE,
        _MASKS,
    ),
    LayerCase(
        layers.Attention,
        {"use_scale": True, "score_mode": "concat", **_DROPOUT},
        _QUERY_KEY_VALUE,
        _MASKS,
    ),
    LayerCase(
        layers.AlibiBias,
        {"num_heads": 3, "alibi_bias_max": 6},
        {
            "query_positions": np.array([[4, 5], [7, 9]], "int32"),
            "key_positions": np.array([[0, 1, 2], [3, 5, 8]], "int32"),
        },
    ),
    LayerCase(
        layers.DecoderBlock,
        {
            **_BLOCK,
            "attention": layers.MultiHeadAttention(4, 3, **_DROPOUT),
            "cross_attention": layers.MultiHeadAttention(1, 5, **_DROPOUT),
        },
        {"decoder_sequence": _SEQUENCE, "encoder_sequence": _VALUE},
        {
            "decoder_padding_mask": _MASKS["query_mask"],
            "encoder_padding_mask": _MASKS["value_mask"],
            "encoder_attention_mask": _MASKS["attention_mask"],
        },
    ),
    LayerCase(
        layers.EncoderBlock,
        {
            **_BLOCK,
            "attention": layers.MultiHeadAttention(4, 3, **_DROPOUT),
        },
        {"inputs": _SEQUENCE},
        {
            "padding_mask": _MASKS["query_mask"],
            "attention_mask": coins(B, T, T),
        },
    ),
    LayerCase(
        layers.FeedForward,
        {
            "intermediate_dim": 11,
            "activation": "gelu",
            "output_dim": 9,
            "use_bias": False,
            **_DENSE,
            **_DROPOUT,
        },
        {"inputs": _SEQUENCE},
    ),
    LayerCase(
        layers.GroupedQueryAttention,
        {
            "head_dim": 2,
            "num_query_heads": 6,
            "num_key_value_heads": 3,
            "use_bias": False,
            "sliding_window": 2,
            "flash_attention": False,
            **_DENSE,
            "use_gate": True,
            **_DROPOUT,
        },
        {"query": _QUERY, "value": _VALUE, "key": _KEY},
        _MASKS,
    ),
    LayerCase(
        layers.MultiHeadAttention,
        {
            "num_heads": 4,
            "key_dim": 2,
            "value_dim": 3,
            "use_bias": False,
            "output_shape": (10,),
            "attention_axes": (1,),
            "sliding_window": 2,
            "flash_attention": False,
            **_DENSE,
            "use_gate": True,
            "num_key_value_heads": 2,
            "position": layers.RotaryEmbedding(50, pairing="interleaved"),
            "qk_norm": True,
            **_DROPOUT,
        },
        {"query": _QUERY, "value": _VALUE, "key": _KEY},
        _MASKS,
    ),
    LayerCase(
        layers.MultiplicativeAttention,
        {"score": "general", **_KERNEL, **_DROPOUT},
        _QUERY_KEY_VALUE,
        _MASKS,
    ),
    LayerCase(layers.PaddingMask, {"pad_id": 9}, {"inputs": _IDS}),
    LayerCase(
        layers.PatchEmbedding,
        {
            "patch_size": (2, 3),
            "embed_dim": 7,
            "use_bias": False,
            "kernel_initializer": keras.initializers.HeNormal(seed=7),
            "bias_initializer": keras.initializers.Ones(),
        },
        {"inputs": _IMAGE},
    ),
    LayerCase(
        layers.PositionEmbedding,
        {
            "sequence_length": 9,
            "initializer": keras.initializers.RandomNormal(seed=3),
        },
        {"inputs": _SEQUENCE},
    ),
    LayerCase(
        layers.ReversibleEmbedding,
        {
            "input_dim": 10,
            "output_dim": 7,
            "tie_weights": False,
            "mask_zero": True,
            "reverse_dtype": "float16",
            "logit_soft_cap": 30.0,
            "embeddings_initializer": keras.initializers.RandomNormal(seed=3),
            "embeddings_regularizer": keras.regularizers.L2(0.03),
            "embeddings_constraint": keras.constraints.MaxNorm(2.0),
        },
        {"inputs": _IDS},
    ),
    LayerCase(
        layers.RotaryEmbedding,
        {
            "max_wavelength": 50,
            "scaling_factor": 2.0,
            "pairing": "interleaved",
            "sequence_axis": 2,
            "feature_axis": 3,
        },
        {"inputs": normal((B, 4, 6, 8))},
    ),
    LayerCase(
        layers.ScaledDotProductAttention,
        {
            "scale": 0.7,
            "sliding_window": 2,
            "flash_attention": False,
            **_DROPOUT,
        },
        _QUERY_KEY_VALUE,
        _MASKS,
    ),
    LayerCase(
        layers.SequencePooling,
        {"mode": "max"},
        {"inputs": _SEQUENCE},
        {"mask": _MASKS["query_mask"]},
    ),
    LayerCase(
        layers.SinusoidalPositionEncoding,
        {"max_wavelength": 50},
        {"inputs": _SEQUENCE},
    ),
)

_STACK = {
    "hidden_dim": 12,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 10,
    "dropout": 0.3,
    "activation": "gelu",
    "normalize_first": False,
    "max_length": 16,
}
_TEXT = {"vocabulary_size": 10, "pad_id": 3, **_STACK}
_WRITER = {
    **_STACK,
    "pad_id": 3,
    "hidden_dim": 16,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 3,
    "tie_embeddings": False,
}
_TOKEN_IDS = {"token_ids": np.where(_IDS == 0, 3, _IDS)}

FACTORIES: dict[str, FactoryCase] = {
    case.factory.__name__: case
    for case in (
        FactoryCase(
            models.causal_language_model,
            {"vocabulary_size": 10, **_WRITER, "positions": "alibi"},
            _TOKEN_IDS,
        ),
        FactoryCase(models.encoder, {**_TEXT, "positions": None}, _TOKEN_IDS),
        FactoryCase(
            models.image_classifier,
            {
                "image_shape": (4, 6, 3),
                "patch_size": (2, 3),
                "num_classes": 5,
                "pooling": "first",
                "classifier_activation": None,
                **_STACK,
                "positions": "sinusoidal",
            },
            {"image": _IMAGE},
        ),
        FactoryCase(
            models.sequence_classifier,
            {
                "num_features": D,
                "num_classes": 3,
                "pad_value": 1.0,
                "pooling": "max",
                "classifier_activation": "sigmoid",
                **_STACK,
                "positions": "learned",
            },
            {"features": np.where(_FEATURES == 0, 1.0, _FEATURES)},
        ),
        FactoryCase(
            models.sequence_regressor,
            {
                "num_features": D,
                "num_outputs": 2,
                "return_sequences": True,
                "pad_value": None,
                **_STACK,
            },
            {"features": _FEATURES},
        ),
        FactoryCase(
            models.sequence_to_sequence,
            {
                "source_vocabulary_size": 10,
                "target_vocabulary_size": 12,
                **_WRITER,
                "positions": "rotary",
            },
            {
                "source_ids": _TOKEN_IDS["token_ids"],
                "target_ids": np.array([[7, 11, 3], [1, 2, 9]], "int32"),
            },
        ),
        FactoryCase(
            models.text_classifier,
            {
                **_TEXT,
                "num_classes": 4,
                "pooling": "first",
                "classifier_activation": None,
                "positions": "learned",
            },
            _TOKEN_IDS,
        ),
        FactoryCase(
            models.token_classifier,
            {
                **_TEXT,
                "num_classes": 4,
                "classifier_activation": "sigmoid",
                "positions": "learned",
            },
            _TOKEN_IDS,
        ),
    )
}

CASES: dict[str, LayerCase | FactoryCase] = {
    **LAYERS,
    **{f"{name}_by_default": c.by_default() for name, c in LAYERS.items()},
    **FACTORIES,
}

"""Which layers are replaced, and by what."""

from __future__ import annotations

import dataclasses
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import keras

from keras_attention import layers
from keras_attention.layers.activations import gelu_approximate
from keras_attention.upgrading.hub import is_hub

# Members of KerasHub's blocks, and where ours hold the same.
_BLOCKS = (layers.EncoderBlock, layers.DecoderBlock)
_HUB_MEMBERS = {
    "_self_attention_layer": "attention",
    "_self_attention_layer_norm": "attention_norm",
    "_cross_attention_layer": "cross_attention",
    "_cross_attention_layer_norm": "cross_attention_norm",
    "_feedforward_layer_norm": "feed_forward_norm",
    "_feedforward_intermediate_dense": "feed_forward.intermediate_dense",
    "_feedforward_output_dense": "feed_forward.output_dense",
}


class CannotReplaceError(ValueError):
    """A layer that has to stay what it is; the message says why."""


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A class of layers, and how one of ours is made in its place.

    Attributes:
        source: The class that is replaced; its subclasses are not.
        make: Returns our layer from the configuration of the other, or
            raises `CannotReplaceError`.
        same_calls: Whether ours is called just like the other, so that it
            may stand in a user's own code.
        attends: Whether it is attention, and so a reason to upgrade.
    """

    source: type
    make: Callable[[dict[str, Any]], keras.layers.Layer]
    same_calls: bool = True
    attends: bool = True

    def from_arguments(self, args, kwargs):
        """Returns our layer from what the constructor of `source` takes."""
        signature = inspect.signature(self.source.__init__)
        arguments = dict(signature.bind(None, *args, **kwargs).arguments)
        del arguments["self"]
        return self.make({**arguments.pop("kwargs", {}), **arguments})


def replacements() -> list[Replacement]:
    """Returns what can be replaced among the packages in use.

    KerasHub is not imported: a model with its layers has done so.
    """
    found = [
        Replacement(getattr(keras.layers, name), _same(ours))
        for name, ours in (
            ("MultiHeadAttention", layers.MultiHeadAttention),
            ("GroupQueryAttention", layers.GroupedQueryAttention),
            ("Attention", layers.Attention),
            ("AdditiveAttention", layers.AdditiveAttention),
        )
    ]
    hub = getattr(sys.modules.get("keras_hub"), "layers", None)
    if hub is not None:
        found += [
            Replacement(hub.TransformerEncoder, _encoder_block),
            Replacement(hub.TransformerDecoder, _decoder_block),
            Replacement(
                hub.ReversibleEmbedding,
                _same(layers.ReversibleEmbedding),
                attends=False,
            ),
            Replacement(
                hub.PositionEmbedding,
                _same(layers.PositionEmbedding),
                same_calls=False,
                attends=False,
            ),
            Replacement(
                hub.TokenAndPositionEmbedding,
                _token_and_position_embedding,
                same_calls=False,
                attends=False,
            ),
        ]
    return found


def call_in_graph(layer, source, *args, **kwargs):
    """Calls a layer of a new graph as `source` was called in the old one."""
    if is_hub(source) and isinstance(layer, layers.PositionEmbedding):
        # Ours adds the positions, the other returns them alone.
        inputs, *rest = args
        return layer(keras.ops.zeros_like(inputs), *rest, **kwargs)
    if is_hub(source) and isinstance(source, keras.Model):
        # Its layers become those of the outer model: Keras does not load a
        # layer that both models hold, such as a tied embedding.
        return layer.call(*args, **kwargs)
    return layer(*args, **kwargs)


def boolean_masks(source, args, kwargs):
    """Returns the arguments of a call with its float masks cast to boolean.

    Layers of Keras do so themselves, ours refuse such masks.

    Args:
        source: The layer that is called.
        args: Positional arguments.
        kwargs: Arguments by name.

    Returns:
        The new `(args, kwargs)`, or None if there is no float mask.
    """
    found = []

    def cast(value):
        if "float" not in str(getattr(value, "dtype", "")):
            return value
        found.append(value)
        return keras.ops.cast(value, "bool")

    def read(name, value):
        if not name.endswith("mask"):
            return value
        return keras.tree.map_structure(cast, value)

    names = inspect.signature(source.call).parameters
    args = [read(*pair) for pair in zip(names, args, strict=False)]
    kwargs = {name: read(name, value) for name, value in kwargs.items()}
    return (args, kwargs) if found else None


def hub_members(old, new):
    """Returns pairs of the members of a block of KerasHub and of ours.

    None for any other pair of layers, whose members have one order.
    """
    if not is_hub(old) or type(new) not in _BLOCKS:
        return None
    pairs = []
    for theirs, ours in _HUB_MEMBERS.items():
        member = getattr(old, theirs, None)
        if member is not None:
            part = operator.attrgetter(ours)(new)
            pairs.append((member, part))
    return pairs


def _same(ours):
    """Returns a maker for a layer that takes the same arguments."""

    def make(config):
        return ours.from_config({**config})

    return make


def _encoder_block(config):
    return layers.EncoderBlock.from_config(_plain_activation(config))


def _decoder_block(config):
    shapes = ("decoder_sequence_shape", "encoder_sequence_shape")
    config = {k: v for k, v in config.items() if k not in shapes}
    return layers.DecoderBlock.from_config(_plain_activation(config))


def _token_and_position_embedding(config):
    """Returns the two embeddings, one after the other."""
    if not config.get("tie_weights", True):
        raise CannotReplaceError(
            "its table for the reverse projection would be lost"
        )
    initializer = config.get("embeddings_initializer", "uniform")
    common = {"dtype": config.get("dtype")}
    return keras.Sequential(
        [
            keras.layers.Embedding(
                config["vocabulary_size"],
                config["embedding_dim"],
                embeddings_initializer=initializer,
                mask_zero=config.get("mask_zero", False),
                name="token_embedding",
                **common,
            ),
            layers.PositionEmbedding(
                config["sequence_length"],
                initializer=initializer,
                name="position_embedding",
                **common,
            ),
        ],
        name=config.get("name"),
    )


def _plain_activation(config):
    """Returns `config` with an activation that loads without KerasHub."""
    function = keras.activations.get(config.get("activation", "relu"))
    if is_hub(function):
        if function.__name__ != "gelu_approximate":
            raise CannotReplaceError(
                f"its activation `{function.__name__}` belongs to KerasHub"
            )
        function = gelu_approximate
    return {**config, "activation": function}

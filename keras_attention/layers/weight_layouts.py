"""What other libraries call the arrays of a layer, and how they lie."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import keras
import numpy as np

_PROJECTIONS = ("query_dense", "key_dense", "value_dense", "output_dense")


@dataclasses.dataclass(frozen=True)
class Layout:
    """What another library calls the parts of a layer.

    Attributes:
        projections: Beginnings of the names of query, key, value and output.
        attention: Those of the attention layers in a block, by our names.
        parts: Those of the other parts, by our names.
        parts_with_cross: The same in a block with cross-attention.
    """

    projections: tuple[str, ...]
    attention: dict[str, str]
    parts: dict[str, str]
    parts_with_cross: dict[str, str]


_TORCH_PARTS = {
    "attention_norm": "norm1.",
    "feed_forward.intermediate_dense": "linear1.",
    "feed_forward.output_dense": "linear2.",
}
TORCH = Layout(
    ("q_proj_", "k_proj_", "v_proj_", "out_proj."),
    {"attention": "self_attn.", "cross_attention": "multihead_attn."},
    {**_TORCH_PARTS, "feed_forward_norm": "norm2."},
    {
        **_TORCH_PARTS,
        "cross_attention_norm": "norm2.",
        "feed_forward_norm": "norm3.",
    },
)
_BERT_PARTS = {
    "attention_norm": "attention.output.LayerNorm.",
    "feed_forward.intermediate_dense": "intermediate.dense.",
    "feed_forward.output_dense": "output.dense.",
    "feed_forward_norm": "output.LayerNorm.",
}
HUGGING_FACE = Layout(
    ("self.query.", "self.key.", "self.value.", "output.dense."),
    {"attention": "attention.", "cross_attention": "crossattention."},
    _BERT_PARTS,
    {
        **_BERT_PARTS,
        "cross_attention_norm": "crossattention.output.LayerNorm.",
    },
)


@dataclasses.dataclass(frozen=True)
class Slot:
    """A variable of ours, and the matrix or vector another library has.

    Attributes:
        name: Name of the array there.
        variable: The variable here.
        inputs: Number of axes of the variable that are contracted.
    """

    name: str
    variable: Any
    inputs: int = 0

    @property
    def shape(self):
        """Shape of the array there."""
        shape = tuple(self.variable.shape)
        rows, columns = shape[self.inputs :], shape[: self.inputs]
        sizes = (math.prod(rows), math.prod(columns))
        return sizes if self.inputs else sizes[:1]

    def to_ours(self, array):
        """Returns an array of the other library in our layout."""
        return array.T.reshape(self.variable.shape)

    def to_theirs(self):
        """Returns the variable in the layout of the other library."""
        array = keras.ops.convert_to_numpy(self.variable)
        return np.ascontiguousarray(array.reshape(self.shape[::-1]).T)


def is_block(layer):
    """Whether a layer is an encoder or decoder block."""
    return hasattr(layer, "intermediate_dim")


def attentions(layer, layout):
    """Returns pairs of a beginning of names and a built attention layer."""
    found = [("", layer)]
    if is_block(layer):
        found = [
            (prefix, getattr(layer, name, None))
            for name, prefix in layout.attention.items()
        ]
    found = [pair for pair in found if pair[1] is not None]
    for _, inner in found or [("", layer)]:
        if not hasattr(inner, "query_dense"):
            raise ValueError(
                "`layer` must be a built `MultiHeadAttention`, or a block "
                f"that attends by it. Received: layer={layer!r} with "
                f"{type(inner).__name__}"
            )
    return found


def slots_of(layer, layout) -> list[Slot]:
    """Returns the slots of a built layer."""
    slots = []
    inner_layers = attentions(layer, layout)
    for prefix, inner in inner_layers:
        if getattr(inner, "use_gate", False):
            raise ValueError(
                f"The layer {inner.name!r} has a gate, which no other "
                "library's layer has. Received: use_gate=True"
            )
        for member, name in zip(_PROJECTIONS, layout.projections, strict=True):
            dense = getattr(inner, member)
            inputs = len(dense.kernel.shape) - 1
            if member != "output_dense":
                inputs = 1
            slots.append(Slot(f"{prefix}{name}weight", dense.kernel, inputs))
            if dense.bias is not None:
                slots.append(Slot(f"{prefix}{name}bias", dense.bias))
    if not is_block(layer):
        return slots
    parts = layout.parts_with_cross if inner_layers[1:] else layout.parts
    for path, name in parts.items():
        part = operator.attrgetter(path)(layer)
        is_dense = isinstance(part, keras.layers.Dense)
        weight = part.kernel if is_dense else part.gamma
        bias = part.bias if is_dense else part.beta
        slots.append(Slot(f"{name}weight", weight, int(is_dense)))
        if bias is not None:
            slots.append(Slot(f"{name}bias", bias))
    return slots

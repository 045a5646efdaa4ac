"""How attention heads learn where their queries and keys stand."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers.alibi_bias import AlibiBias
from keras_attention.layers.rotary_embedding import RotaryEmbedding


def resolve(position, num_heads, dtype):
    """Returns the layer that `position` stands for, or None.

    Args:
        position: None, "rotary", "alibi", an `AlibiBias`, or a layer that is
            called with heads `(B, T, N, H)` and `positions=`.
        num_heads: Number of query heads.
        dtype: Dtype policy for a layer that is made here.

    Raises:
        ValueError: Anything else.
    """
    if isinstance(position, AlibiBias) and position.num_heads != num_heads:
        raise ValueError(
            "The bias must have a slope for each query head. Received: "
            f"num_heads={num_heads}, position with "
            f"num_heads={position.num_heads}"
        )
    if position is None or isinstance(position, keras.layers.Layer):
        return position
    if position == "rotary":
        return RotaryEmbedding(dtype=dtype, name="rotary")
    if position == "alibi":
        return AlibiBias(num_heads, dtype=dtype, name="alibi")
    raise ValueError(
        '`position` must be None, "rotary", "alibi", or a layer such as '
        "`RotaryEmbedding(max_wavelength=500000)` or `AlibiBias(num_heads)`. "
        f"Received: position={position!r}"
    )


def build(layer, heads_shape) -> None:
    """Builds a position layer, unless it is built already.

    Args:
        layer: As `resolve` returns it.
        heads_shape: Shape `(B, T, N, H)` of projected queries.

    Raises:
        ValueError: The layer has a place for one axis of positions only.
    """
    if layer is None:
        return
    if len(heads_shape) != 4:
        raise ValueError(
            "`position` needs one axis of positions: inputs (B, T, D). "
            f"Received: inputs of rank {len(heads_shape) - 1}"
        )
    if not layer.built:
        layer.build(heads_shape)


def rotate(layer, heads, positions):
    """Returns heads `(B, T, N, H)` that know their positions."""
    if layer is None or isinstance(layer, AlibiBias):
        return heads
    return layer(heads, positions=positions)


def add_bias(layer, bias, query_positions, key_positions):
    """Returns the additive bias together with that of the positions.

    Args:
        layer: As `resolve` returns it.
        bias: Additive bias `(B, N, T, S)`, any axis of which may be 1, or
            None.
        query_positions: `(T,)` or `(B, T)`.
        key_positions: `(S,)` or `(B, S)`.
    """
    if not isinstance(layer, AlibiBias):
        return bias
    fading = layer(query_positions, key_positions)
    if len(fading.shape) == 3:
        fading = ops.expand_dims(fading, 0)
    if bias is None:
        return fading
    return ops.cast(bias, fading.dtype) + fading

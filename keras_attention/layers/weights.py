"""Weights of attention layers, to and from the layouts of other libraries.

With D the model width, N heads of width H, and `N * H = D`:

| library | array | shape | holds |
|---|---|---|---|
| Keras, ours | `query`, `key`, `value` kernel | `(D, N, H)` | `x @ kernel` |
| | their biases | `(N, H)` | |
| | `attention_output` kernel, bias | `(N, H, D)`, `(D,)` | |
| PyTorch | `in_proj_weight` | `(3D, D)` | rows of query, key, value |
| | `in_proj_bias` | `(3D,)` | likewise |
| | `q_`, `k_`, `v_proj_weight` | `(D, D)`, `(D, kdim)`, `(D, vdim)` | if the \
widths differ |
| | `out_proj.weight`, `.bias` | `(D, D)`, `(D,)` | `x @ weight.T` |
| Hugging Face | `query`, `key`, `value`, `dense` weight | `(D, D)` | \
`x @ weight.T` |

Row `n * H + h` of a `(D, D)` matrix belongs to head n, so that its transpose,
reshaped to `(D, N, H)`, is the kernel.

A state is any mapping from names to arrays. What has PyTorch's `detach`,
`cpu` and `numpy` is read by them; PyTorch itself is not imported. An unbuilt
layer is built by the shapes that are found. Nothing is assigned unless all
arrays fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_attention.layers.weight_layouts import (
    HUGGING_FACE,
    TORCH,
    Slot,
    attentions,
    is_block,
    slots_of,
)


def load_torch(layer, state: Mapping[str, Any], prefix: str = "") -> None:
    """Loads weights of PyTorch into an attention layer or a block.

    Args:
        layer: A `MultiHeadAttention`, for the state of an
            `nn.MultiheadAttention`, an `EncoderBlock`, for that of an
            `nn.TransformerEncoderLayer`, or a `DecoderBlock`, for that of an
            `nn.TransformerDecoderLayer`.
        state: Mapping from names to arrays or tensors: a `state_dict()`.
        prefix: What stands before the names, such as "encoder.layers.0.".

    Raises:
        ValueError: An array is missing, has another shape, or has no place.

    Example:

    >>> from keras_attention.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=4)
    >>> load_torch(layer, {
    ...     "in_proj_weight": np.ones((48, 16)), "in_proj_bias": np.ones(48),
    ...     "out_proj.weight": np.ones((16, 16)), "out_proj.bias": np.ones(16)})
    >>> tuple(layer.query_dense.kernel.shape)
    (16, 4, 4)
    """
    arrays = _under(state, prefix)
    names = TORCH.attention.values() if is_block(layer) else ("",)
    for attention in names:
        _unpack(arrays, attention, prefix)
    _load(layer, TORCH, arrays, prefix)


def dump_torch(layer, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the weights of a layer as PyTorch names and lays them out.

    Args:
        layer: A built `MultiHeadAttention`, `EncoderBlock` or
            `DecoderBlock`.
        prefix: What to put before the names.

    Returns:
        Dictionary of arrays, in one `in_proj_weight` where query, key and
        value are of one width, as in PyTorch.

    Raises:
        ValueError: PyTorch's layer has no such weights.

    Example:

    >>> from keras_attention.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=4)
    >>> layer.build((None, None, 16), (None, None, 16))
    >>> {name: array.shape for name, array in dump_torch(layer).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'out_proj.weight': (16, 16), 'out_proj.bias': (16,),
     'in_proj_weight': (48, 16), 'in_proj_bias': (48,)}
    """
    arrays = {slot.name: slot.to_theirs() for slot in slots_of(layer, TORCH)}
    for attention, inner in attentions(layer, TORCH):
        width = math.prod(inner.query_dense.kernel.shape[1:])
        output = arrays[f"{attention}out_proj.weight"]
        if output.shape != (width, width):
            raise ValueError(
                "PyTorch's attention has heads that share the width of the "
                f"model evenly. The layer {inner.name!r} has "
                f"{inner.num_heads} heads of {width} features in all, and an "
                f"output projection of shape {output.shape}."
            )
        _pack(arrays, attention)
    return {prefix + name: array for name, array in arrays.items()}


def load_hugging_face(
    layer, state: Mapping[str, Any], prefix: str = ""
) -> None:
    """Loads weights named like those of BERT in Hugging Face Transformers.

    Args:
        layer: A `MultiHeadAttention`, for the arrays `self.query.weight` to
            `output.dense.bias` of a `BertAttention`, or an `EncoderBlock`,
            for those of a `BertLayer`, or a `DecoderBlock`, for those of one
            with `crossattention`. BERT's blocks have the activation "gelu"
            and a `layer_norm_epsilon` of 1e-12.
        state: Mapping from names to arrays or tensors.
        prefix: What stands before the names, such as
            "bert.encoder.layer.0.", and for a `MultiHeadAttention`
            "bert.encoder.layer.0.attention.".

    Raises:
        ValueError: An array is missing, has another shape, or has no place.

    Example:

    >>> from keras_attention.layers import MultiHeadAttention
    >>> names = ("self.query", "self.key", "self.value", "output.dense")
    >>> state = {f"{n}.weight": np.ones((16, 16)) for n in names}
    >>> state |= {f"{n}.bias": np.ones(16) for n in names}
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=4)
    >>> load_hugging_face(layer, state)
    >>> tuple(layer.output_dense.kernel.shape)
    (4, 4, 16)
    """
    _load(layer, HUGGING_FACE, _under(state, prefix), prefix)


def dump_hugging_face(layer, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the weights of a layer as `load_hugging_face` takes them.

    Args:
        layer: A built `MultiHeadAttention`, `EncoderBlock` or
            `DecoderBlock`.
        prefix: What to put before the names.

    Returns:
        Dictionary of arrays.

    Example:

    >>> from keras_attention.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=4, use_bias=False)
    >>> layer.build((None, None, 16), (None, None, 16))
    >>> list(dump_hugging_face(layer, "attention."))[:2]
    ['attention.self.query.weight', 'attention.self.key.weight']
    """
    slots = slots_of(layer, HUGGING_FACE)
    return {prefix + slot.name: slot.to_theirs() for slot in slots}


def _load(layer, layout, arrays, prefix) -> None:
    """Builds a layer, if it is not built, and assigns its weights."""
    if not layer.built:
        _build(layer, layout, arrays, prefix)
    slots = slots_of(layer, layout)
    known = [name for name, _ in attentions(layer, layout)]
    for name in layout.attention.values() if is_block(layer) else ():
        found = [array for array in arrays if array.startswith(name)]
        if found and name not in known:
            raise ValueError(
                f"`{prefix}{found[0]}` has no place in the layer "
                f"{layer.name!r}, a {type(layer).__name__} without "
                "cross-attention."
            )
    _assign(layer, slots, arrays, prefix)


def _under(state, prefix) -> dict[str, np.ndarray]:
    """Returns the arrays whose names begin with `prefix`, without it."""
    found = {
        name[len(prefix) :]: _array(value)
        for name, value in state.items()
        if name.startswith(prefix) and value is not None
    }
    if not found:
        raise ValueError(
            f"No name in `state` begins with {prefix!r}. Received: "
            f"prefix={prefix!r}, state with names {_listed(state)}"
        )
    return found


def _array(value) -> np.ndarray:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    try:
        return value.numpy()
    except TypeError:  # NumPy has no bfloat16.
        return value.float().numpy()


def _unpack(arrays, attention, prefix) -> None:
    """Puts three arrays in the place of each packed one."""
    for extra in ("bias_k", "bias_v"):
        if attention + extra in arrays:
            raise ValueError(
                f"`{prefix}{attention}{extra}` has no counterpart: layers of "
                "Keras add no learned key and value to a sequence "
                "(`add_bias_kv` of PyTorch)."
            )
    for kind in ("weight", "bias"):
        name = f"{attention}in_proj_{kind}"
        packed = arrays.pop(name, None)
        if packed is None:
            continue
        width = packed.shape[-1] if kind == "weight" else packed.shape[0] / 3
        rest = packed.shape[1:]
        if packed.ndim != 2 - (kind == "bias") or len(packed) != 3 * width:
            expected = "(3D, D)" if kind == "weight" else "(3D,)"
            raise ValueError(
                f"`{prefix}{name}` must hold the query, key and value "
                f"projections, of shape {expected}. Received: shape "
                f"{packed.shape}"
            )
        parts = packed.reshape(3, -1, *rest)
        for part, projection in zip(parts, TORCH.projections, strict=False):
            arrays[f"{attention}{projection}{kind}"] = part


def _pack(arrays, attention) -> None:
    """Puts one packed array in the place of three of one shape."""
    for kind in ("weight", "bias"):
        names = [f"{attention}{p}{kind}" for p in TORCH.projections[:3]]
        parts = [arrays[name] for name in names if name in arrays]
        if parts and len({part.shape for part in parts}) == 1:
            for name in names:
                del arrays[name]
            arrays[f"{attention}in_proj_{kind}"] = np.concatenate(parts)


def _build(layer, layout, arrays, prefix) -> None:
    """Builds a layer by the widths of its arrays."""

    def shape(attention, projection):
        name = f"{attention}{layout.projections[projection]}weight"
        return None, None, _get(arrays, name, prefix).shape[-1]

    if not is_block(layer):
        layer.build(shape("", 0), shape("", 2), shape("", 1))
        return
    inner, cross = layout.attention.values()
    shapes = [shape(inner, 0)]
    if hasattr(layer, "cross_attention") and any(
        name.startswith(cross) for name in arrays
    ):
        shapes.append(shape(cross, 1))
    layer.build(*shapes)


def _assign(layer, slots: Iterable[Slot], arrays, prefix) -> None:
    """Assigns all arrays, after all have been checked."""
    values = []
    for slot in slots:
        array = _get(arrays, slot.name, prefix)
        if array.shape != slot.shape:
            raise ValueError(
                f"`{prefix}{slot.name}` has the shape {array.shape}, where "
                f"the layer {layer.name!r} takes {slot.shape}, for its "
                f"`{slot.variable.path}` of shape "
                f"{tuple(slot.variable.shape)}."
            )
        values.append(slot.to_ours(array))
    names = [slot.name for slot in slots]
    for name in names:
        bias = name.removesuffix("weight") + "bias"
        if name.endswith("weight") and bias in arrays.keys() - {*names}:
            raise ValueError(
                f"`{prefix}{bias}` of shape {arrays[bias].shape} has no place "
                f"in the layer {layer.name!r}, which has no biases. "
                f"Received: use_bias={layer.use_bias}"
            )
    for slot, value in zip(slots, values, strict=True):
        slot.variable.assign(value)


def _get(arrays, name, prefix) -> np.ndarray:
    if name not in arrays:
        raise ValueError(
            f"`state` has no array `{prefix}{name}`. Received: prefix="
            f"{prefix!r}, state with names {_listed(arrays)}"
        )
    return arrays[name]


def _listed(names) -> str:
    shown = ", ".join(map(str, list(names)[:12]))
    return shown + (", ..." if len(names) > 12 else "")

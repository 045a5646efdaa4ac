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

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

_PROJECTIONS = ("query_dense", "key_dense", "value_dense", "output_dense")
_TORCH = ("q_proj_", "k_proj_", "v_proj_", "out_proj.")
_HUGGING_FACE = ("self.query.", "self.key.", "self.value.", "output.dense.")
# Per part of a block: ours, PyTorch's and Hugging Face's.
_BLOCK_PARTS = (
    ("attention_norm", "norm1.", "attention.output.LayerNorm."),
    ("feed_forward.intermediate_dense", "linear1.", "intermediate.dense."),
    ("feed_forward.output_dense", "linear2.", "output.dense."),
    ("feed_forward_norm", "norm2.", "output.LayerNorm."),
)


@dataclasses.dataclass(frozen=True)
class _Slot:
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


def load_torch(layer, state: Mapping[str, Any], prefix: str = "") -> None:
    """Loads weights of PyTorch into an attention layer or an encoder block.

    Args:
        layer: A `MultiHeadAttention`, for the state of an
            `nn.MultiheadAttention`, or an `EncoderBlock`, for that of an
            `nn.TransformerEncoderLayer`.
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
    attention = "self_attn." if _is_block(layer) else ""
    _unpack(arrays, attention, prefix)
    _build(layer, arrays, prefix, attention, _TORCH)
    _assign(layer, _torch_slots(layer, attention), arrays, prefix)


def dump_torch(layer, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the weights of a layer as PyTorch names and lays them out.

    Args:
        layer: A built `MultiHeadAttention` or `EncoderBlock`.
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
    attention = "self_attn." if _is_block(layer) else ""
    slots = _torch_slots(layer, attention)
    arrays = {slot.name: slot.to_theirs() for slot in slots}
    width = math.prod(_attention(layer).query_dense.kernel.shape[1:])
    if arrays[f"{attention}out_proj.weight"].shape != (width, width):
        raise ValueError(
            "PyTorch's attention has heads that share the width of the model "
            f"evenly. The layer {layer.name!r} has "
            f"{layer.num_heads} heads of {width} features in all, and an "
            "output projection of shape "
            f"{arrays[f'{attention}out_proj.weight'].shape}."
        )
    for kind in ("weight", "bias"):
        names = [f"{attention}{p}{kind}" for p in _TORCH[:3]]
        parts = [arrays[name] for name in names if name in arrays]
        if parts and len({part.shape for part in parts}) == 1:
            for name in names:
                del arrays[name]
            arrays[f"{attention}in_proj_{kind}"] = np.concatenate(parts)
    return {prefix + name: array for name, array in arrays.items()}


def load_hugging_face(
    layer, state: Mapping[str, Any], prefix: str = ""
) -> None:
    """Loads weights named like those of BERT in Hugging Face Transformers.

    Args:
        layer: A `MultiHeadAttention`, for the arrays `self.query.weight` to
            `output.dense.bias` of a `BertAttention`, or an `EncoderBlock`,
            for those of a `BertLayer`. BERT's blocks have the activation
            "gelu" and a `layer_norm_epsilon` of 1e-12.
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
    arrays = _under(state, prefix)
    attention = "attention." if _is_block(layer) else ""
    _build(layer, arrays, prefix, attention, _HUGGING_FACE)
    _assign(layer, _hugging_face_slots(layer, attention), arrays, prefix)


def dump_hugging_face(layer, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the weights of a layer as `load_hugging_face` takes them.

    Args:
        layer: A built `MultiHeadAttention` or `EncoderBlock`.
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
    attention = "attention." if _is_block(layer) else ""
    slots = _hugging_face_slots(layer, attention)
    return {prefix + slot.name: slot.to_theirs() for slot in slots}


def _is_block(layer):
    return hasattr(layer, "feed_forward_norm") or hasattr(
        layer, "intermediate_dim"
    )


def _attention(layer):
    return layer.attention if _is_block(layer) else layer


def _torch_slots(layer, attention):
    blocks = [(ours, theirs) for ours, theirs, _ in _BLOCK_PARTS]
    return _slots(layer, attention, _TORCH, blocks)


def _hugging_face_slots(layer, attention):
    blocks = [(ours, theirs) for ours, _, theirs in _BLOCK_PARTS]
    return _slots(layer, attention, _HUGGING_FACE, blocks)


def _slots(layer, attention, names, blocks) -> list[_Slot]:
    """Returns the slots of a built layer."""
    inner = _attention(layer)
    if getattr(inner, "use_gate", False):
        raise ValueError(
            f"The layer {inner.name!r} has a gate, which no other library's "
            "layer has. Received: use_gate=True"
        )
    slots = []
    for member, name in zip(_PROJECTIONS, names, strict=True):
        dense = getattr(inner, member)
        inputs = len(dense.kernel.shape) - 1 if member == "output_dense" else 1
        slots.append(_Slot(f"{attention}{name}weight", dense.kernel, inputs))
        if dense.bias is not None:
            slots.append(_Slot(f"{attention}{name}bias", dense.bias))
    for path, name in blocks if _is_block(layer) else ():
        part = layer
        for attribute in path.split("."):
            part = getattr(part, attribute)
        is_dense = isinstance(part, keras.layers.Dense)
        weight = part.kernel if is_dense else part.gamma
        bias = part.bias if is_dense else part.beta
        slots.append(_Slot(f"{name}weight", weight, int(is_dense)))
        if bias is not None:
            slots.append(_Slot(f"{name}bias", bias))
    return slots


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
        for part, projection in zip(parts, _TORCH[:3], strict=True):
            arrays[f"{attention}{projection}{kind}"] = part


def _build(layer, arrays, prefix, attention, names) -> None:
    """Builds a layer by the widths of its arrays, if it is not built."""
    if layer.built:
        return
    query, key, value = (
        (None, None, _get(arrays, f"{attention}{name}weight", prefix).shape[-1])
        for name in names[:3]
    )
    if _is_block(layer):
        layer.build(query)
    else:
        layer.build(query, value, key)


def _assign(layer, slots: Iterable[_Slot], arrays, prefix) -> None:
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

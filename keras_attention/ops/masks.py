"""Attention masks: built, checked and combined here and nowhere else.

One convention everywhere: **True (or 1) means "may attend"**.

An `AttentionMask` keeps the parts of a mask apart. A padding mask stays
`(B, S)` and causality stays a flag, so that a kernel working block by block
never sees a tensor of shape `(T, S)` unless the caller passed one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.ops.inputs import check_dense, check_inputs
from keras_attention.ops.tracing import known

Tensor = Any


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMask:
    """The parts of an attention mask, each None where it hides nothing.

    Leading axes of every part are ready to broadcast against those of the
    scores, whose shape is `(..., T, S)`.

    Attributes:
        full: Boolean tensor `(..., T, S)` given by the caller.
        query: Boolean tensor `(..., T)`: queries that may attend at all.
        key: Boolean tensor `(..., S)`: keys that may be attended to.
        causal: Whether a query sees only keys at or before its position.
        window: A query sees keys fewer than `window` positions away.
        offset: Position of the first query among the keys; non-zero when
            the earlier keys come from a cache.
    """

    full: Tensor = None
    query: Tensor = None
    key: Tensor = None
    causal: bool = False
    window: int | None = None
    offset: Any = 0

    @property
    def by_position(self) -> bool:
        """Whether positions hide keys, by causality or a window."""
        return self.causal or self.window is not None

    def dense(self, query_length, key_length) -> Tensor:
        """Returns all parts as one tensor that broadcasts to `(..., T, S)`.

        None stands for "hides nothing".
        """
        return self.block(0, query_length, 0, key_length, self)

    def block(
        self, query_start, query_length, key_start, key_length, parts=None
    ) -> Tensor:
        """Returns the mask of one rectangle of the scores.

        Args:
            query_start: Index of the first query row.
            query_length: Number of query rows.
            key_start: Index of the first key column.
            key_length: Number of key columns.
            parts: The tensor parts already cut to that rectangle. Cut here
                when None.

        Returns:
            A boolean tensor that broadcasts to `(..., query_length,
            key_length)`, or None where nothing is hidden.
        """
        parts = parts or self.cut(
            query_start, query_length, key_start, key_length
        )
        visible = parts.without_positions()
        if self.by_position:
            band = position_mask(
                query_length,
                key_length,
                causal=self.causal,
                window=self.window,
                offset=self.offset + query_start - key_start,
            )
            visible = both(visible, band)
        return visible

    def cut(
        self, query_start, query_length, key_start, key_length
    ) -> AttentionMask:
        """Returns the tensor parts cut to one rectangle of the scores."""
        rows = slice(query_start, query_start + query_length)
        columns = slice(key_start, key_start + key_length)
        return dataclasses.replace(
            self,
            full=None if self.full is None else self.full[..., rows, columns],
            query=None if self.query is None else self.query[..., rows],
            key=None if self.key is None else self.key[..., columns],
        )

    def visible_queries(self) -> Tensor:
        """Returns which queries see anything, or None for all.

        A boolean tensor that broadcasts to `(..., T)`. Causality and windows
        are not looked at: they set an order among positions, none of which
        is padding.
        """
        if self.full is not None:
            return ops.any(self.without_positions(), axis=-1)
        return both(self.query, _any_of(self.key))

    def visible_keys(self) -> Tensor:
        """Returns which keys are seen by any query, or None for all.

        A boolean tensor that broadcasts to `(..., S)`. Causality and windows
        are not looked at.
        """
        if self.full is not None:
            return ops.any(self.without_positions(), axis=-2)
        return both(self.key, _any_of(self.query))

    def restricted_to(self, visible) -> AttentionMask:
        """Returns this mask with what `visible` does not show hidden too.

        Args:
            visible: Boolean array or tensor of a shape that
                `attention_mask` may have, True where a query may attend, or
                None.
        """
        if visible is None:
            return self
        visible = as_boolean(visible, "visible")
        visible = fit(visible, self._rank() or len(visible.shape))
        return dataclasses.replace(self, full=both(self.full, visible))

    def with_rank(self, rank) -> AttentionMask:
        """Returns this mask with `full` ready for scores of that rank."""
        if self.full is None:
            return self
        return dataclasses.replace(self, full=fit(self.full, rank))

    def hidden_by(self, bias) -> AttentionMask:
        """Returns this mask with the keys that `bias` hides hidden too."""
        return self.restricted_to(visible_in(bias))

    def _rank(self) -> int:
        """Returns the rank of the scores it is for, 0 if nothing tells."""
        parts = (self.full, 0), (self.query, 1), (self.key, 1)
        ranks = [len(x.shape) + more for x, more in parts if x is not None]
        return max(ranks, default=0)

    def without_positions(self) -> Tensor:
        """Returns the tensor parts alone, joined to `(..., T, S)`, or None."""
        visible = self.full
        if self.query is not None:
            visible = both(visible, ops.expand_dims(self.query, -1))
        if self.key is not None:
            visible = both(visible, ops.expand_dims(self.key, -2))
        return visible


def combine(
    query_shape,
    key_shape,
    *,
    attention_mask=None,
    attention_bias=None,
    query_mask=None,
    value_mask=None,
    key_mask=None,
    use_causal_mask=False,
    sliding_window=None,
    offset=0,
) -> AttentionMask:
    """Checks every mask argument and joins them by logical AND.

    Args:
        query_shape: Static shape of the query, `(..., T, H)`.
        key_shape: Static shape of the key, `(..., S, H)`.
        attention_mask: `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`. Rank 2 is always `(T, S)`.
        attention_bias: Additive bias as `check_bias` returns it; its entries
            of minus infinity hide their keys.
        query_mask: `(B, T)`, False for padding.
        value_mask: `(B, S)`, False for padding.
        key_mask: `(B, S)`, False for padding.
        use_causal_mask: Whether queries see only keys at or before them.
        sliding_window: Positive integer or None.
        offset: Position of the first query among the keys.

    Returns:
        An `AttentionMask`.

    Raises:
        TypeError: A mask of floating-point values that are not all 0 or 1.
        ValueError: A mask of another shape than those above.

    Example:

    >>> mask = combine((2, 3, 8), (2, 5, 8), use_causal_mask=True,
    ...                key_mask=np.ones((2, 5)))
    >>> tuple(mask.key.shape), mask.full
    ((2, 5), None)
    """
    sliding_window = check_window(sliding_window)
    lead, length_q = tuple(query_shape[:-2]), query_shape[-2]
    length_s = key_shape[-2]
    rank = len(lead)

    full = check_full(
        attention_mask, "attention_mask", lead, length_q, length_s
    )
    full = both(full, visible_in(attention_bias))
    query = check_padding(query_mask, "query_mask", lead, length_q)
    key = both(
        check_padding(value_mask, "value_mask", lead, length_s),
        check_padding(key_mask, "key_mask", lead, length_s),
    )
    # A mask with one row is a key mask, one with one column a query mask:
    # told apart here, they need no (T, S) tensor later.
    if full is not None and full.shape[-2] == 1 and length_q != 1:
        key = both(key, _fit(full[..., 0, :], rank + 1))
        full = None
    elif full is not None and full.shape[-1] == 1 and length_s != 1:
        query = both(query, _fit(full[..., 0], rank + 1))
        full = None
    return AttentionMask(
        full, query, key, bool(use_causal_mask), sliding_window, offset
    )


def as_boolean(mask, name="mask") -> Tensor:
    """Returns `mask` as a boolean tensor, refusing additive masks.

    Args:
        mask: Boolean or integer array, tensor or KerasTensor. Floating-point
            values are taken only where they can be seen and are all 0 or 1.
        name: Name of the argument, for the error.

    Returns:
        A boolean tensor of the same shape, or None for None.

    Raises:
        TypeError: The values are neither boolean nor integers, nor floats
            known to be 0 or 1.

    Example:

    >>> as_boolean(np.array([1, 1, 0])).dtype.name
    'bool'
    """
    if mask is None:
        return None
    check_dense(**{name: mask})
    if not hasattr(mask, "dtype"):
        mask = np.asarray(mask)
    kind = _dtype_name(mask)
    if kind.startswith(("float", "bfloat")):
        if not (_is_rehearsal(mask) or _only_zeros_and_ones(mask)):
            raise TypeError(
                f"`{name}` must be boolean (or integers), True where a "
                "position may be attended to. Floating-point values are "
                "ambiguous unless they can be seen to be exactly 0 or 1. "
                f'Cast a 0/1 mask with `ops.cast({name}, "bool")`; pass '
                "values that are to be added to the scores as "
                f"`attention_bias`. Received: {name}.dtype={kind}, "
                f"{name}.shape={tuple(mask.shape)}"
            )
    elif kind != "bool" and not kind.startswith(("int", "uint")):
        raise TypeError(
            f"`{name}` must be a boolean or integer tensor, True where a "
            f"position may be attended to. Received: {name}={mask!r}"
        )
    return ops.cast(mask, "bool")


def check_full(mask, name, lead, query_length, key_length) -> Tensor:
    """Returns `mask` as booleans that broadcast to `lead + (T, S)`."""
    if mask is None:
        return None
    mask = as_boolean(mask, name)
    _check_full_shape(mask, name, lead, query_length, key_length)
    return fit(mask, len(lead) + 2)


def check_bias(bias, lead, query_length, key_length) -> Tensor:
    """Returns an additive bias ready to broadcast to `lead + (T, S)`."""
    if bias is None:
        return None
    if not hasattr(bias, "dtype"):
        bias = np.asarray(bias, dtype="float32")
    kind = _dtype_name(bias)
    if not kind.startswith(("float", "bfloat")):
        raise TypeError(
            "`attention_bias` must be floating-point values to add to the "
            "scores. Pass a mask (True = may attend) as `attention_mask`. "
            f"Received: attention_bias.dtype={kind}, "
            f"attention_bias.shape={tuple(bias.shape)}"
        )
    bias = ops.convert_to_tensor(bias)
    _check_full_shape(bias, "attention_bias", lead, query_length, key_length)
    return fit(bias, len(lead) + 2)


def finite_bias(bias, dtype) -> Tensor:
    """Returns a bias in the dtype of scores, with its ends for infinities.

    Minus infinity is hidden through the mask; as a number it would turn a
    wholly hidden row into NaN, as infinity would at a hidden key.
    """
    limit = float(np.finfo(keras.backend.standardize_dtype(dtype)).max)
    # Numbers of a wider dtype may be beyond the ends of the other.
    if _dtype_name(bias) != "float64":
        bias = ops.cast(bias, dtype)
    bias = ops.clip(bias, -limit, limit)
    return ops.cast(bias, dtype)


def visible_in(bias) -> Tensor:
    """Returns where a bias is above minus infinity, or None for no bias."""
    return None if bias is None else ops.greater(bias, -np.inf)


def check_padding(mask, name, lead, length) -> Tensor:
    """Returns a `(B, length)` mask that broadcasts to `lead + (length,)`."""
    if mask is None:
        return None
    mask = as_boolean(mask, name)
    accepted = {"(B, length)": (*lead[:1], length)}
    if len(lead) > 1:
        accepted["one value a position"] = (*lead, length)
    _check_shape(mask, name, accepted)
    return _fit(mask, len(lead) + 1, axis=-2)


def fit(tensor, rank) -> Tensor:
    """Returns a mask or bias `(T, S)` to `(B, N, T, S)` with `rank` axes."""
    return None if tensor is None else _fit(tensor, rank, axis=-3)


def check_window(window) -> int | None:
    """Returns `window` if it is None or a positive integer, or refuses it."""
    if window is None:
        return None
    is_int = isinstance(window, (int, np.integer)) and window is not True
    if not (is_int and window > 0):
        raise ValueError(
            "`sliding_window` must be `None` or a positive integer: the "
            "number of positions a query sees on each side, itself "
            f"included. Received: sliding_window={window}"
        )
    return int(window)


def position_mask(
    query_length, key_length, causal=False, window=None, offset=0
) -> Tensor:
    """Returns the boolean mask `(T, S)` that positions alone decide.

    Args:
        query_length: Number of queries, T. An integer or a scalar tensor.
        key_length: Number of keys, S. An integer or a scalar tensor.
        causal: Whether query t sees only keys s with `s <= t + offset`.
        window: When set, query t sees only keys with
            `abs(t + offset - s) < window`.
        offset: Position of the first query among the keys.

    Returns:
        A boolean tensor of shape `(T, S)`.

    Example:

    >>> ops.convert_to_numpy(position_mask(2, 3, causal=True)).tolist()
    [[True, False, False], [True, True, False]]
    """
    rows = ops.expand_dims(ops.arange(query_length, dtype="int32"), 1)
    columns = ops.expand_dims(ops.arange(key_length, dtype="int32"), 0)
    distance = rows - columns + ops.cast(offset, "int32")
    visible = None
    if causal:
        visible = distance >= 0
    if window is not None:
        visible = both(visible, ops.abs(distance) < window)
    if visible is None:
        visible = ops.ones_like(distance, dtype="bool")
    return visible


def causal_mask(query_length, key_length=None, offset=0) -> Tensor:
    """Returns a causal mask `(T, S)`, aligned top-left.

    Example:

    >>> ops.convert_to_numpy(causal_mask(2)).tolist()
    [[True, False], [True, True]]
    """
    key_length = query_length if key_length is None else key_length
    return position_mask(query_length, key_length, causal=True, offset=offset)


def padding_mask(inputs, pad_id=0) -> Tensor:
    """Returns a `(B, T)` mask that is False at padding.

    Args:
        inputs: Ids `(B, T)`, or features `(B, T, F)`.
        pad_id: The id of padding, or the value of each of its features,
            which may be NaN.

    Example:

    >>> ops.convert_to_numpy(padding_mask(np.array([[7, 4, 0]]))).tolist()
    [[True, True, False]]
    """
    check_inputs(inputs=inputs)
    if pad_id == pad_id:
        tokens = ops.not_equal(inputs, pad_id)
    else:
        # NaN equals nothing, itself included.
        _refuse_integers(inputs)
        tokens = ops.logical_not(ops.isnan(inputs))
    return ops.any(tokens, axis=-1) if len(inputs.shape) == 3 else tokens


def length_mask(lengths, max_length) -> Tensor:
    """Returns a `(B, max_length)` mask, True for the first `lengths` steps.

    Example:

    >>> ops.convert_to_numpy(length_mask(np.array([1, 2]), 3)).tolist()
    [[True, False, False], [True, True, False]]
    """
    check_inputs(lengths=lengths)
    lengths = ops.cast(lengths, "int32")
    steps = ops.arange(max_length, dtype="int32")
    return ops.less(steps, ops.expand_dims(lengths, -1))


def combine_masks(*masks) -> Tensor:
    """Returns the logical AND of masks that broadcast together.

    None stands for a mask that hides nothing.

    Example:

    >>> tuple(combine_masks(causal_mask(3), None,
    ...                     np.ones((2, 1, 3), "bool")).shape)
    (2, 3, 3)
    """
    joined = None
    for mask in masks:
        joined = both(joined, as_boolean(mask))
    return joined


def hide(inputs, visible) -> Tensor:
    """Returns `inputs` `(..., length, D)` with zeros at hidden positions.

    Selected, not multiplied, so that NaN and infinity vanish as well, in
    the forward and in the backward pass.

    Args:
        inputs: Tensor `(..., length, D)`.
        visible: Boolean tensor that broadcasts to `(..., length)`, or None.

    Returns:
        A tensor shaped and typed like `inputs`.
    """
    if visible is None:
        return inputs
    zero = ops.zeros((), dtype=inputs.dtype)
    return ops.where(ops.expand_dims(visible, -1), inputs, zero)


def get_implicit_mask(tensor) -> Tensor:
    """Returns the mask Keras keeps with a tensor, or None."""
    return getattr(tensor, "_keras_mask", None)


def set_implicit_mask(tensor, mask) -> None:
    """Lets `mask` travel with `tensor` to the next Keras layer."""
    # Eager arrays of some backends take no attributes; neither does Keras
    # carry a mask on those.
    try:
        tensor._keras_mask = mask
    except AttributeError:
        pass


def both(first, second) -> Tensor:
    """Returns the logical AND of two masks, where None hides nothing."""
    if first is None or second is None:
        return second if first is None else first
    if max(len(first.shape), len(second.shape)) > 5:
        # TensorFlow's AND takes no more axes that broadcast in turns.
        return ops.where(first, second, False)
    return ops.logical_and(first, second)


def _any_of(mask) -> Tensor:
    """Whether a padding mask leaves anything, `(..., 1)`, or None."""
    return None if mask is None else ops.any(mask, axis=-1, keepdims=True)


def _fit(tensor, rank, axis=-2) -> Tensor:
    """Inserts axes of size one at `axis` until `tensor` has `rank` axes."""
    while len(tensor.shape) < rank:
        # Below two axes there is no room left of `axis`: go to the front.
        tensor = ops.expand_dims(tensor, max(axis, -len(tensor.shape) - 1))
    return tensor


def _check_full_shape(tensor, name, lead, query_length, key_length) -> None:
    accepted: dict[str, tuple] = {"(T, S)": (query_length, key_length)}
    if lead:
        accepted["(B, T, S)"] = (lead[0], query_length, key_length)
    if len(lead) == 2:
        accepted["(B, N, T, S)"] = (*lead, query_length, key_length)
    elif len(lead) > 2:
        for kept in range(2, len(lead) + 1):
            shape = (*lead[:kept], query_length, key_length)
            accepted[f"{kept} leading axes"] = shape
    _check_shape(tensor, name, accepted)


def _check_shape(tensor, name, accepted) -> None:
    """Refuses a shape that fits none of `accepted` (label -> dimensions)."""
    shape = tuple(tensor.shape)
    for dims in accepted.values():
        if len(dims) == len(shape) and all(
            got in (None, 1, want) or want is None
            for got, want in zip(shape, dims, strict=True)
        ):
            return
    shapes = ", ".join(f"{label} = {d}" for label, d in accepted.items())
    per_head = accepted.get("(B, N, T, S)", ())
    hint = ""
    if len(shape) == 3 and shape[0] in per_head[1:2]:
        hint = (
            "What differs by head alone has the shape (1, N, T, S) = "
            f"{(1, *shape)}. "
        )
    pairs = accepted.get("(B, T, S)", ())
    if len(shape) == 2 and shape == (*pairs[:1], *pairs[2:]):
        hint = (
            "A padding mask (B, S) of the keys goes by `value_mask` (or "
            "`key_mask`). "
        )
    raise ValueError(
        f"`{name}` must have one of the shapes {shapes} (any axis may be 1, "
        f"None is unknown as yet). {hint}Received: {name}.shape={shape}"
    )


def _refuse_integers(inputs) -> None:
    kind = _dtype_name(inputs) if hasattr(inputs, "dtype") else "float"
    if kind == "bool" or kind.startswith(("int", "uint")):
        raise ValueError(
            "Padding that is NaN is found among floats; ids are never NaN. "
            "Pass the id of padding as `pad_id`. Received: "
            f"inputs.dtype={kind}"
        )


def _is_rehearsal(mask) -> bool:
    """Whether Keras runs a model for its shapes alone.

    To build a subclassed model out of a file, Keras calls it on placeholders
    of its own, all float32, since it has not kept the dtypes. To refuse one
    there would leave the layers unbuilt, and then, unsaid, their weights
    unloaded.
    """
    graph = getattr(mask, "graph", None)
    return getattr(graph, "name", "").startswith("scratch_graph")


def _only_zeros_and_ones(mask) -> bool:
    values = known(mask)
    if values is None:
        return False
    # NumPy does not look for members among bfloat16.
    return bool(np.isin(values.astype("float32"), (0.0, 1.0)).all())


def _dtype_name(tensor) -> str:
    dtype = tensor.dtype
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")

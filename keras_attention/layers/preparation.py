"""What a call of multi-head attention attends to, before any projection.

Masks are checked and joined, and the keys are told: those of the inputs, or
of a cache. Works on KerasTensors as well, which have shapes alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras import ops

from keras_attention.layers import head_positions
from keras_attention.ops import attention, cache, masks
from keras_attention.ops.axes import AttentionAxes
from keras_attention.ops.inputs import check_inputs


def prepare(
    layer, inputs, cached, *, query_mask, value_mask, key_mask, **options
) -> Plan:
    """Returns the plan of one call, after all checks of its arguments.

    Args:
        layer: A `MultiHeadAttention`.
        inputs: Query, value and key, the latter two None where a cache
            serves in their place.
        cached: The arguments `cache` and `cache_update_index`.
        query_mask: As in `MultiHeadAttention.call`, like all that follow.
        value_mask: Padding mask, of the inputs or of the cache.
        key_mask: Likewise.
        **options: `attention_mask`, `attention_bias`, `use_causal_mask`.
    """
    query, value, key = inputs
    check_inputs(query=query, value=value, key=key)
    tensor, index = cached
    if tensor is not None:
        check_cacheable(layer, query, tensor, index)
        tensor = ops.cast(tensor, layer.compute_dtype)
    keys = cache.choose(query, tensor, index, layer.sliding_window)
    if keys.projects:
        axes = resolve_axes(layer, query.shape, value.shape, key.shape)
        key_shape = axes.static_shape(key.shape, layer.num_heads, layer.key_dim)
    else:
        axes = AttentionAxes.resolve(layer.attention_axes, len(query.shape))
    query_shape = axes.static_shape(query.shape, layer.num_heads, layer.key_dim)
    if keys.is_cached:
        keys.check_inputs(key)
        key_shape = (*query_shape[:-2], keys.mask_length, layer.key_dim)
    value_mask, own_value = keys.split(value_mask, "value_mask", value)
    key_mask, own_key = keys.split(key_mask, "key_mask", key)
    bias = masks.check_bias(
        axes.flatten_mask(options.pop("attention_bias")),
        query_shape[:-2],
        query_shape[-2],
        key_shape[-2],
    )
    mask = masks.combine(
        query_shape,
        key_shape,
        attention_mask=axes.flatten_mask(options.pop("attention_mask")),
        attention_bias=bias,
        query_mask=axes.flatten_padding(query_mask),
        value_mask=axes.flatten_padding(value_mask),
        key_mask=axes.flatten_padding(key_mask),
        sliding_window=layer.sliding_window,
        **options,
    )
    own = masks.both(own_value, own_key)
    if keys.writes and mask.query is not None:
        # The keys stand where the queries do.
        own = masks.both(own, ops.any(mask.query, axis=-2))
    return Plan(layer.num_heads, layer._position, axes, keys, mask, bias, own)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a call, by the names that `prepare` gives them.

    Attributes:
        num_heads: Number of query heads.
        position: The position layer, or None.
        axes: The `AttentionAxes`.
        keys: Where the keys come from, see `ops.cache`.
        mask: An `AttentionMask` by position.
        bias: Additive bias by position, or None.
        own: Padding of the inputs apart from `mask`, `(B, T)`, or None.
    """

    num_heads: int
    position: Any
    axes: AttentionAxes
    keys: cache.Inputs
    mask: masks.AttentionMask
    bias: Any
    own: Any

    def visible_queries(self, query):
        """Returns which queries to project, `(B, T)`, or None for all."""
        return self.axes.input_padding(self.mask.visible_queries(), query)

    def visible_keys(self, key):
        """Returns which keys to project, `(B, S)`, or None for all."""
        if self.keys.is_cached:
            # Not what `attention_mask` hides: later calls may see that.
            return masks.both(self.own, self.keys.own_part(self.mask.key))
        return self.axes.input_padding(self.mask.visible_keys(), key)

    def query_positions(self):
        """Returns the positions of the queries, or None if none count."""
        return None if self.position is None else self.keys.query_positions()

    def input_positions(self, key):
        """Returns the positions of the keys to project, or None likewise."""
        if self.position is None:
            return None
        return self.keys.input_positions(ops.shape(key)[1])

    def attended(self, query_positions, key, value) -> Attended:
        """Returns what the queries attend to, heads first.

        Args:
            query_positions: As `query_positions` returns them.
            key: Projected keys `(B, S, K, H)`, in the layout of the inputs.
            value: Projected values, likewise.
        """
        key, value, new_cache = self.keys.join(key, value, self.own)
        mask, bias = self.keys.place(self.mask, self.bias, self.own)
        key, value = map(self.axes.heads_first, (key, value))
        visible = None
        if self.keys.is_cached:
            # Whatever stands in slots that are not seen.
            visible = mask.key if mask.full is None else mask.visible_keys()
            visible = attention.for_heads_of(key, visible)
            value = masks.hide(value, visible)
        if self.position is not None:
            length = ops.shape(key)[-2]
            bias = head_positions.add_bias(
                self.position,
                bias,
                query_positions,
                self.keys.key_positions(length),
            )
        return Attended(key, value, mask, bias, new_cache, visible)

    def scores_shape(self, query, key):
        """Returns the shape of the scores that the layer returns."""
        if self.keys.is_cached:
            key_shape = (None, self.keys.key_length)
        else:
            key_shape = key.shape
        return self.axes.scores_shape(query.shape, key_shape, self.num_heads)


@dataclasses.dataclass(frozen=True)
class Attended:
    """What the queries of a call attend to.

    Attributes:
        key: Tensor `(B, ..., K, S, H)`, with anything in hidden slots.
        value: Tensor `(B, ..., K, S, Hv)`.
        mask: The `AttentionMask` of these keys.
        bias: Additive bias for these keys, or None.
        cache: The cache with the call's own keys in it, or None.
        visible: Which slots of a cache are seen, `(B, ..., S)`, or None.
    """

    key: Any
    value: Any
    mask: masks.AttentionMask
    bias: Any
    cache: Any
    visible: Any

    def hidden(self) -> Attended:
        """Returns the same with zeros in hidden slots of the keys."""
        key = masks.hide(self.key, self.visible)
        return dataclasses.replace(self, key=key)


def resolve_axes(layer, query_shape, value_shape, key_shape) -> AttentionAxes:
    """Returns the attention axes, or refuses shapes that do not fit."""
    axes = AttentionAxes.resolve(layer.attention_axes, len(query_shape))
    axes.check(query_shape, value_shape, key_shape)
    return axes


def visible_inputs(value, key, value_mask=None, key_mask=None):
    """Returns which inputs are no padding, `(B, S)`, or None for all.

    Args:
        value: Tensor `(B, S, Dv)`.
        key: Tensor `(B, S, Dk)`.
        value_mask: Boolean `(B, S)`. Defaults to the implicit mask.
        key_mask: Likewise.
    """
    if value_mask is None:
        value_mask = masks.get_implicit_mask(value)
    if key_mask is None:
        key_mask = masks.get_implicit_mask(key)
    batch_size, length = value.shape[:2]
    return masks.both(
        masks.check_padding(value_mask, "value_mask", (batch_size,), length),
        masks.check_padding(key_mask, "key_mask", (batch_size,), length),
    )


def check_cacheable(layer, query, tensor=None, index=None) -> None:
    """Refuses a cache that the layer cannot use.

    Args:
        layer: A `MultiHeadAttention`.
        query: Query `(B, T, D)`, or value.
        tensor: The cache, or None to ask whether there can be one.
        index: The position to write to, or None to write nothing.
    """
    if layer.value_dim != layer.key_dim:
        raise ValueError(
            "A cache holds keys and values in one tensor, so that their heads "
            "must be of one width. Leave `value_dim` out. Received: "
            f"key_dim={layer.key_dim}, value_dim={layer.value_dim}"
        )
    if len(query.shape) != 3:
        raise ValueError(
            "A cache has one axis of positions, so that inputs must be of "
            f"shape (B, T, D). Received: query.shape={tuple(query.shape)}"
        )
    if index is None and layer.position is not None:
        raise ValueError(
            "Without `cache_update_index` it is not known where the queries "
            "stand, on which the result depends if the layer has a "
            "`position`. For cross-attention leave `position` out. Received: "
            f"position={layer.position!r}"
        )
    if tensor is not None:
        heads, width = layer.num_key_value_heads, layer.key_dim
        cache.check_shape(tensor, query.shape[0], heads, width)

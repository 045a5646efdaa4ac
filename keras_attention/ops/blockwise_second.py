"""Second derivatives of the blockwise kernel, by way of the dense form.

They are asked for seldom, and need the scores whole: memory grows with T * S.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops import dense
from keras_attention.ops.blockwise_geometry import length_of
from keras_attention.ops.blockwise_inputs import Settings, compute_dtype
from keras_attention.ops.masks import AttentionMask

DIFFERENTIABLE = ("query", "key", "value", "bias")


def second_order(settings: Settings, tensors, upstream, again):
    """Differentiates the gradients of the blockwise kernel.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context that the gradients were found from.
        again: Gradients of these gradients, in the order of
            `DIFFERENTIABLE`.

    Returns:
        A list of gradients of the differentiable tensors, then of
        `upstream`.

    Raises:
        NotImplementedError: There is dropout.
    """
    if settings.dropout:
        raise NotImplementedError(
            "The blockwise kernel has no second derivatives under dropout. "
            "Pass `flash_attention=False`, or `dropout=0.0`. Received: "
            f"dropout={settings.dropout}"
        )
    watched = [tensors[n] for n in DIFFERENTIABLE if n in tensors]
    with tf.GradientTape() as outer:
        outer.watch([*watched, upstream])
        with tf.GradientTape() as inner:
            inner.watch(watched)
            context = _attend(settings, tensors)
        found = inner.gradient(context, watched, upstream)
    return outer.gradient(found, [*watched, upstream], again)


def _attend(settings: Settings, tensors):
    """Returns the context `(heads, T, Hv)`, by the dense kernel."""
    query, key, value = (tensors[n] for n in ("query", "key", "value"))
    groups = length_of(query, 0) // tf.maximum(length_of(key, 0), 1)
    dtype = compute_dtype(query)
    offset = tensors["offset"] if settings.offset is None else settings.offset
    mask = AttentionMask(
        full=_per_head(tensors, "full"),
        query=_per_head(tensors, "queries"),
        key=_per_head(tensors, "keys"),
        causal=settings.causal,
        window=settings.window,
        offset=offset,
    )
    context, _ = dense.attend(
        tf.cast(query, dtype),
        tf.cast(tf.repeat(key, groups, axis=0), dtype),
        tf.cast(tf.repeat(value, groups, axis=0), dtype),
        mask,
        bias=_per_head(tensors, "bias"),
        scale=settings.scale,
    )
    return tf.cast(context, query.dtype)


def _per_head(tensors, name):
    """Returns a mask or bias repeated for each head, or None."""
    if name not in tensors:
        return None
    return tf.gather(tensors[name], tensors[f"{name}_of"])

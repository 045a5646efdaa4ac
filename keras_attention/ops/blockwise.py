"""Exact attention in linear memory, forward and backward, on TensorFlow.

The same numbers as `dense.py` without a tensor of shape `(T, S)`: queries
are taken in blocks, each compared with the keys it can reach. The backward
pass computes the weights of a block again instead of keeping them.

Only plain TensorFlow operations, so graphs run in any TensorFlow runtime and
lengths may be unknown until then.
"""

from __future__ import annotations

import functools

import keras
import tensorflow as tf

from keras_attention.ops import (
    blockwise_backward,
    blockwise_forward,
    blockwise_short,
)
from keras_attention.ops.blockwise_geometry import length_of
from keras_attention.ops.blockwise_inputs import Settings, flatten
from keras_attention.ops.blockwise_second import (
    DIFFERENTIABLE,
    second_order,
)
from keras_attention.ops.masks import AttentionMask
from keras_attention.ops.tracing import compiles_with_xla


# Lest AutoGraph rewrites Python that is meant to run while tracing.
@tf.autograph.experimental.do_not_convert
def attend(
    query,
    key,
    value,
    mask: AttentionMask,
    *,
    bias=None,
    scale,
    dropout=0.0,
    seed=None,
    dense_scores=0,
):
    """Scaled dot-product attention that never makes its scores whole.

    Takes what `dense.attend` takes, and half types as well: these are cast
    to float32 head by head.

    Args:
        query: Tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`, where K divides N.
        value: Tensor `(..., K, S, Hv)`.
        mask: An `AttentionMask`.
        bias: Additive bias that broadcasts to `(..., N, T, S)`, or None.
        scale: Number the queries are multiplied by.
        dropout: Rate at which weights are dropped; 0 at inference.
        seed: Seed of the dropout: integer or `keras.random.SeedGenerator`.
        dense_scores: Number of scores of a head, T * S, up to which they are
            written out after all, when T and S are known.

    Returns:
        A tuple of the context `(..., N, T, Hv)`, typed like the query, and
        None in place of the weights.

    Reference:
        [Self-attention Does Not Need O(n^2) Memory](https://arxiv.org/abs/2112.05682),
        [FlashAttention-2](https://arxiv.org/abs/2307.08691)
    """
    unknown = None in (query.shape[-2], key.shape[-2])
    settings = Settings(
        scale=float(scale),
        dropout=float(dropout),
        causal=mask.causal,
        window=mask.window,
        offset=mask.offset if isinstance(mask.offset, int) else None,
        groups=_groups(query, key),
        key_heads=key.shape[-3] or 1 if len(key.shape) > 3 else 1,
        shared=_shared(query, bias=bias, full=mask.full, keys=mask.key),
        dense_scores=dense_scores if unknown else None,
    )
    drawn = _draw(seed) if dropout else None
    tensors = flatten(query, key, value, mask, bias, drawn)
    context = _differentiable(settings, tensors)
    lead = [length_of(query, a) for a in range(len(query.shape) - 1)]
    return tf.reshape(context, (*lead, value.shape[-1])), None


def _groups(query, key) -> int | None:
    """Returns how many query heads share a key, None where unknown."""
    if len(query.shape) < 4:
        return 1
    heads, key_heads = query.shape[-3], key.shape[-3]
    return None if None in (heads, key_heads) else heads // key_heads


def _shared(query, *, keys, **parts) -> frozenset[str]:
    """Returns the names of what no head has for itself."""
    leads = {
        name: part.shape[:-2]
        for name, part in parts.items()
        if part is not None
    }
    if keys is not None:
        leads["keys"] = keys.shape[:-1]
    if len(query.shape) < 4:
        # Then, a step takes one head only.
        return frozenset(leads)
    return frozenset(
        name for name, lead in leads.items() if not lead or lead[-1] == 1
    )


def _draw(seed):
    """Returns a seed `(2,)` that is this call's own."""
    if isinstance(seed, keras.random.SeedGenerator):
        drawn = tf.cast(seed.next(), "int64")
    elif seed is None:
        drawn = keras.random.randint((2,), 0, 2**31 - 1, dtype="int32")
    else:
        drawn = tf.constant([seed, 0], "int64")
    # Blocks count up from here: mixed first, so that the counts of two calls
    # with neighbouring seeds do not meet.
    return tf.random.stateless_uniform(
        (2,), drawn, minval=None, maxval=None, dtype="int64"
    )


def _differentiable(settings, tensors):
    """Returns the context, which has a gradient of its own."""
    names = tuple(tensors)
    forward, _ = _passes(settings)

    @tf.custom_gradient
    def run(*arguments):
        kept = _run(forward, settings, names, arguments)

        def gradient(upstream):
            found = _gradients(settings, names, (upstream, *kept), arguments)
            return _in_order(names, found)

        return kept[0], gradient

    return run(*tensors.values())


def _gradients(settings, names, kept, arguments):
    """Returns the gradients, which can be differentiated once more.

    `kept` are the gradient of the context and the results of the forward
    pass. Nothing else is used, lest the gradient of these gradients miss what
    they depend on.
    """
    _, backward = _passes(settings)
    count = len(kept)

    @tf.custom_gradient
    def run(*inputs):
        kept, arguments = inputs[:count], inputs[count:]
        found = _run(backward, settings, names, arguments, *kept)

        def gradient(*again):
            # In forward mode, what is not asked for is None.
            again = [
                tf.zeros_like(one) if other is None else other
                for one, other in zip(found, again, strict=True)
            ]
            others = kept[0], *again
            second = _run_differentiably(
                second_order, settings, names, arguments, others
            )
            rest = [None] * (count - 1)
            return [second[-1], *rest, *_in_order(names, second)]

        return found, gradient

    return run(*kept, *arguments)


def _passes(settings):
    """Returns the forward and the backward pass for any or long lengths."""
    if settings.dense_scores is not None:
        return blockwise_short.forward, blockwise_short.backward
    return blockwise_forward.forward, blockwise_backward.backward


def _in_order(names, found):
    """Returns one gradient for each name, None where there is none."""
    by_name = dict(zip(DIFFERENTIABLE, found, strict=False))
    return [by_name.get(name) for name in names]


def _run(function, settings, names, arguments, *others):
    """Runs one of the passes, as a graph of its own that calls share.

    Layers alike are then traced once, and exported once. When called eagerly,
    a graph frees memory as soon as it is not needed; an eager loop would hold
    it longer, and would be recorded by every gradient tape.
    """
    arguments, others = (
        list(map(_prevent_gradient, tensors)) for tensors in (arguments, others)
    )
    return _run_differentiably(function, settings, names, arguments, others)


def _run_differentiably(function, settings, names, arguments, others):
    """Runs as `_run` does what TensorFlow itself may differentiate."""
    tensors = [*arguments, *others]
    specs = tuple(map(_specify, tensors))
    function = _as_graph(function, settings, names, specs, compiles_with_xla())
    return function(*tensors)


@functools.lru_cache(maxsize=256)
def _as_graph(function, settings, names, specs, with_xla):
    """Returns one of the passes as a `tf.function`.

    `with_xla` tells apart what is traced for XLA from what is not.
    """
    del with_xla

    def run(*tensors):
        arguments = dict(zip(names, tensors, strict=False))
        return function(settings, arguments, *tensors[len(names) :])

    # Not inlined, lest TensorFlow prepare it again for each layer.
    return tf.function(
        run,
        input_signature=specs,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def _prevent_gradient(tensor):
    """Returns a tensor that is not differentiated but by `custom_gradient`.

    In graphs, forward mode would pass that by.
    """
    if tf.executing_eagerly():
        return tf.stop_gradient(tensor)
    message = (
        "the kernel of linear memory has no derivatives in forward mode within "
        "a `tf.function`. Pass `flash_attention=False`, or differentiate "
        "outside of it."
    )
    return tf.raw_ops.PreventGradient(input=tensor, message=message)


def _specify(tensor) -> tf.TensorSpec:
    """Returns what is known of a tensor while its graph is built.

    Eagerly, that is less than there is to see: all lengths are left open but
    for those of one, where masks and biases are broadcast.
    """
    shape = tensor.shape
    if tf.executing_eagerly():
        shape = [1 if n == 1 else None for n in shape]
    return tf.TensorSpec(shape, tensor.dtype)

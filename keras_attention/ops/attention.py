"""The one door to attention: checks its inputs and picks a kernel."""

from __future__ import annotations

import dataclasses
import math

import keras
from keras import ops

from keras_attention.ops import (
    dense,
    leading_axes,
    masks,
    processor,
    shapes,
    side_by_side,
)
from keras_attention.ops.inputs import check_inputs

HALF_TYPES = ("float16", "bfloat16")


def dot_product_attention(
    query,
    key,
    value,
    attention_mask=None,
    attention_bias=None,
    *,
    query_mask=None,
    key_mask=None,
    use_causal_mask=False,
    sliding_window=None,
    scale=None,
    dropout=0.0,
    seed=None,
    return_attention_scores=False,
    flash_attention=None,
):
    """Scaled dot-product attention, exact on every path.

    Heads come before time: `(B, N, T, H)`, and any number of leading axes
    will do, down to `(T, H)`. The key and value may have fewer heads than
    the query (grouped-query attention), as long as the counts divide.

    Float16 and bfloat16 inputs are computed in float32 and cast last. A query
    that may attend to nothing gets a context vector of zeros. What stands at
    a key that masks hide from every query never reaches the result, NaN
    included; causality and windows do not count there.

    Args:
        query: Tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`.
        value: Tensor `(..., K, S, Hv)`.
        attention_mask: Boolean mask `(T, S)`, `(B, T, S)`, `(B, 1, T, S)` or
            `(B, N, T, S)`, True where a query may attend. Also takes a ready
            `AttentionMask`, which then replaces every other mask argument.
        attention_bias: Additive bias of the same shapes, added to the scaled
            scores. Minus infinity hides a key.
        query_mask: Boolean padding mask `(B, T)`.
        key_mask: Boolean padding mask `(B, S)`.
        use_causal_mask: Whether query t sees only keys s with `s <= t`.
        sliding_window: Query t sees only keys with
            `abs(t - s) < sliding_window`.
        scale: Number the queries are multiplied by. Defaults to
            `1 / sqrt(H)`.
        dropout: Rate at which attention weights are dropped. Pass 0 at
            inference.
        seed: Integer or `keras.random.SeedGenerator` for the dropout.
        return_attention_scores: Whether to return the weights as well.
        flash_attention: None to choose, True for the kernel of linear memory
            or an error that says why not, False for dense.

    Returns:
        The context `(..., N, T, Hv)`, or with `return_attention_scores` the
        tuple of it and the weights `(..., N, T, S)`, taken before dropout.
        Both in the widest dtype of the inputs.

    Raises:
        TypeError: A mask is neither boolean nor integers, an input holds
            complex numbers, or `seed` is neither an integer nor a
            `keras.random.SeedGenerator`.
        ValueError: An input is ragged, shapes do not fit together, `dropout`
            is not within [0, 1], or `flash_attention=True` cannot be had.

    Example:

    >>> query = keras.random.normal((2, 4, 3, 8))
    >>> key = keras.random.normal((2, 4, 5, 8))
    >>> value = keras.random.normal((2, 4, 5, 6))
    >>> dot_product_attention(query, key, value).shape
    TensorShape([2, 4, 3, 6])

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """
    shapes.check_dropout(dropout, seed)
    check_inputs(query=query, key=key, value=value)
    query, key, value = (ops.convert_to_tensor(x) for x in (query, key, value))
    shapes.check(query.shape, key.shape, value.shape)
    bias = masks.check_bias(
        attention_bias, tuple(query.shape[:-2]), query.shape[-2], key.shape[-2]
    )
    if isinstance(attention_mask, masks.AttentionMask):
        mask = attention_mask.hidden_by(bias)
    else:
        mask = masks.combine(
            query.shape,
            key.shape,
            attention_mask=attention_mask,
            attention_bias=bias,
            query_mask=query_mask,
            key_mask=key_mask,
            use_causal_mask=use_causal_mask,
            sliding_window=sliding_window,
        )
    query = masks.hide(query, mask.visible_queries())
    visible_keys = for_heads_of(key, mask.visible_keys())
    context, weights = attend(
        query,
        masks.hide(key, visible_keys),
        masks.hide(value, visible_keys),
        mask,
        bias=bias,
        scale=scale,
        dropout=dropout,
        seed=seed,
        return_attention_scores=return_attention_scores,
        flash_attention=flash_attention,
    )
    return (context, weights) if return_attention_scores else context


def attend(
    query,
    key,
    value,
    mask,
    *,
    bias=None,
    scale=None,
    dropout=0.0,
    seed=None,
    return_attention_scores=False,
    flash_attention=None,
):
    """Runs a kernel on inputs that are checked and clean already.

    The inner half of `dot_product_attention`, for layers that have hidden
    their padding before they projected it.

    Args:
        query: Tensor `(..., N, T, H)`.
        key: Tensor `(..., K, S, H)`, finite at hidden positions.
        value: Tensor `(..., K, S, Hv)`, finite at hidden positions.
        mask: An `AttentionMask`, which hides what the bias hides.
        bias: Additive bias that broadcasts to `(..., N, T, S)`, or None.
        scale: As in `dot_product_attention`.
        dropout: As in `dot_product_attention`.
        seed: As in `dot_product_attention`.
        return_attention_scores: As in `dot_product_attention`.
        flash_attention: As in `dot_product_attention`.

    Returns:
        A tuple of the context and the weights; the weights are None where
        they were not asked for.
    """
    query, key, value, out_dtype = _to_one_dtype(query, key, value)
    rank = len(query.shape)
    mask, bias = mask.with_rank(rank), masks.fit(bias, rank)
    kernel = kernel_for(
        query, key, mask, flash_attention, return_attention_scores
    )
    if 0 in (*query.shape, key.shape[-2], value.shape[-1]):
        # Nothing to divide into blocks.
        kernel = "dense"
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    elif keras.ops.is_tensor(scale):
        # With its gradient, whatever the kernel.
        query, scale = query * ops.cast(scale, query.dtype), 1.0
    context, weights = KERNELS[kernel](
        query,
        key,
        value,
        mask,
        bias=bias,
        scale=scale,
        dropout=dropout,
        seed=seed,
    )
    if not return_attention_scores:
        return ops.cast(context, out_dtype), None
    return ops.cast(context, out_dtype), ops.cast(weights, out_dtype)


def _dense(query, key, value, mask, *, bias=None, **options):
    def attend_all(query, key, value, mask, bias):
        return _dense_in_parts(query, key, value, mask, bias, **options)

    return leading_axes.in_two(attend_all, query, key, value, mask, bias)


def _dense_in_parts(query, key, value, mask, bias, **options):
    half_type = keras.backend.standardize_dtype(query.dtype) in HALF_TYPES

    def attend_part(query, key, value, bias, full, queries, keys):
        inputs = query, key, value
        if half_type:
            # Its scores overflow.
            inputs = [ops.cast(x, "float32") for x in inputs]
        part = dataclasses.replace(mask, full=full, query=queries, key=keys)
        return dense.attend(*inputs, part, bias=bias, **options)

    tensors = query, key, value
    rank = len(query.shape)
    parts = [
        leading_axes.with_rank(part, axes)
        for part, axes in (
            (bias, rank),
            (mask.full, rank),
            (mask.query, rank - 1),
            (mask.key, rank - 1),
        )
    ]
    # Not by the batch, lest its size be seen in the last bits.
    sizes = (*query.shape[1:-1], key.shape[-2])
    few = None not in sizes and math.prod(sizes) < FEW_SCORES
    # A seed is to drop the same, however many there are in a batch.
    if rank < 4 or few or options["dropout"]:
        return attend_part(*tensors, *parts)
    return side_by_side.in_halves(attend_part, tensors, parts)


def _blockwise(query, key, value, mask, **options):
    # Not before it is needed: it imports TensorFlow.
    from keras_attention.ops import blockwise

    return blockwise.attend(query, key, value, mask, **options)


def _by_length(query, key, value, mask, **options):
    options["dense_scores"] = dense_scores(mask.by_position)
    return _blockwise(query, key, value, mask, **options)


KERNELS = {"dense": _dense, "blockwise": _blockwise, "by_length": _by_length}

# Number of scores, N * T * S, up to which a batch is not worth halving.
FEW_SCORES = 2**12

# Number of scores, T * S, above which the blockwise kernel is the faster one,
# by whether oneDNN multiplies and whether positions hide some: measured on two
# cores in float32. oneDNN gains more from whole matrices, the kernel from what
# is hidden.
DENSE_SCORES = {
    (False, False): 250_000,
    (False, True): 2**17,
    (True, False): 2**20,
    (True, True): 300_000,
}


def dense_scores(by_position=False) -> int:
    """Returns up to how many scores of a head, T * S, are written out.

    Args:
        by_position: Whether positions hide some, by causality or a window.
    """
    with_onednn = processor.multiplies_with_onednn()
    return DENSE_SCORES[with_onednn, by_position]


def kernel_for(
    query, key, mask, flash_attention=None, return_attention_scores=False
) -> str:
    """Returns the name of the kernel that will run on these inputs.

    Args:
        query: Tensor `(..., T, H)`.
        key: Tensor `(..., S, H)`.
        mask: An `AttentionMask`.
        flash_attention: As in `dot_product_attention`.
        return_attention_scores: Whether the weights are wanted.

    Returns:
        As `choose_kernel`.
    """
    return choose_kernel(
        flash_attention,
        return_attention_scores,
        query.shape[-2],
        key.shape[-2],
        mask.by_position,
    )


def choose_kernel(
    flash_attention=None,
    return_attention_scores=False,
    query_length=None,
    key_length=None,
    by_position=False,
) -> str:
    """Returns the name of the kernel that will run.

    Args:
        flash_attention: As in `dot_product_attention`.
        return_attention_scores: Whether the weights are wanted.
        query_length: T, or None where it is not known yet.
        key_length: S, or None where it is not known yet.
        by_position: Whether positions hide keys, by causality or a window.

    Returns:
        A key of `KERNELS`: "dense", "blockwise", or "by_length" for one of
        the two as soon as the lengths are known.

    Raises:
        ValueError: `flash_attention=True` cannot be had.

    Example:

    >>> choose_kernel(query_length=64, key_length=64)
    'dense'
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if flash_attention and return_attention_scores:
        raise ValueError(
            "Attention scores are a (T, S) tensor, which the kernel of linear "
            "memory never makes. Pass `flash_attention=None` (or leave "
            "`return_attention_scores` out). Received: "
            f"flash_attention={flash_attention}, "
            f"return_attention_scores={return_attention_scores}"
        )
    if flash_attention and not on_tensorflow:
        raise ValueError(
            "The kernel of linear memory is made of TensorFlow operations. "
            "Pass `flash_attention=None`, or set KERAS_BACKEND=tensorflow. "
            f"Received: flash_attention={flash_attention}, "
            f"backend={keras.backend.backend()}"
        )
    if flash_attention:
        return "blockwise"
    switched_off = keras.config.is_flash_attention_enabled() is False
    if flash_attention is False or (flash_attention is None and switched_off):
        return "dense"
    if return_attention_scores or not on_tensorflow:
        return "dense"
    if None in (query_length, key_length):
        return "by_length"
    long = query_length * key_length > dense_scores(by_position)
    return "blockwise" if long else "dense"


def _to_one_dtype(query, key, value):
    """Converts tensors to one floating-point dtype, returned as well."""
    tensors = (query, key, value)
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in tensors]
    dtype = keras.backend.result_type(*dtypes)
    if not keras.backend.is_float_dtype(dtype):
        dtype = keras.config.floatx()
    return *(ops.cast(x, dtype) for x in tensors), dtype


def for_heads_of(key, visible):
    """Returns a mask per query head `(..., N, S)` for the heads of `key`."""
    if visible is None or len(key.shape) < 4:
        return visible
    if visible.shape[-2] in (1, key.shape[-3]):
        return visible
    *lead, heads, length = ops.shape(visible)
    groups = key.shape[-3]
    grouped = ops.reshape(visible, (*lead, groups, heads // groups, length))
    return ops.any(grouped, axis=-2)

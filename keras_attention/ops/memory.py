"""How much memory a call of attention will take, before it is made.

What is held at the peak: results, what is kept for the backward pass, and the
temporaries of one step. The shapes are those of the kernels; how many copies
live at once is counted from them and checked by measurement.
"""

from __future__ import annotations

import dataclasses

import keras

from keras_attention.ops import attention, masks

# Tensors alive at once in the blockwise kernel: scores of the blocks that run
# side by side, and rows of all queries of a step (with them, the context and
# gradients that are gathered) and of all its keys.
FORWARD_COPIES = {"scores": 2, "queries": 1, "keys": 2}
TRAINING_COPIES = {"scores": 6, "queries": 5, "keys": 6}
# What the allocator holds back for the small tensors of the next step.
HELD_BACK = 10 * 10**6


def estimate_memory(
    batch_size,
    num_heads,
    query_length,
    key_length=None,
    head_dim=64,
    value_dim=None,
    num_key_value_heads=None,
    dtype="float32",
    training=False,
    use_causal_mask=False,
    sliding_window=None,
    return_attention_scores=False,
    flash_attention=None,
) -> int:
    """Estimates the peak memory of one call of `dot_product_attention`.

    For the kernel that such a call runs, as a graph on the CPU, without
    dropout, and without masks and biases given as tensors: what these take,
    you know. XLA takes more, and with oneDNN TensorFlow keeps what was freed
    for later.

    Args:
        batch_size: B.
        num_heads: Number of query heads, N.
        query_length: T.
        key_length: S. Defaults to T.
        head_dim: H, the width of a query or key.
        value_dim: Hv, the width of a value. Defaults to H.
        num_key_value_heads: K. Defaults to N.
        dtype: Dtype of the inputs.
        training: Whether gradients of query, key and value are found as well.
        use_causal_mask: As in `dot_product_attention`.
        sliding_window: As in `dot_product_attention`.
        return_attention_scores: As in `dot_product_attention`.
        flash_attention: As in `dot_product_attention`.

    Returns:
        Bytes above those of the inputs, an integer.

    Raises:
        ValueError: A size is not positive, the heads do not divide, or
            `flash_attention=True` cannot be had.

    Example:

    >>> short = estimate_memory(1, 8, 16384, use_causal_mask=True)
    >>> long = estimate_memory(1, 8, 32768, use_causal_mask=True)
    >>> round(long / short)
    2
    >>> dense = estimate_memory(1, 8, 32768, flash_attention=False)
    >>> dense > 100 * long
    True
    """
    if num_key_value_heads is None:
        num_key_value_heads = num_heads
    call = _Call(
        batch_size=batch_size,
        heads=num_heads,
        key_heads=num_key_value_heads,
        query_length=query_length,
        key_length=query_length if key_length is None else key_length,
        width=head_dim,
        value_width=head_dim if value_dim is None else value_dim,
        item=_bytes_of(dtype),
        # Half types are computed in float32.
        exact=max(_bytes_of(dtype), 4),
        causal=use_causal_mask,
        window=masks.check_window(sliding_window),
    )
    call.check()
    kernel = attention.choose_kernel(
        flash_attention,
        return_attention_scores,
        call.query_length,
        call.key_length,
        call.causal or call.window is not None,
    )
    if kernel == "dense":
        return _dense(call, training, return_attention_scores)
    return _blockwise(call, training)


@dataclasses.dataclass(frozen=True)
class _Call:
    """The sizes of one call."""

    batch_size: int
    heads: int
    key_heads: int
    query_length: int
    key_length: int
    width: int
    value_width: int
    item: int
    exact: int
    causal: bool
    window: int | None

    def check(self) -> None:
        """Refuses sizes that no call has."""
        positive = {
            "batch_size": self.batch_size,
            "num_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "query_length": self.query_length,
            "key_length": self.key_length,
            "head_dim": self.width,
            "value_dim": self.value_width,
        }
        for name, size in positive.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"`{name}` must be a positive integer. "
                    f"Received: {name}={size!r}"
                )
        if self.heads % self.key_heads:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={self.heads}, "
                f"num_key_value_heads={self.key_heads}"
            )

    @property
    def queries(self) -> int:
        """Number of queries in all."""
        return self.batch_size * self.heads * self.query_length

    @property
    def keys(self) -> int:
        """Number of keys in all."""
        return self.batch_size * self.key_heads * self.key_length

    @property
    def scores(self) -> int:
        """Number of scores in all."""
        return self.queries * self.key_length

    @property
    def gradients(self) -> int:
        """Bytes of the gradients of query, key and value."""
        widths = self.width + self.value_width
        return self.item * (self.queries * self.width + self.keys * widths)

    @property
    def context(self) -> int:
        """Bytes of the context."""
        return self.item * self.queries * self.value_width


def _dense(call: _Call, training, with_scores) -> int:
    scores = call.exact * call.scores
    queries = call.exact * call.queries * call.width
    values = call.exact * call.keys * call.value_width
    if training:
        # At once: the weights, their gradient, and the product of the two.
        total = 3 * scores + queries + values
    else:
        total = scores + queries + call.context
    if call.item < call.exact:
        total += call.exact * call.keys * call.width + values
        if with_scores:
            total += call.item * call.scores
    return total


def _blockwise(call: _Call, training) -> int:
    forward = _one_pass(call, FORWARD_COPIES)
    if not training:
        return forward
    backward = _one_pass(call, TRAINING_COPIES, tiled=True)
    return max(forward, backward + call.gradients)


def _one_pass(call: _Call, copies, tiled=False) -> int:
    # Not before it is needed: it imports TensorFlow.
    from keras_attention.ops.blockwise_geometry import Geometry

    groups = call.heads // call.key_heads
    geometry = Geometry(
        call.query_length,
        call.key_length,
        call.causal,
        call.window,
        0,
        groups,
        call.key_heads,
        tiled=tiled,
        width=call.width,
    )
    reach = geometry.keys_in_all if call.window is None else geometry.span
    if geometry.tiled:
        # Of each block that is under way, two tiles are.
        reach = geometry.tile * min(geometry.tiles, 2)
    queries = groups * (geometry.query_length + geometry.padding)
    width = max(call.width, call.value_width)
    step = geometry.together * (
        copies["scores"] * groups * geometry.rows * reach
        + copies["queries"] * queries * width
        + copies["keys"] * geometry.keys_in_all * width
    )
    norms = 2 * call.exact * call.queries
    return call.context + norms + call.exact * step + HELD_BACK


def _bytes_of(dtype) -> int:
    dtype = keras.backend.standardize_dtype(dtype)
    sizes = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
    if dtype not in sizes:
        raise ValueError(
            f"`dtype` must be one of {', '.join(sizes)}. Received: "
            f"dtype={dtype!r}"
        )
    return sizes[dtype]

"""Drawn shapes, masks and dtypes: the blockwise kernel beside its oracles.

Values are held against the reference, values and gradients against the dense
kernel in float64, or in float32 where that rounds the scores.
`KERAS_ATTENTION_DRAWS=1000` draws as many, anew each time; `--hypothesis-seed`
repeats them.
"""

import dataclasses
import functools
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from keras_attention import reference
from keras_attention.ops import blockwise, blockwise_geometry, masks
from keras_attention.ops import dot_product_attention as attend

DRAWS = os.environ.get("KERAS_ATTENTION_DRAWS") or None
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
LOWEST = float(np.finfo("float32").min)
# Deviation of logits of which one alone counts.
LARGE = 4e5
# From one step for all there is, to many steps of few rows, and of several
# heads. Graphs that are traced under one setting do not serve another.
BLOCKS = {
    "as shipped": {"SCORES": blockwise_geometry.SCORES},
    "short": {
        "SCORES": 2**12,
        "LEAST_ROWS": 16,
        "MOST_ROWS": 64,
        "ONE_CORE": 0,
        "TILE": 2**7,
    },
    "heads": {
        "SCORES": 2**16,
        "LEAST_ROWS": 32,
        "MOST_ROWS": 32,
        "ONE_CORE": 0,
        "TILE": 2**6,
    },
}
GRAPHS = {
    name: functools.lru_cache(maxsize=64)(blockwise._as_graph.__wrapped__)
    for name in BLOCKS
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One draw. Numbers follow from the seed, shapes from the rest.

    Shapes of masks and of the bias are those of the scores without the axes
    in `left_out`, and of size 1 at the axes in `ones`; None for no mask. The
    number `common` is added to the bias of the first `common_keys`.
    """

    lead: tuple = (2, 4)
    key_heads: int = 2
    lengths: tuple = (7, 130)
    widths: tuple = (8, 6)
    dtype: str = "float32"
    full: tuple | None = None
    bias: tuple | None = None
    hiding_bias: bool = False
    common: float = 0.0
    common_keys: int | None = None
    query_mask: tuple | None = None
    key_mask: tuple | None = None
    seen: float = 0.7
    causal: bool = False
    window: int | None = None
    offset: int = 0
    offset_unknown: bool = False
    scale: float | None = None
    spread: float = 1.0
    traced: bool = False
    blocks: str = "as shipped"
    seed: int = 0


@st.composite
def cases(draw):
    batch, key_heads, groups = draw(st.tuples(*[st.integers(1, 3)] * 3))
    heads = key_heads * groups
    leads = {4: (batch, heads), 3: (batch,), 2: (), 5: (batch, 2, heads)}
    lead = leads[draw(st.sampled_from([4, 4, 4, 4, 3, 2, 5]))]
    length = st.sampled_from([1, 7, 130, 301])
    lengths = draw(st.tuples(length, length))

    def part(shape, kept):
        """A shape like `shape` with all axes, or without some of the lead."""
        shapes = [shape, (*lead[:1], *shape[-kept:])]
        if kept == 2:
            shapes += [shape[-2:]]
        found = draw(st.sampled_from(shapes))
        ones = draw(st.sets(st.integers(0, len(found) - 1), max_size=2))
        return tuple(1 if a in ones else n for a, n in enumerate(found))

    def perhaps(*arguments):
        return part(*arguments) if draw(st.booleans()) else None

    return Case(
        lead=lead,
        key_heads=key_heads,
        lengths=lengths,
        widths=draw(st.sampled_from([(8, 6), (4, 8), (1, 1)])),
        dtype=draw(st.sampled_from(list(TOLERANCE))),
        full=perhaps((*lead, *lengths), 2),
        bias=perhaps((*lead, *lengths), 2),
        hiding_bias=draw(st.booleans()),
        common=draw(st.sampled_from([0.0, 0.0, -1e4, -1e9, LOWEST])),
        common_keys=draw(st.sampled_from([None, 5])),
        query_mask=perhaps((*lead, lengths[0]), 1),
        key_mask=perhaps((*lead, lengths[1]), 1),
        seen=draw(st.sampled_from([0.7, 0.05, 0.0])),
        causal=draw(st.booleans()),
        window=draw(st.sampled_from([None, None, 1, 5, 70, 1000])),
        offset=draw(st.sampled_from([0, 0, 3, 170, 1000, -5])),
        offset_unknown=draw(st.booleans()),
        scale=draw(st.sampled_from([None, 0.7])),
        spread=draw(st.sampled_from([1.0, 6.0, LARGE])),
        traced=draw(st.booleans()),
        blocks=draw(st.sampled_from(list(BLOCKS))),
        seed=draw(st.integers(0, 2**16)),
    )


def numbers(case):
    """Returns query, key, value and what the context's gradient shall be."""
    rng = np.random.default_rng(case.seed)
    (length_q, length_k), (width, width_v) = case.lengths, case.widths
    key_lead = (*case.lead[:-1], case.key_heads)
    if len(case.lead) < 2:
        key_lead = case.lead
    shapes = [
        (*case.lead, length_q, width),
        (*key_lead, length_k, width),
        (*key_lead, length_k, width_v),
        (*case.lead, length_q, width_v),
    ]
    query, *others = (rng.normal(size=shape) for shape in shapes)
    # More would overflow in float16.
    spread = min(case.spread, 1e3) if case.dtype == "float16" else case.spread
    return [tf.cast(x, case.dtype) for x in (query * spread, *others)]


def masks_of(case):
    """Returns the masks and the bias by the names of their arguments."""
    rng = np.random.default_rng(case.seed + 1)
    shapes = {
        "attention_mask": case.full,
        "query_mask": case.query_mask,
        "key_mask": case.key_mask,
    }
    found = {
        name: rng.random(shape) < case.seen
        for name, shape in shapes.items()
        if shape is not None
    }
    if case.bias is not None:
        bias = rng.normal(size=case.bias)
        bias[..., : case.common_keys] += case.common
        bias = bias.astype("float32")
        if case.hiding_bias:
            bias[rng.random(case.bias) < 0.3] = -np.inf
        found["attention_bias"] = bias
    return found


def with_gradients(case, inputs, upstream, flash_attention):
    """Returns the context, then gradients of the inputs and of the bias."""
    parts = masks_of(case)
    bias = parts.pop("attention_bias", None)
    options = {"scale": case.scale, "flash_attention": flash_attention}
    positions = {
        "use_causal_mask": case.causal,
        "sliding_window": case.window,
    }

    def run(inputs):
        query, key, value, *biases = inputs
        options["attention_bias"] = biases[0] if biases else None
        if not case.offset:
            return attend(query, key, value, **options, **parts, **positions)
        offset = case.offset
        if case.offset_unknown:
            offset = tf.constant(offset)
        mask = masks.combine(
            query.shape, key.shape, **parts, **positions, offset=offset
        )
        return attend(query, key, value, mask, **options)

    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = run(inputs)
        gradients = tape.gradient(context, inputs, output_gradients=upstream)
        return context, *gradients

    if bias is not None:
        inputs = [*inputs, tf.constant(bias)]
    results = tf.function(both)(*inputs) if case.traced else both(*inputs)
    return [tf.cast(x, "float64").numpy() for x in results]


def expected_context(case, inputs):
    """Returns the context after the reference, and its largest score."""
    query, key, value = (tf.cast(x, "float64").numpy() for x in inputs)
    context, _ = reference.dot_product_attention(
        query,
        key,
        value,
        **masks_of(case),
        use_causal_mask=case.causal,
        sliding_window=case.window,
        causal_offset=case.offset,
        scale=case.scale,
    )
    scale = case.scale or case.widths[0] ** -0.5
    lengths = (np.sqrt((x**2).sum(-1)).max() for x in (query, key))
    return context, scale * np.prod(list(lengths))


def assert_near(one, other, tolerance):
    """Compares in proportion to the largest number, or to one."""
    assert one.shape == other.shape
    bound = tolerance * max(1.0, np.abs(other).max())
    np.testing.assert_allclose(one, other, rtol=0, atol=bound)


@pytest.mark.timeout(0 if DRAWS else 900)
@settings(
    max_examples=int(DRAWS or 6),
    derandomize=DRAWS is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(cases())
@example(Case(lengths=(301, 301), causal=True, traced=True, blocks="short"))
@example(
    Case(
        lengths=(301, 301),
        causal=True,
        bias=(1, 301),
        common=LOWEST,
        common_keys=5,
        blocks="short",
    )
)
@example(Case(lengths=(130, 301), bias=(130, 301), common=-1e9))
@example(Case(lengths=(130, 301), spread=LARGE, blocks="short"))
@example(Case(lengths=(301, 130), window=5, offset=170, blocks="heads"))
@example(
    Case(
        lengths=(130, 301),
        causal=True,
        offset=170,
        full=(2, 4, 130, 301),
        blocks="short",
    )
)
def test_equals_dense_and_the_reference(case):
    note(case)
    *inputs, upstream = numbers(case)
    context, highest = expected_context(case, inputs)
    tolerance = TOLERANCE[case.dtype]
    if case.spread < LARGE:
        # Of a score so high, float32 rounds off as much as an error of this.
        highest = max(highest, 1e4 * (case.common == -1e4))
        tolerance *= max(1.0, highest / 20)
    with (
        mock.patch.multiple(blockwise_geometry, **BLOCKS[case.blocks]),
        mock.patch.object(blockwise, "_as_graph", GRAPHS[case.blocks]),
    ):
        ours = with_gradients(case, inputs, upstream, True)
    rounds = case.bias is not None and case.common == -1e9
    oracle = "float32" if rounds else "float64"
    exact = [tf.cast(x, oracle) for x in (*inputs, upstream)]
    dense = with_gradients(case, exact[:3], exact[3], False)
    if not rounds:
        assert_near(ours[0], context, tolerance)
    # The gradient of the key is a sum of queries.
    factors = (1, 10, 10 * max(1.0, case.spread / 10), 10, 10)
    for factor, one, other in zip(factors, ours, dense, strict=False):
        assert_near(one, other, factor * tolerance)

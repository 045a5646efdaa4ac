"""Estimates of memory are near what a process takes."""

import json

import pytest
from support import fresh_process

from keras_attention.ops import estimate_memory

# Of a graph, after another one has made TensorFlow ready; Linux counts. With
# oneDNN, TensorFlow keeps what was freed, and nothing can be counted. With one
# arena (M_ARENA_MAX), what is counted does not depend on which thread ran what.
MEASURE = """
import ctypes, json, os, sys
ctypes.CDLL(None).mallopt(-8, 1)
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf
from keras_attention.ops import dot_product_attention, estimate_memory

case = json.loads(sys.argv[1])

def status(field):
    with open("/proc/self/status") as lines:
        found = dict(line.split(":", 1) for line in lines)
    return 1024 * int(found[field].split()[0])

def inputs(batch, length):
    heads = case["num_heads"]
    key_heads = case.get("num_key_value_heads", heads)
    for n in (heads, key_heads, key_heads, heads):
        drawn = tf.random.stateless_normal((batch, n, length, 64), (1, 2))
        yield tf.cast(drawn, case.get("dtype", "float32"))

def attend(*inputs):
    return dot_product_attention(*inputs, **{
        name: value for name, value in case.items() if name in (
            "use_causal_mask", "sliding_window", "flash_attention"
        )
    })

@tf.function(autograph=False)
def run(query, key, value, upstream):
    inputs = query, key, value
    if not case.get("training"):
        return attend(*inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = attend(*inputs)
    return tape.gradient(context, inputs, output_gradients=upstream)

run(*inputs(1, case["query_length"] // 16))
tensors = list(inputs(case["batch_size"], case["query_length"]))
graph = run.get_concrete_function(*tensors)
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")
results = graph(*tensors)
print(json.dumps([status("VmHWM") - before, estimate_memory(**case)]))
"""

CASES = {
    "dense": {"batch_size": 4, "query_length": 1024, "flash_attention": False},
    "causal": {
        "batch_size": 32,
        "query_length": 2048,
        "use_causal_mask": True,
    },
    "training": {"batch_size": 16, "query_length": 1024, "training": True},
    "one_key_head": {
        "batch_size": 1,
        "query_length": 8192,
        "num_key_value_heads": 1,
        "use_causal_mask": True,
        "training": True,
    },
    "half_grouped_window": {
        "batch_size": 8,
        "query_length": 4096,
        "num_key_value_heads": 2,
        "dtype": "bfloat16",
        "use_causal_mask": True,
        "sliding_window": 256,
        "training": True,
    },
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_is_near_the_measured_peak(case):
    case = json.dumps({"num_heads": 8, **case})
    measured, estimate = json.loads(fresh_process.run(MEASURE, case))
    assert measured > 80e6
    assert 0.8 * measured < estimate < 1.3 * measured


def test_lengths_cost_linear_or_quadratic_memory():
    sizes = {"batch_size": 1, "num_heads": 8, "training": True}
    for flash_attention, factor in ((True, 2), (False, 4)):
        short, long = (
            estimate_memory(
                query_length=length, flash_attention=flash_attention, **sizes
            )
            for length in (2**15, 2**16)
        )
        assert 0.9 * factor < long / short < 1.1 * factor


def test_keys_may_differ_from_queries():
    sizes = {"batch_size": 1, "num_heads": 2, "query_length": 2**10}
    few, many = (
        estimate_memory(key_length=n, value_dim=32, **sizes)
        for n in (2**10, 2**16)
    )
    assert few < many


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"query_length": None},
        {"num_key_value_heads": 3},
        {"dtype": "int32"},
        {"sliding_window": 0},
        {"flash_attention": True, "return_attention_scores": True},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_refuses_what_no_call_has(wrong):
    sizes = {"batch_size": 1, "num_heads": 8, "query_length": 64}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        estimate_memory(**{**sizes, **wrong})

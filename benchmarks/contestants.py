"""Attention as several libraries compute it, on the same numbers.

Each is given tensors as it likes them best: Keras `(B, T, N, H)`, the others
`(B, N, T, H)`.
"""

import dataclasses
import importlib.util

import keras
import numpy as np
import tensorflow as tf

from keras_attention.ops import dot_product_attention


@dataclasses.dataclass(frozen=True)
class Case:
    """What is computed: sizes, masks, dtype, and with or without gradients."""

    length: int
    batch: int = 1
    heads: int = 8
    width: int = 64
    causal: bool = False
    window: int | None = None
    dtype: str = "float32"
    training: bool = False

    @property
    def name(self):
        words = [
            "training" if self.training else "forward",
            "causal" if self.causal else "",
            f"window {self.window}" if self.window else "",
            self.dtype if self.dtype != "float32" else "",
        ]
        return " ".join(filter(None, words))

    @property
    def scores_bytes(self):
        """Bytes of the scores, should they be written out."""
        return 4 * self.batch * self.heads * self.length**2

    def arrays(self):
        """Returns query, key, value and gradient, `(B, N, T, H)`."""
        rng = np.random.default_rng(0)
        shape = (self.batch, self.heads, self.length, self.width)
        return [rng.standard_normal(shape, dtype="float32") for _ in range(4)]


def ours(case):
    """Returns a call of `keras_attention.ops.dot_product_attention`."""

    def attend(query, key, value):
        return dot_product_attention(
            query,
            key,
            value,
            use_causal_mask=case.causal,
            sliding_window=case.window,
        )

    return _in_graph(case, attend)


def keras_ops(case):
    """Returns a call of `keras.ops.dot_product_attention`, or None."""
    if case.window or case.scores_bytes > 2.5e9:
        return None

    def attend(query, key, value):
        return keras.ops.dot_product_attention(
            query, key, value, is_causal=case.causal
        )

    return _in_graph(case, attend, order=(0, 2, 1, 3))


def two_products(case):
    """Returns the bare matrix products, the least that there is to do.

    In blocks of queries, two at a time: where sequences are long, that is
    faster than all of `(T, S)` at once.
    """
    if case.window or case.training:
        return None
    rows = min(512, case.length)
    blocks = case.length // rows
    heads = case.batch * case.heads
    together = min(max(2**19 // rows // case.length, 1), heads)
    steps = heads // together * blocks

    def multiply(*tensors):
        shape = (-1, case.length, case.width)
        tensors = [tf.reshape(x, shape) for x in tensors]

        def one_step(step):
            head, first = step // blocks * together, step % blocks * rows
            seen = first + rows if case.causal else case.length
            ranges = (first, rows), (0, seen), (0, seen)
            query, key, value = (
                tf.slice(x, (head, start, 0), (together, size, case.width))
                for x, (start, size) in zip(tensors, ranges, strict=True)
            )
            scores = tf.matmul(key, query, transpose_b=True)
            return tf.matmul(value, scores, transpose_a=True)

        return tf.map_fn(
            one_step,
            tf.range(steps),
            parallel_iterations=2,
            fn_output_signature=case.dtype,
        )

    return _in_graph(case, multiply)


def pytorch(case):
    """Returns a call of PyTorch's `scaled_dot_product_attention`, or None."""
    if case.window or not has_pytorch():
        return None
    import torch

    torch.set_num_threads(
        tf.config.threading.get_intra_op_parallelism_threads()
        or torch.get_num_threads()
    )
    attend = torch.nn.functional.scaled_dot_product_attention
    *inputs, upstream = (
        torch.tensor(x).to(getattr(torch, case.dtype)) for x in case.arrays()
    )

    def forward():
        with torch.no_grad():
            return attend(*inputs, is_causal=case.causal)

    def train():
        leaves = [x.detach().requires_grad_() for x in inputs]
        attend(*leaves, is_causal=case.causal).backward(upstream)
        return [x.grad for x in leaves]

    return train if case.training else forward


def has_pytorch():
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def _in_graph(case, attend, order=(0, 1, 2, 3)):
    """Returns a call of a compiled step, which on a processor is done then."""
    *inputs, upstream = (
        tf.cast(tf.transpose(x, order), case.dtype) for x in case.arrays()
    )

    @tf.function(autograph=False)
    def forward(query, key, value):
        return attend(query, key, value)

    @tf.function(autograph=False)
    def train(query, key, value):
        inputs = [query, key, value]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = attend(*inputs)
        return tape.gradient(context, inputs, output_gradients=upstream)

    step = train if case.training else forward

    return lambda: step(*inputs)


CONTESTANTS = {
    "ours": ours,
    "Keras": keras_ops,
    "PyTorch": pytorch,
    "two products": two_products,
}

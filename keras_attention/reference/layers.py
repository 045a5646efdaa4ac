"""What transformers are made of, around attention."""

import math
from dataclasses import dataclass

import numpy as np

from keras_attention.reference.arrays import boolean, float64, zero_unless
from keras_attention.reference.attention import dot_product_attention
from keras_attention.reference.positions import alibi_bias, rms_norm, rotate


def multi_head_attention(
    query,
    value,
    key=None,
    *,
    weights,
    use_bias=True,
    use_gate=False,
    position=None,
    qk_norm=False,
    query_mask=None,
    value_mask=None,
    key_mask=None,
    **attention_options,
) -> tuple[np.ndarray, np.ndarray]:
    """Projects to heads, attends in each, and projects back.

    Arguments are in the order of Keras: query, value, then key.

    Args:
        query: `(B, T, D)`.
        value: `(B, S, D)`.
        key: `(B, S, D)`; the value if None.
        weights: As the layer's `get_weights()` gives them: kernel and bias of
            query, key, gate, value and output, in this order. Kernels are
            `(D, N, H)` or, of the output, `(N, Hv, D_out)`; biases `(N, H)`
            or `(D_out,)`. Key and value may have fewer heads than query.
        use_bias: Whether `weights` has biases.
        use_gate: Whether `weights` has a gate: the sigmoid of a projection of
            the query, which multiplies the context (Qiu et al., 2025).
        position: "rotary" rotates query and key heads, "alibi" adds a bias
            to the scores, both by positions that count from 0.
        qk_norm: Whether `weights` end on two scales `(H,)`, of query and
            key heads divided by their root mean square.
        query_mask: Boolean `(B, T)`.
        value_mask: Boolean `(B, S)`.
        key_mask: Boolean `(B, S)`.
        **attention_options: Further arguments of `dot_product_attention`.

    Returns:
        output `(B, T, D_out)` and attention scores `(B, N, T, S)`, which are
        the weights after the softmax, as Keras calls them.

    Raises:
        ValueError: The number of weights does not fit the flags.

    Example: equal keys, so the context is the mean of 2 * [4, 8], which is
    12, and the output projection makes it 10 * 12 + 1.
    >>> weights = [[[[0]]], [[0]], [[[0]]], [[0]],  # query, key: kernel, bias
    ...            [[[2]]], [[0]], [[[10]]], [1]]  # value, output
    >>> output, _ = multi_head_attention([[[3]]], [[[4], [8]]], weights=weights)
    >>> print(output)
    [[[121.]]]
    """
    key = value if key is None else key
    count = len(weights) - (2 if qk_norm else 0)
    arrays = _by_name(weights[:count], use_bias, use_gate)
    query_heads = _to_heads(query, *arrays["query"])
    key_heads = _to_heads(key, *arrays["key"])
    if qk_norm:
        query_heads = rms_norm(query_heads, weights[count])
        key_heads = rms_norm(key_heads, weights[count + 1])
    steps = np.arange(query_heads.shape[-2]), np.arange(key_heads.shape[-2])
    if position == "rotary":
        query_heads = rotate(query_heads, steps[0])
        key_heads = rotate(key_heads, steps[1])
    if position == "alibi":
        fading = alibi_bias(query_heads.shape[-3], *steps)[None]
        bias = attention_options.get("attention_bias")
        attention_options["attention_bias"] = (
            fading if bias is None else fading + bias
        )
    context, scores = dot_product_attention(
        query_heads,
        key_heads,
        _to_heads(value, *arrays["value"]),
        query_mask=query_mask,
        key_mask=_both(key_mask, value_mask),
        **attention_options,
    )
    if use_gate:
        gate = sigmoid(_to_heads(query, *arrays["gate"]))
        context = context * zero_unless(scores.any(axis=-1), gate)
    kernel, bias = arrays["output"]
    heads_last = context.swapaxes(-2, -3)
    return np.tensordot(heads_last, kernel, axes=2) + bias, scores


def layer_norm(inputs, gamma, beta, epsilon=1e-5) -> np.ndarray:
    """Gives the last axis mean beta and standard deviation gamma.

    Args:
        inputs: `(..., D)`.
        gamma: `(D,)`.
        beta: `(D,)`.
        epsilon: Added to the variance, against division by zero.

    Returns:
        `(..., D)`.

    Example: 2 and 6 lie 2 below and 2 above their mean, so -1 and 1.
    >>> print(layer_norm([2, 6], gamma=5, beta=10, epsilon=0))
    [ 5. 15.]
    """
    inputs = float64(inputs)
    centred = inputs - inputs.mean(axis=-1, keepdims=True)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    normal = centred / np.sqrt(variance + epsilon)
    return normal * float64(gamma) + float64(beta)


def relu(inputs) -> np.ndarray:
    """`max(inputs, 0)`.

    Example:
    >>> print(relu([-2, 3]))
    [0. 3.]
    """
    return np.maximum(float64(inputs), 0)


def gelu(inputs) -> np.ndarray:
    """`inputs * P(Z <= inputs)`, Z standard normal: the exact, erf form.

    Example: 84.134 % of a normal distribution lies below +1.
    >>> print(gelu([-1, 0, 1]).round(5))
    [-0.15866  0.       0.84134]
    """
    inputs = float64(inputs)
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return inputs * (1 + erf(inputs / math.sqrt(2))) / 2


def sigmoid(inputs) -> np.ndarray:
    """`1 / (1 + exp(-inputs))`, by tanh, which does not overflow.

    Example:
    >>> print(sigmoid([-1e9, 0, np.log(3)]))  # 1 / (1 + 1/3)
    [0.   0.5  0.75]
    """
    return (1 + np.tanh(float64(inputs) / 2)) / 2


def feed_forward(inputs, weights, activation=relu) -> np.ndarray:
    """Two dense layers, an activation between them, at each position alone.

    Args:
        inputs: `(..., D)`.
        weights: kernel `(D, F)`, bias `(F,)`, kernel `(F, D)`, bias `(D,)`.
        activation: Function of an array.

    Returns:
        `(..., D)`.

    Example: 2 * [1, -1] is [2, -2], relu leaves [2, 0], and 2 * 3 + 0 * 5 + 1.
    >>> weights = [[[1, -1]], [0, 0], [[3], [5]], [1]]
    >>> print(feed_forward([2], weights))
    [7.]
    """
    kernel_in, bias_in, kernel_out, bias_out = map(float64, weights)
    hidden = activation(float64(inputs) @ kernel_in + bias_in)
    return hidden @ kernel_out + bias_out


@dataclass(frozen=True)
class EncoderWeights:
    """Weights of an encoder block, each as `get_weights()` of its layer."""

    attention: list  # see multi_head_attention
    attention_norm: list  # gamma, beta
    feed_forward: list  # kernel, bias, kernel, bias
    feed_forward_norm: list  # gamma, beta


def encoder_block(
    inputs,
    weights: EncoderWeights,
    padding_mask=None,
    activation=relu,
    layer_norm_epsilon=1e-5,
    normalize_first=False,
    **attention_options,
) -> tuple[np.ndarray, np.ndarray]:
    """Self-attention, then feed-forward, each added to what it was given.

    The sum is normalised (Vaswani et al., 2017) or, with `normalize_first`,
    the input of each part is (Xiong et al., 2020).

    Args:
        inputs: `(B, T, D)`.
        weights: An `EncoderWeights`.
        padding_mask: Boolean `(B, T)`; padding neither attends nor is seen.
        activation: Function of an array.
        layer_norm_epsilon: Added to the variance.
        normalize_first: Whether to normalise before each part.
        **attention_options: Further arguments of `multi_head_attention`.

    Returns:
        outputs `(B, T, D)` and attention scores `(B, N, T, T)`.

    Example: when every kernel and bias is 0, the inputs pass unchanged.
    >>> kernel, bias = np.zeros((4, 2, 2)), np.zeros((2, 2))
    >>> block = EncoderWeights(
    ...     [kernel, bias] * 3 + [np.zeros((2, 2, 4)), np.zeros(4)],
    ...     [np.ones(4), np.zeros(4)],
    ...     [np.zeros((4, 8)), np.zeros(8), np.zeros((8, 4)), np.zeros(4)],
    ...     [np.ones(4), np.zeros(4)])
    >>> print(encoder_block([[[1, 2, 3, 4]]], block, normalize_first=True)[0])
    [[[1. 2. 3. 4.]]]
    """

    def attend(x):
        return multi_head_attention(
            x,
            x,
            weights=weights.attention,
            query_mask=padding_mask,
            value_mask=padding_mask,
            **attention_options,
        )

    def transform(x):
        return feed_forward(x, weights.feed_forward, activation)

    def attention_norm(x):
        return layer_norm(x, *weights.attention_norm, layer_norm_epsilon)

    def feed_forward_norm(x):
        return layer_norm(x, *weights.feed_forward_norm, layer_norm_epsilon)

    x = float64(inputs)
    if normalize_first:
        attended, scores = attend(attention_norm(x))
        x = x + attended
        return x + transform(feed_forward_norm(x)), scores
    attended, scores = attend(x)
    x = attention_norm(x + attended)
    return feed_forward_norm(x + transform(x)), scores


@dataclass(frozen=True)
class DecoderWeights:
    """Weights of a decoder block, each as `get_weights()` of its layer."""

    attention: list  # see multi_head_attention
    attention_norm: list  # gamma, beta
    cross_attention: list  # see multi_head_attention; empty for none
    cross_attention_norm: list  # gamma, beta
    feed_forward: list  # kernel, bias, kernel, bias
    feed_forward_norm: list  # gamma, beta


def decoder_block(
    inputs,
    encoded,
    weights: DecoderWeights,
    padding_mask=None,
    encoded_padding_mask=None,
    attention_mask=None,
    encoded_attention_mask=None,
    activation=relu,
    layer_norm_epsilon=1e-5,
    normalize_first=False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Causal self-attention, cross-attention, feed-forward, each added.

    Args:
        inputs: `(B, T, D)`.
        encoded: `(B, S, De)`, not read without cross-attention.
        weights: A `DecoderWeights`.
        padding_mask: Boolean `(B, T)`.
        encoded_padding_mask: Boolean `(B, S)`.
        attention_mask: Boolean `(T, T)` or `(B, T, T)`.
        encoded_attention_mask: Boolean `(T, S)` or `(B, T, S)`.
        activation: Function of an array.
        layer_norm_epsilon: Added to the variance.
        normalize_first: Whether to normalise before each part.

    Returns:
        outputs `(B, T, D)` and a list of attention scores, `(B, N, T, T)` and
        `(B, N, T, S)`.

    Example: when every kernel and bias is 0, the inputs pass unchanged.
    >>> kernel, bias = np.zeros((4, 2, 2)), np.zeros((2, 2))
    >>> attention = [kernel, bias] * 3 + [np.zeros((2, 2, 4)), np.zeros(4)]
    >>> norm = [np.ones(4), np.zeros(4)]
    >>> network = [np.zeros((4, 8)), np.zeros(8), np.zeros((8, 4)), np.zeros(4)]
    >>> block = DecoderWeights(
    ...     attention, norm, attention, norm, network, norm)
    >>> x = [[[1, 2, 3, 4]]]
    >>> print(decoder_block(x, x, block, normalize_first=True)[0])
    [[[1. 2. 3. 4.]]]
    """
    all_scores = []

    def attend(x, value, part, **options):
        output, scores = multi_head_attention(
            x, value, weights=part, query_mask=padding_mask, **options
        )
        all_scores.append(scores)
        return output

    def self_attention(x):
        options = {"value_mask": padding_mask, "attention_mask": attention_mask}
        return attend(x, x, weights.attention, use_causal_mask=True, **options)

    def cross_attention(x):
        return attend(
            x,
            encoded,
            weights.cross_attention,
            value_mask=encoded_padding_mask,
            attention_mask=encoded_attention_mask,
        )

    def transform(x):
        return feed_forward(x, weights.feed_forward, activation)

    x = float64(inputs)
    for part, norm in (
        (self_attention, weights.attention_norm),
        (cross_attention, weights.cross_attention_norm),
        (transform, weights.feed_forward_norm),
    ):
        if not norm:
            continue
        gamma, beta = norm
        if normalize_first:
            x = x + part(layer_norm(x, gamma, beta, layer_norm_epsilon))
        else:
            x = layer_norm(x + part(x), gamma, beta, layer_norm_epsilon)
    return x, all_scores


def _both(mask, other):
    """Logical AND, where None hides nothing."""
    if mask is None or other is None:
        return other if mask is None else mask
    return boolean(mask) & boolean(other)


def _to_heads(inputs, kernel, bias):
    """Projects (..., T, D) to heads, (..., N, T, H)."""
    projected = np.tensordot(float64(inputs), kernel, axes=1) + bias
    return projected.swapaxes(-2, -3)


def _by_name(weights, use_bias, use_gate):
    """The weights as {"query": (kernel, bias), ...}."""
    names = ["query", "key", "gate", "value", "output"]
    if not use_gate:
        names.remove("gate")
    expected = len(names) * (2 if use_bias else 1)
    if len(weights) != expected:
        raise ValueError(
            f"Expected {expected} weights for use_bias={use_bias}, "
            f"use_gate={use_gate}. Received: len(weights)={len(weights)}"
        )
    arrays = [float64(array) for array in weights]
    kernels = arrays[::2] if use_bias else arrays
    biases = arrays[1::2] if use_bias else [0.0] * len(names)
    return dict(zip(names, zip(kernels, biases, strict=True), strict=True))

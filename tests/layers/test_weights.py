"""Weights of PyTorch and Hugging Face, by products written out in NumPy."""

import keras
import numpy as np
import pytest
from support.arrays import coins, normal
from support.layer_contract import randomize, to_numpy

from keras_attention import layers
from keras_attention.layers import EncoderBlock, MultiHeadAttention, weights

B, T, S, D, N = 2, 5, 3, 16, 4
H = D // N
KDIM, VDIM, WIDE = 6, 7, 11
HF = ("attention.self.query", "attention.self.key", "attention.self.value")


def torch_state(prefix=""):
    w, b, out, out_b = normal((3 * D, D), (3 * D,), (D, D), (D,))
    return {
        f"{prefix}in_proj_weight": w,
        f"{prefix}in_proj_bias": b,
        f"{prefix}out_proj.weight": out,
        f"{prefix}out_proj.bias": out_b,
    }


def by_hand(query, key, value, projections, output, hidden=None):
    """Attention as PyTorch's documentation writes it, head by head."""
    q, k, v = (
        x @ np.asarray(w, "float64").T + b
        for x, (w, b) in zip((query, key, value), projections, strict=True)
    )
    heads = []
    for n in range(N):
        part = slice(n * H, (n + 1) * H)
        scores = q[..., part] @ k[..., part].swapaxes(1, 2) / np.sqrt(H)
        if hidden is not None:
            scores = np.where(hidden[:, None], -np.inf, scores)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(scores / scores.sum(-1, keepdims=True) @ v[..., part])
    return np.concatenate(heads, -1) @ output[0].T + output[1]


def test_packed_projections_of_pytorch():
    state = torch_state("attn.")
    layer = MultiHeadAttention(N, H)
    weights.load_torch(layer, state, "attn.")
    query, value = normal((B, T, D), (B, S, D), seed=8)
    hidden = ~coins(B, S)
    hidden[:, 0] = False
    w = state["attn.in_proj_weight"].reshape(3, D, D)
    b = state["attn.in_proj_bias"].reshape(3, D)
    output = state["attn.out_proj.weight"], state["attn.out_proj.bias"]
    expected = by_hand(
        query, value, value, zip(w, b, strict=True), output, hidden
    )
    actual = layer(query, value, value_mask=~hidden)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_same(weights.dump_torch(layer, "attn."), state)


def test_projections_of_other_widths_than_the_model():
    shapes = {"q": (D, D), "k": (D, KDIM), "v": (D, VDIM)}
    arrays = normal(*shapes.values(), (3 * D,), (D, D), (D,))
    names = (*(f"{n}_proj_weight" for n in shapes), "in_proj_bias")
    names += "out_proj.weight", "out_proj.bias"
    state = dict(zip(names, arrays, strict=True))
    layer = MultiHeadAttention(N, H)
    weights.load_torch(layer, state)
    query, key, value = normal((B, T, D), (B, S, KDIM), (B, S, VDIM), seed=8)
    expected = by_hand(
        query,
        key,
        value,
        zip(arrays[:3], arrays[3].reshape(3, D), strict=True),
        arrays[4:],
    )
    actual = layer(query, value, key)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_same(weights.dump_torch(layer), state)


def test_separate_matrices_of_hugging_face():
    prefix = "bert.encoder.layer.3."
    state = hugging_face_state(prefix)
    block = EncoderBlock(N, WIDE, activation="gelu", layer_norm_epsilon=1e-12)
    weights.load_hugging_face(block, state, prefix)
    x = normal((B, T, D), seed=8)
    actual = block(x)

    def part(name):
        weight = state[f"{prefix}{name}.weight"].astype("float64")
        return weight, state[f"{prefix}{name}.bias"]

    def norm(x, name):
        gamma, beta = part(name)
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        return x * gamma + beta

    projections = [part(name) for name in HF]
    attended = by_hand(x, x, x, projections, part("attention.output.dense"))
    middle = norm(x + attended, "attention.output.LayerNorm")
    (w1, b1), (w2, b2) = part("intermediate.dense"), part("output.dense")
    inner = to_numpy(keras.activations.gelu(middle @ w1.T + b1))
    expected = norm(middle + inner @ w2.T + b2, "output.LayerNorm")
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_same(weights.dump_hugging_face(block, prefix), state)

    alone = MultiHeadAttention(N, H)
    weights.load_hugging_face(alone, state, f"{prefix}attention.")
    np.testing.assert_allclose(alone(x, x), attended, rtol=1e-5, atol=1e-5)


def test_a_decoder_has_two_attention_layers():
    for dump, load in (
        (weights.dump_torch, weights.load_torch),
        (weights.dump_hugging_face, weights.load_hugging_face),
    ):
        block = layers.DecoderBlock(N, WIDE)
        block.build((None, None, D), (None, None, D))
        randomize(block)
        state = dump(block, "layers.0.")
        assert len(state) == len({*state}) >= 18
        again = layers.DecoderBlock(N, WIDE)
        load(again, state, "layers.0.")
        x, memory = normal((B, T, D), (B, S, D))
        np.testing.assert_array_equal(again(x, memory), block(x, memory))
        with pytest.raises(ValueError, match="without cross-attention"):
            load(EncoderBlock(N, WIDE), state, "layers.0.")


def hugging_face_state(prefix):
    shapes = {name: (D, D) for name in (*HF, "attention.output.dense")}
    shapes["attention.output.LayerNorm"] = (D,)
    shapes |= {"intermediate.dense": (WIDE, D), "output.dense": (D, WIDE)}
    shapes["output.LayerNorm"] = (D,)
    arrays = normal(*shapes.values(), *[s[:1] for s in shapes.values()])
    names = [f"{prefix}{n}.weight" for n in shapes]
    names += [f"{prefix}{n}.bias" for n in shapes]
    return dict(zip(names, arrays, strict=True))


def test_tensors_are_read_by_their_own_methods():
    class Tensor:
        """Behaves like one of PyTorch that needs gradients, on a device."""

        def __init__(self, array):
            self.array = array

        def detach(self):
            return self

        def cpu(self):
            return self

        def numpy(self):
            return self.array

    state = torch_state()
    layer = MultiHeadAttention(N, H)
    weights.load_torch(layer, {k: Tensor(v) for k, v in state.items()})
    assert_same(weights.dump_torch(layer), state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"in_proj_weight": np.ones((2 * D, D))},
            r"`in_proj_weight` must hold .* \(3D, D\).* \(32, 16\)",
        ),
        (
            {"out_proj.weight": np.ones((D, 8))},
            r"`out_proj.weight` has the shape \(16, 8\), .* takes \(16, 16\)",
        ),
        ({"out_proj.bias": None}, "no array `out_proj.bias`"),
        ({"bias_k": np.ones((1, 1, D))}, "`bias_k` has no counterpart"),
    ],
)
def test_arrays_that_do_not_fit_are_named(changes, message):
    layer = MultiHeadAttention(N, H)
    layer.build((None, None, D), (None, None, D))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=message):
        weights.load_torch(layer, {**torch_state(), **changes})
    for weight, value in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_what_has_no_place_is_refused():
    layer = MultiHeadAttention(N, H, use_bias=False)
    with pytest.raises(ValueError, match=r"q_proj_bias` of shape \(16,\) has"):
        weights.load_torch(layer, torch_state())
    with pytest.raises(ValueError, match="begins with 'decoder.'"):
        weights.load_torch(layer, torch_state(), "decoder.")
    with pytest.raises(ValueError, match="must be a built `MultiHead"):
        weights.dump_torch(layers.FeedForward(3))
    gated = MultiHeadAttention(N, H, use_gate=True)
    gated.build((None, None, D), (None, None, D))
    with pytest.raises(ValueError, match="has a gate"):
        weights.dump_torch(gated)
    wide = MultiHeadAttention(N, H + 1)
    wide.build((None, None, D), (None, None, D))
    with pytest.raises(ValueError, match="share the width"):
        weights.dump_torch(wide)


def test_weights_files_of_keras_load(tmp_path):
    def model(package):
        inputs = keras.Input((T, D))
        attend = package.MultiHeadAttention(N, H, name="attend")
        return keras.Model(inputs, attend(inputs, inputs))

    theirs, ours = model(keras.layers), model(layers)
    theirs.save_weights(tmp_path / "old.weights.h5")
    ours.load_weights(tmp_path / "old.weights.h5")
    x = normal((B, T, D))
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)

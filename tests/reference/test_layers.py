import inspect

import keras
import numpy as np
import pytest

from keras_attention import reference

B, T, S, D, N, H, HV, F = 2, 3, 5, 8, 4, 6, 7, 9

# Keras gained the gate in the course of version 3.
GATES = [False]
if "use_gate" in inspect.signature(keras.layers.MultiHeadAttention).parameters:
    GATES.append(True)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def built(rng, layer, *inputs):
    """Builds a layer and gives it weights that are random throughout."""
    layer(*inputs)
    layer.set_weights(
        [rng.normal(size=w.shape, scale=0.3) for w in layer.get_weights()]
    )
    return layer


def inputs_for_attention(rng):
    """Query, value and key of Keras, float32, of three widths."""
    shapes = [(B, T, D), (B, S, D + 1), (B, S, D + 2)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


class TestMultiHeadAttention:
    def test_by_hand(self):
        # Two heads of width 1. Head 0 queries with x and keys with x, head 1
        # with zeros. The sequence is [0, 1] and the query ln 3:
        # head 0: scores 0, ln 3; weights 1/4, 3/4; values 4 * x = 0, 4;
        #   context 0 * 1/4 + 4 * 3/4 = 3.
        # head 1: weights 1/2, 1/2; values 2 * x + 1 = 1, 3; context 2.
        # Output: 10 * 3 + 100 * 2 + 5 = 235.
        output, scores = reference.multi_head_attention(
            query=[[[np.log(3)]]],
            value=[[[0], [1]]],
            weights=[
                *([[[1], [0]]], [[0], [0]]),  # query kernel (D, N, H), bias
                *([[[1], [0]]], [[0], [0]]),  # key
                *([[[4], [2]]], [[0], [1]]),  # value
                *([[[10]], [[100]]], [5]),  # output kernel (N, Hv, D), bias
            ],
        )
        np.testing.assert_allclose(
            scores[0, :, 0], [[1 / 4, 3 / 4], [1 / 2] * 2]
        )
        np.testing.assert_allclose(output, [[[235]]])

    def test_gate_by_hand(self):
        # Zero scores, so the context is the mean of 4 and 8, 6. The gate is
        # sigmoid(2 * ln 3 - ln 3) = 3/4; output 6 * 3/4 = 4.5.
        output, _ = reference.multi_head_attention(
            query=[[[np.log(3)]]],
            value=[[[4], [8]]],
            weights=[
                *([[[0]]], [[0]]),  # query kernel, bias
                *([[[0]]], [[0]]),  # key
                *([[[2]]], [[-np.log(3)]]),  # gate
                *([[[1]]], [[0]]),  # value
                *([[[1]]], [0]),  # output
            ],
            use_gate=True,
        )
        np.testing.assert_allclose(output, [[[4.5]]])

    @pytest.mark.parametrize("use_gate", GATES)
    @pytest.mark.parametrize("use_bias", [True, False])
    def test_equals_keras(self, rng, use_bias, use_gate):
        query, value, key = inputs_for_attention(rng)
        gate = {"use_gate": True} if use_gate else {}
        layer = keras.layers.MultiHeadAttention(
            N, H, HV, use_bias=use_bias, output_shape=F, **gate
        )
        built(rng, layer, query, value, key)
        mask = rng.random((B, T, S)) < 0.6
        mask[..., 0] = True
        theirs = layer(
            query,
            value,
            key,
            attention_mask=mask,
            return_attention_scores=True,
        )
        ours = reference.multi_head_attention(
            query,
            value,
            key,
            weights=layer.get_weights(),
            use_bias=use_bias,
            use_gate=use_gate,
            attention_mask=mask,
        )
        for actual, expected in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-5)

    def test_equals_keras_causal_window_and_padding(self, rng):
        query = rng.normal(size=(B, S, D)).astype("float32")
        layer = built(rng, keras.layers.MultiHeadAttention(N, H), query, query)
        # Each query sees at least itself or the key before it.
        value_mask = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 0, 1]], bool)
        band = np.tri(S, k=1, dtype=bool) & ~np.tri(S, k=-2, dtype=bool)
        theirs = layer(
            query,
            query,
            value_mask=keras.ops.convert_to_tensor(value_mask),
            attention_mask=band[None],
            use_causal_mask=True,
        )
        ours, _ = reference.multi_head_attention(
            query,
            query,
            weights=layer.get_weights(),
            value_mask=value_mask,
            use_causal_mask=True,
            sliding_window=2,
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-5)

    @pytest.mark.parametrize("use_gate", GATES)
    def test_equals_keras_grouped(self, rng, use_gate):
        query = rng.normal(size=(B, T, D)).astype("float32")
        value = rng.normal(size=(B, S, D)).astype("float32")
        gate = {"use_gate": True} if use_gate else {}
        layer = keras.layers.GroupQueryAttention(H, N, 2, **gate)
        built(rng, layer, query, value)
        ours, _ = reference.multi_head_attention(
            query, value, weights=layer.get_weights(), use_gate=use_gate
        )
        np.testing.assert_allclose(ours, layer(query, value), atol=1e-5)

    def test_leading_axes_are_any(self, rng):
        query = rng.normal(size=(B, 3, T, D)).astype("float32")
        value = rng.normal(size=(B, 3, S, D)).astype("float32")
        layer = keras.layers.MultiHeadAttention(N, H, attention_axes=(2,))
        built(rng, layer, query, value)
        ours, _ = reference.multi_head_attention(
            query, value, weights=layer.get_weights()
        )
        np.testing.assert_allclose(ours, layer(query, value), atol=1e-5)

    def weights(self, rng, use_gate=False):
        shapes = [(D, N, H), (N, H)] * 2
        shapes += [(D, N, HV), (N, HV)] * (2 if use_gate else 1)
        shapes += [(N, HV, D), (D,)]
        return [rng.normal(size=shape) for shape in shapes]

    def test_key_mask_and_value_mask_must_agree(self, rng):
        query, value = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
        weights = self.weights(rng)
        key_mask = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], bool)
        value_mask = np.array([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
        output, scores = reference.multi_head_attention(
            query,
            value,
            weights=weights,
            key_mask=key_mask,
            value_mask=value_mask,
        )
        seen = np.broadcast_to(
            (key_mask & value_mask)[:, None, None], (B, N, T, S)
        )
        np.testing.assert_array_equal(scores > 0, seen)
        alone, _ = reference.multi_head_attention(
            query[:1], value[:1, [0, 3, 4]], weights=weights
        )
        np.testing.assert_allclose(output[:1], alone)

    @pytest.mark.parametrize("use_gate", [False, True])
    def test_nan_at_padding_reaches_nothing(self, rng, use_gate):
        x = rng.normal(size=(B, S, D))
        weights = self.weights(rng, use_gate)
        padding = np.arange(S) < np.array([[2], [4]])
        x[~padding] = np.nan
        output, _ = reference.multi_head_attention(
            x,
            x,
            weights=weights,
            use_gate=use_gate,
            query_mask=padding,
            value_mask=padding,
        )
        for b, length in enumerate([2, 4]):
            alone, _ = reference.multi_head_attention(
                x[b : b + 1, :length],
                x[b : b + 1, :length],
                weights=weights,
                use_gate=use_gate,
            )
            np.testing.assert_allclose(output[b, :length], alone[0])
            # A context of zeros leaves the bias of the output projection.
            rest = np.broadcast_to(weights[-1], (S - length, D))
            np.testing.assert_allclose(output[b, length:], rest)

    def test_the_number_of_weights_must_fit(self, rng):
        x = rng.normal(size=(B, T, D))
        with pytest.raises(ValueError, match="Expected 10 weights"):
            reference.multi_head_attention(
                x, x, weights=self.weights(rng), use_gate=True
            )


class TestParts:
    def test_layer_norm_by_hand(self):
        # Mean 3, deviations -2, 0, 2, 0; variance 8/4 = 2, and 2 more makes
        # a standard deviation of 2: -1, 0, 1, 0.
        norm = reference.layer_norm(
            [1, 3, 5, 3], [1, 2, 3, 4], [10, 20, 30, 40], epsilon=2
        )
        np.testing.assert_allclose(norm, [9, 20, 33, 40])

    def test_layer_norm_equals_keras(self, rng):
        x = rng.normal(size=(B, T, D)).astype("float32")
        layer = built(rng, keras.layers.LayerNormalization(epsilon=1e-2), x)
        norm = reference.layer_norm(x, *layer.get_weights(), epsilon=1e-2)
        np.testing.assert_allclose(norm, layer(x), atol=1e-5)

    def test_activations_equal_keras(self):
        x = np.linspace(-6, 6, 25).astype("float32").reshape(5, 5)
        pairs = [
            (reference.relu, keras.ops.relu),
            (reference.sigmoid, keras.ops.sigmoid),
            (reference.gelu, lambda x: keras.ops.gelu(x, approximate=False)),
        ]
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours(x), theirs(x), atol=1e-6)

    def test_feed_forward_equals_keras(self, rng):
        x = rng.normal(size=(B, T, D)).astype("float32")
        layer = feed_forward_of_keras("relu")
        built(rng, layer, x)
        ours = reference.feed_forward(x, layer.get_weights())
        np.testing.assert_allclose(ours, layer(x), atol=1e-5)


def feed_forward_of_keras(activation):
    return keras.Sequential(
        [keras.layers.Dense(F, activation=activation), keras.layers.Dense(D)]
    )


class TestEncoderBlock:
    def layers(self, rng, x, activation="relu"):
        """The parts of a block in Keras: attention, norm, network, norm."""
        attention = keras.layers.MultiHeadAttention(N, H)
        norms = [
            keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2)
        ]
        network = feed_forward_of_keras(activation)
        built(rng, attention, x, x)
        for layer in (*norms, network):
            built(rng, layer, x)
        return attention, norms[0], network, norms[1]

    def weights(self, layers):
        return reference.EncoderWeights(*(x.get_weights() for x in layers))

    @pytest.mark.parametrize("normalize_first", [False, True])
    @pytest.mark.parametrize(
        "name, activation",
        [("relu", reference.relu), ("gelu", reference.gelu)],
    )
    def test_equals_keras(self, rng, normalize_first, name, activation):
        x = rng.normal(size=(B, S, D)).astype("float32")
        layers = self.layers(rng, x, name)
        attention, first_norm, network, second_norm = layers
        padding = np.arange(S) < np.array([[3], [5]])
        seen = np.repeat(padding[:, None, :], S, axis=1)
        if normalize_first:
            y = first_norm(x)
            y = x + attention(y, y, attention_mask=seen)
            theirs = y + network(second_norm(y))
        else:
            y = first_norm(x + attention(x, x, attention_mask=seen))
            theirs = second_norm(y + network(y))
        ours, scores = reference.encoder_block(
            x,
            self.weights(layers),
            padding_mask=padding,
            activation=activation,
            normalize_first=normalize_first,
        )
        assert scores.shape == (B, N, S, S)
        np.testing.assert_allclose(
            ours[padding], np.asarray(theirs)[padding], atol=1e-5
        )

    @pytest.mark.parametrize("normalize_first", [False, True])
    def test_padding_reaches_nothing(self, rng, normalize_first):
        x = rng.normal(size=(B, S, D))
        weights = self.weights(self.layers(rng, x))
        lengths = [2, 4]
        padding = np.arange(S) < np.array(lengths)[:, None]
        x[~padding] = np.nan
        whole, _ = reference.encoder_block(
            x, weights, padding, normalize_first=normalize_first
        )
        for b, length in enumerate(lengths):
            alone, _ = reference.encoder_block(
                x[b : b + 1, :length], weights, normalize_first=normalize_first
            )
            np.testing.assert_allclose(whole[b, :length], alone[0])

    def test_options_reach_the_attention(self, rng):
        x = rng.normal(size=(B, S, D))
        weights = self.weights(self.layers(rng, x))
        _, scores = reference.encoder_block(x, weights, use_causal_mask=True)
        seen = np.broadcast_to(np.tri(S, dtype=bool), (B, N, S, S))
        np.testing.assert_array_equal(scores > 0, seen)


class TestSinusoidalPositions:
    def test_by_hand(self):
        # Depth 4, longest wavelength 100: the pairs turn by 100^0 = 1 and
        # 100^(-2/4) = 1/10 a position.
        table = reference.sinusoidal_positions(3, 4, max_wavelength=100)
        angles = np.array([[0, 0], [1, 0.1], [2, 0.2]])
        np.testing.assert_allclose(table[:, [0, 2]], np.sin(angles))
        np.testing.assert_allclose(table[:, [1, 3]], np.cos(angles))

    def test_odd_depth_ends_on_a_sine(self):
        # Depth 3: the pairs turn by 1 and 1000^(-2/3) = 1/100.
        table = reference.sinusoidal_positions(2, 3, max_wavelength=1000)
        expected = [[0, 1, 0], [np.sin(1), np.cos(1), np.sin(0.01)]]
        np.testing.assert_allclose(table, expected)

    def test_start_index(self):
        whole = reference.sinusoidal_positions(7, 6)
        end = reference.sinusoidal_positions(3, 6, start_index=4)
        np.testing.assert_allclose(end, whole[4:])

import keras
import numpy as np
import pytest

from keras_attention import reference

B, N, T, S, H, HV = 2, 4, 3, 5, 6, 7


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


class TestScores:
    def test_additive_by_hand(self):
        # tanh(ln 2 / 2 + ln 2 / 2) = (2 - 1/2) / (2 + 1/2) = 3/5, tanh 0 = 0,
        # so 10 * 3/5 + 20 * 0 = 6; with the second key the signs turn.
        half = np.log(2) / 2
        scores = reference.additive_scores(
            [[half, 1]], [[half, -1], [-3 * half, -1]], [10, 20]
        )
        close(scores, [[6, -6]])

    def test_multiplicative_by_hand(self):
        query, key = [[1, 2], [0, 1]], [[3, 4], [5, 6], [7, 8]]
        # 1*3 + 2*4, 1*5 + 2*6, 1*7 + 2*8 and then the second column of key.
        dot = reference.multiplicative_scores(query, key)
        close(dot, [[11, 17, 23], [4, 6, 8]])
        # query @ weight: [1*1 + 2*0, 1*1 + 2*2] = [1, 5], then [0, 2].
        general = reference.multiplicative_scores(query, key, [[1, 1], [0, 2]])
        close(general, [[23, 35, 47], [8, 12, 16]])

    def test_general_score_joins_two_widths(self, rng):
        query, key = rng.normal(size=(B, T, 4)), rng.normal(size=(B, S, 6))
        weight = rng.normal(size=(4, 6))
        scores = reference.multiplicative_scores(query, key, weight)
        assert scores.shape == (B, T, S)
        close(scores[1, 2, 3], query[1, 2] @ weight @ key[1, 3])

    @pytest.mark.parametrize("kind", ["additive", "multiplicative"])
    def test_equals_keras(self, rng, kind):
        query = rng.normal(size=(B, T, H)).astype("float32")
        key = rng.normal(size=(B, S, H)).astype("float32")
        value = rng.normal(size=(B, S, HV)).astype("float32")
        if kind == "additive":
            layer = keras.layers.AdditiveAttention()
        else:
            layer = keras.layers.Attention()
        theirs = layer(
            [query, value, key],
            return_attention_scores=True,
            use_causal_mask=True,
        )
        if kind == "additive":
            (scale,) = layer.get_weights()
            scores = reference.additive_scores(query, key, scale)
        else:
            scores = reference.multiplicative_scores(query, key)
        ours = reference.attention_from_scores(
            scores, value, reference.visible_pairs(T, S, use_causal_mask=True)
        )
        for actual, expected in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-5)


class TestAttentionFromScores:
    def test_by_hand(self):
        # exp: 1, 3; sum 4. Context: 8 * 1/4 + 4 * 3/4 = 5.
        context, weights = reference.attention_from_scores(
            [[0, np.log(3)]], [[8], [4]]
        )
        close(weights, [[1 / 4, 3 / 4]])
        close(context, [[5]])

    def test_equals_dot_product_attention(self, rng):
        query = rng.normal(size=(B, N, T, H))
        key = rng.normal(size=(B, N, S, H))
        value = rng.normal(size=(B, N, S, HV))
        visible = rng.random((B, N, T, S)) < 0.5
        visible[0, 1, 2] = False
        scores = reference.multiplicative_scores(query / np.sqrt(H), key)
        ours = reference.attention_from_scores(scores, value, visible)
        theirs = reference.dot_product_attention(query, key, value, visible)
        for actual, expected in zip(ours, theirs, strict=True):
            close(actual, expected)

    @pytest.mark.parametrize("by_score", [False, True])
    def test_a_hidden_key_reaches_nothing(self, rng, by_score):
        value = rng.normal(size=(B, N, S, HV))
        scores = rng.normal(size=(B, N, T, S))
        expected, _ = reference.attention_from_scores(
            scores[..., :4], value[..., :4, :]
        )
        value[..., 4, :] = np.nan
        visible = None if by_score else np.arange(S) < 4
        scores[..., 4] = -np.inf if by_score else np.nan
        context, weights = reference.attention_from_scores(
            scores, value, visible
        )
        close(context, expected)
        assert not weights[..., 4].any()

import numpy as np
import pytest

from keras_attention import reference

B, N, K, T, S, H, HV = 2, 4, 2, 3, 5, 6, 7
LN3 = np.log(3.0)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def tensors(rng):
    """Query, key and value (B, N, length, width)."""
    shapes = [(B, N, T, H), (B, N, S, H), (B, N, S, HV)]
    return [rng.normal(size=shape) for shape in shapes]


def random_mask(rng, shape):
    """A mask that hides some pairs, yet leaves every query a key."""
    mask = rng.random(shape) < 0.5
    mask[..., 0] = True
    return mask


class TestSoftmax:
    def test_by_hand(self):
        # exp: 1, 2, 5; sum 8.
        close(reference.softmax(np.log([1, 2, 5])), [1 / 8, 2 / 8, 5 / 8])

    def test_runs_over_the_last_axis(self, rng):
        weights = reference.softmax(rng.normal(size=(B, T, S)))
        close(weights.sum(axis=-1), np.ones((B, T)))

    def test_hidden_entries_are_exactly_zero(self):
        # exp: 1, hidden, 3; sum 4. The hidden score would dwarf the others.
        weights = reference.softmax([0, 1e9, LN3], [True, False, True])
        close(weights, [1 / 4, 0, 3 / 4])
        assert weights[1] == 0

    @pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf])
    def test_hidden_scores_are_not_read(self, hidden):
        close(reference.softmax([[2.0, hidden]], [[True, False]]), [[1, 0]])

    def test_a_row_that_sees_nothing_is_zero(self):
        weights = reference.softmax(np.zeros((2, 2)), [[False] * 2, [True] * 2])
        close(weights, [[0, 0], [1 / 2, 1 / 2]])

    def test_minus_infinity_hides(self):
        scores = [[-np.inf, -np.inf], [-np.inf, 3]]
        close(reference.softmax(scores), [[0, 0], [0, 1]])

    def test_large_scores_do_not_overflow(self):
        # Only the difference counts: exp(0), exp(ln 3); sum 4.
        close(reference.softmax([1e4, 1e4 + LN3]), [1 / 4, 3 / 4])
        close(reference.softmax([-1e4, -1e4]), [1 / 2, 1 / 2])

    def test_no_keys(self):
        assert reference.softmax(np.zeros((T, 0))).shape == (T, 0)


class TestAttendOne:
    def test_by_hand(self):
        # Similarity: 2 ln 3 * 1 = 2 ln 3, and 0. H = 4, so the scale is 1/2
        # and the scores are ln 3 and 0. exp: 3, 1; sum 4; weights 3/4, 1/4.
        # Context: 1 * 3/4 + 5 * 1/4 = 2, and 10 * 3/4 + 2 * 1/4 = 8.
        context, weights = reference.attend_one(
            query=[[2 * LN3, 0, 0, 0]],
            key=[[1, 0, 0, 0], [0, 1, 0, 0]],
            value=[[1, 10], [5, 2]],
        )
        close(weights, [[3 / 4, 1 / 4]])
        close(context, [[2, 8]])

    def test_scale_by_hand(self):
        # Similarity 2 ln 3 and 0, times 1/2; the rest as above.
        _, weights = reference.attend_one(
            [[2 * LN3]], [[1], [0]], [[0], [0]], scale=1 / 2
        )
        close(weights, [[3 / 4, 1 / 4]])

    def test_bias_is_added_after_the_scale(self):
        # Similarity 0 and 0 whatever the scale; the bias alone: ln 3 and 0.
        context, weights = reference.attend_one(
            np.zeros((1, 4)),
            np.ones((2, 4)),
            [[4], [8]],
            bias=[[LN3, 0]],
            scale=100,
        )
        close(weights, [[3 / 4, 1 / 4]])
        close(context, [[5]])  # 4 * 3/4 + 8 * 1/4

    def test_each_query_sees_its_own_keys(self):
        # All scores are 0: each query averages the values it sees.
        context, weights = reference.attend_one(
            np.zeros((3, 2)),
            np.zeros((3, 2)),
            [[3], [6], [12]],
            visible=[[1, 1, 1], [0, 1, 1], [0, 0, 1]],
        )
        thirds, half = [1 / 3] * 3, 1 / 2
        close(weights, [thirds, [0, half, half], [0, 0, 1]])
        close(context, [[7], [9], [12]])  # 21 / 3, 18 / 2, 12 / 1

    def test_a_query_that_sees_nothing_gets_zeros(self, tensors):
        query, key, value = (x[0, 0] for x in tensors)
        visible = np.ones((T, S), bool)
        visible[1] = False
        context, weights = reference.attend_one(query, key, value, visible)
        assert not context[1].any() and not weights[1].any()
        alone, _ = reference.attend_one(query, key, value)
        close(context[[0, 2]], alone[[0, 2]])

    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("by_bias", [False, True])
    @pytest.mark.filterwarnings("error")
    def test_a_hidden_key_reaches_nothing(self, tensors, poison, by_bias):
        query, key, value = (x[0, 0] for x in tensors)
        seen = [0, 1, 3, 4]
        expected, _ = reference.attend_one(query, key[seen], value[seen])
        key[2], value[2] = poison, poison
        visible = np.ones((T, S), bool)
        visible[:, 2] = False
        if by_bias:
            hide = {"bias": np.where(visible, 0, -np.inf)}
        else:
            hide = {"visible": visible}
        context, weights = reference.attend_one(query, key, value, **hide)
        close(context, expected)
        assert not weights[:, 2].any()

    @pytest.mark.parametrize("poison", [np.nan, np.inf])
    @pytest.mark.filterwarnings("error")
    def test_a_hidden_query_reaches_nothing(self, tensors, poison):
        query, key, value = (x[0, 0] for x in tensors)
        expected, _ = reference.attend_one(query, key, value)
        query[1] = poison
        visible = np.ones((T, S), bool)
        visible[1] = False
        context, _ = reference.attend_one(query, key, value, visible)
        close(context, expected * [[1], [0], [1]])

    def test_what_is_visible_does_reach(self, tensors):
        query, key, value = (x[0, 0] for x in tensors)
        value[2, 3] = np.nan
        context, _ = reference.attend_one(query, key, value)
        assert np.isnan(context[:, 3]).all()
        assert np.isfinite(np.delete(context, 3, axis=1)).all()

    def test_additive_mask_is_refused(self, tensors):
        query, key, value = (x[0, 0] for x in tensors)
        additive = np.full((T, S), -1e9)
        with pytest.raises(TypeError, match="attention_bias"):
            reference.attend_one(query, key, value, additive)

    def test_float_mask_of_zeros_and_ones_is_taken(self, tensors):
        query, key, value = (x[0, 0] for x in tensors)
        _, weights = reference.attend_one(query, key, value, np.tri(T, S))
        np.testing.assert_array_equal(weights > 0, np.tri(T, S))

    def test_inputs_stay_as_they_are(self, tensors):
        arrays = [x[0, 0] for x in tensors]
        before = [x.copy() for x in arrays]
        reference.attend_one(*arrays, visible=np.zeros((T, S), bool))
        for array, copy in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)


class TestVisiblePairs:
    def test_all(self):
        assert reference.visible_pairs(T, S).shape == (T, S)
        assert reference.visible_pairs(T, S).all()

    def test_causal_is_aligned_to_the_first_key(self):
        visible = reference.visible_pairs(3, 5, use_causal_mask=True)
        expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
        np.testing.assert_array_equal(visible, expected)

    def test_causal_with_fewer_keys_than_queries(self):
        visible = reference.visible_pairs(3, 2, use_causal_mask=True)
        np.testing.assert_array_equal(visible, [[1, 0], [1, 1], [1, 1]])

    def test_causal_with_an_offset(self):
        # Queries stand at positions 2, 3 and 4.
        visible = reference.visible_pairs(
            3, 5, use_causal_mask=True, causal_offset=2
        )
        expected = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
        np.testing.assert_array_equal(visible, expected)

    def test_window(self):
        # Distance below 2, to either side.
        visible = reference.visible_pairs(3, 5, sliding_window=2)
        expected = [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
        np.testing.assert_array_equal(visible, expected)

    def test_causal_window_with_an_offset(self):
        visible = reference.visible_pairs(
            3, 5, use_causal_mask=True, sliding_window=2, causal_offset=1
        )
        expected = [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
        np.testing.assert_array_equal(visible, expected)


class TestDotProductAttention:
    def each_head(self, tensors, visible=None, bias=None):
        """The same by `attend_one`, with (B, N, T, S) visible and bias."""
        context = np.empty((B, N, T, HV))
        weights = np.empty((B, N, T, S))
        for b in range(B):
            for n in range(N):
                context[b, n], weights[b, n] = reference.attend_one(
                    *(x[b, n] for x in tensors),
                    visible=None if visible is None else visible[b, n],
                    bias=None if bias is None else bias[b, n],
                )
        return context, weights

    def check(self, actual, expected):
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours.dtype == np.float64
            close(ours, theirs)

    def test_batch_and_heads_equal_each_alone(self, tensors):
        actual = reference.dot_product_attention(*tensors)
        self.check(actual, self.each_head(tensors))

    @pytest.mark.parametrize("lead", [(), (B,), (2, 3, 4)])
    def test_any_leading_axes(self, rng, lead):
        query = rng.normal(size=(*lead, T, H))
        key = rng.normal(size=(*lead, S, H))
        value = rng.normal(size=(*lead, S, HV))
        context, weights = reference.dot_product_attention(query, key, value)
        assert context.shape == (*lead, T, HV)
        assert weights.shape == (*lead, T, S)
        last = (-1,) * len(lead)
        alone = reference.attend_one(query[last], key[last], value[last])
        self.check((context[last], weights[last]), alone)

    @pytest.mark.parametrize(
        "shape, axes",
        [
            ((T, S), (None, None)),
            ((B, T, S), (slice(None), None)),
            ((B, 1, T, S), ()),
            ((1, N, T, S), ()),
            ((B, N, T, S), ()),
        ],
    )
    def test_attention_mask_and_bias_of_each_rank(
        self, rng, tensors, shape, axes
    ):
        mask = random_mask(rng, shape)
        bias = rng.normal(size=shape)
        every = (B, N, T, S)
        expected = self.each_head(
            tensors,
            np.broadcast_to(mask[axes], every),
            np.broadcast_to(bias[axes], every),
        )
        actual = reference.dot_product_attention(
            *tensors, attention_mask=mask, attention_bias=bias
        )
        self.check(actual, expected)

    def test_mask_axes_when_all_lengths_are_equal(self, rng):
        query, key, value = rng.normal(size=(3, 3, 3, 3, H))
        pairs = random_mask(rng, (3, 3, 3))
        padding = random_mask(rng, (3, 3))
        queries = random_mask(rng, (3, 3))
        context, _ = reference.dot_product_attention(
            query,
            key,
            value,
            attention_mask=pairs,
            query_mask=queries,
            key_mask=padding,
        )
        for b, n in np.ndindex(3, 3):
            visible = pairs[b] & padding[b][None, :] & queries[b][:, None]
            alone, _ = reference.attend_one(
                query[b, n], key[b, n], value[b, n], visible
            )
            close(context[b, n], alone)

    def test_key_mask_equals_a_shorter_sequence(self, tensors):
        query, key, value = tensors
        lengths = [2, 5]
        key_mask = np.arange(S) < np.array(lengths)[:, None]
        context, weights = reference.dot_product_attention(
            query, key, value, key_mask=key_mask
        )
        for b, length in enumerate(lengths):
            short, _ = reference.dot_product_attention(
                query[b], key[b, :, :length], value[b, :, :length]
            )
            close(context[b], short)
            assert not weights[b, :, :, length:].any()

    def test_query_mask_leaves_the_other_rows_alone(self, tensors):
        query_mask = np.array([[1, 1, 0], [1, 0, 0]], bool)
        whole, _ = reference.dot_product_attention(*tensors)
        context, weights = reference.dot_product_attention(
            *tensors, query_mask=query_mask
        )
        close(context, whole * query_mask[:, None, :, None])
        close(weights.sum(axis=-1), np.repeat(query_mask[:, None], N, 1))

    def test_all_masks_must_agree(self, rng, tensors):
        pairs = random_mask(rng, (T, S))
        key_mask = random_mask(rng, (B, S))
        causal = reference.visible_pairs(T, S, True, 3, 1)
        visible = (pairs & causal)[None] & key_mask[:, None, :]
        visible = np.broadcast_to(visible[:, None], (B, N, T, S))
        actual = reference.dot_product_attention(
            *tensors,
            attention_mask=pairs,
            key_mask=key_mask,
            use_causal_mask=True,
            sliding_window=3,
            causal_offset=1,
        )
        self.check(actual, self.each_head(tensors, visible))

    def test_offset_equals_the_last_rows_of_the_whole(self, rng, tensors):
        _, key, value = tensors
        query = rng.normal(size=(B, N, S, H))
        whole, _ = reference.dot_product_attention(
            query, key, value, use_causal_mask=True
        )
        end, _ = reference.dot_product_attention(
            query[:, :, -2:],
            key,
            value,
            use_causal_mask=True,
            causal_offset=S - 2,
        )
        close(end, whole[:, :, -2:])

    def test_scale(self, tensors):
        query, key, value = tensors
        scaled, _ = reference.dot_product_attention(query, key, value, scale=3)
        by_hand, _ = reference.dot_product_attention(
            query * 3, key, value, scale=1
        )
        close(scaled, by_hand)

    @pytest.mark.parametrize("num_own", [1, K, N])
    def test_grouped_heads_equal_repeated_heads(self, tensors, num_own):
        query, key, value = tensors
        key, value = key[:, :num_own], value[:, :num_own]
        context, weights = reference.dot_product_attention(query, key, value)
        for n in range(N):
            own = n // (N // num_own)
            alone = reference.dot_product_attention(
                query[:, n], key[:, own], value[:, own]
            )
            self.check((context[:, n], weights[:, n]), alone)

    def test_head_counts_must_divide(self, tensors):
        query, key, value = tensors
        with pytest.raises(ValueError, match="4 and 3"):
            reference.dot_product_attention(query, key[:, :3], value[:, :3])

    @pytest.mark.filterwarnings("error")
    def test_padding_reaches_nothing(self, tensors):
        query, key, value = tensors
        key_mask = np.arange(S) < np.array([[2], [4]])
        expected, _ = reference.dot_product_attention(
            query, key, value, key_mask=key_mask
        )
        hidden = ~np.repeat(key_mask[:, None], N, axis=1)
        key[hidden], value[hidden] = np.nan, np.inf
        context, _ = reference.dot_product_attention(
            query, key, value, key_mask=key_mask
        )
        close(context, expected)

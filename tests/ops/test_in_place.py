"""Writing into tensors without a copy."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.ops import in_place

B, X, S, T, H = 3, 2, 7, 4, 5


def cache_and_entries():
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(B, X, S, H)).astype("float32"),
        rng.normal(size=(B, X, T, H)).astype("float32"),
    )


def expected(cache, entries, first):
    cache = cache.copy()
    for row, start in enumerate(np.broadcast_to(first, (B,))):
        cache[row, :, start : start + T] = entries[row]
    return cache


@pytest.mark.parametrize("first", [2, np.int32(3), np.array([0, 3, 1])])
@pytest.mark.parametrize("traced", [False, True])
def test_entries_take_their_places_and_the_caller_keeps_its_own(first, traced):
    cache, entries = cache_and_entries()
    held = tf.constant(cache)
    write = in_place.overwrite_rows
    if traced:
        specs = [
            tf.TensorSpec((None, None, None, H)),
            tf.TensorSpec(np.shape(first), "int32"),
            tf.TensorSpec((None, None, None, H)),
        ]
        write = tf.function(write, input_signature=specs, autograph=False)
    if not isinstance(first, int):
        first = tf.constant(first, "int32")
    written = write(held, first, tf.constant(entries))
    np.testing.assert_array_equal(written, expected(cache, entries, first))
    np.testing.assert_array_equal(held, cache)


def test_a_single_row_is_written_at_once():
    cache, entries = cache_and_entries()
    written = in_place.overwrite_rows(
        tf.constant(cache[:1]), tf.constant([2]), tf.constant(entries[:1])
    )
    np.testing.assert_array_equal(written, expected(cache, entries, 2)[:1])


def test_what_is_needed_later_is_not_overwritten():
    cache, entries = cache_and_entries()

    @tf.function(autograph=False)
    def both(cache, entries):
        cache = cache + 0.0
        return in_place.overwrite_rows(cache, 1, entries) - cache

    written = both(tf.constant(cache), tf.constant(entries))
    wanted = expected(cache, entries, 1) - cache
    np.testing.assert_array_equal(written, wanted)


@pytest.mark.parametrize("first", [2, np.array([0, 3, 1])])
def test_gradients_go_where_the_values_came_from(first):
    cache, entries = map(tf.constant, cache_and_entries())
    factors = tf.reshape(tf.range(1.0, B * X * S * H + 1), cache.shape)
    place = first if isinstance(first, int) else tf.constant(first)

    @tf.function(autograph=False)
    def gradients(cache, entries):
        with tf.GradientTape() as tape:
            tape.watch((cache, entries))
            written = in_place.overwrite_rows(cache, place, entries)
            total = tf.reduce_sum(factors * written**2)
        return tape.gradient(total, (cache, entries))

    of_cache, of_entries = gradients(cache, entries)
    zeros = np.zeros(entries.shape, "float32")
    wanted = expected((2 * factors * cache).numpy(), zeros, first)
    np.testing.assert_allclose(of_cache, wanted, rtol=1e-6)
    for row, start in enumerate(np.broadcast_to(first, (B,))):
        part = slice(start, start + T)
        wanted = 2 * factors[row, :, part] * entries[row]
        np.testing.assert_allclose(of_entries[row], wanted, rtol=1e-6)


def test_entries_take_the_dtype_of_what_they_are_written_to():
    cache, entries = cache_and_entries()
    written = in_place.overwrite_rows(
        tf.constant(cache, "bfloat16"), 2, tf.constant(entries)
    )
    assert written.dtype == tf.bfloat16


def test_xla_is_told_apart():
    found = []

    @tf.function(jit_compile=True)
    def compiled(x):
        found.append(in_place.is_possible())
        return x

    compiled(tf.ones(3))
    assert found == [False]
    assert in_place.is_possible()

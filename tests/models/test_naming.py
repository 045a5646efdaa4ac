"""Names do not depend on what was built before."""

import keras
import pytest
from keras import layers

from keras_attention.models.naming import stable_names, unique_names


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.Dense(2),
        lambda: layers.MultiHeadAttention(2, 3),
        lambda: layers.Conv2D(2, 3),
        lambda: layers.GRU(2),
        lambda: keras.Sequential(),
    ],
)
def test_counters_of_keras_go(make):
    first, second = make(), make()
    assert first.name != second.name
    (name,) = stable_names([first])
    assert stable_names([second]) == [name]
    assert second.name.startswith(name)


def test_names_of_the_user_stay():
    names = ["block_12", "dense_a", "dense__1x", "top"]
    assert stable_names(layers.Dense(2, name=n) for n in names) == names


def test_a_family_that_counts_from_zero_is_the_users():
    names = ["dense_0", "dense_1", "dense_12", "other_1"]
    assert stable_names(layers.Dense(2, name=n) for n in names) == names
    assert stable_names([layers.Dense(2, name="dense_12")]) == ["dense"]


def test_repeated_names_are_numbered_in_order():
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a_1", "a_2"]
    assert unique_names(["a", "a", "a_1"]) == ["a", "a_2", "a_1"]
    assert unique_names(["a_1", "a_1", "a"]) == ["a_1", "a_1_1", "a"]
    assert unique_names([]) == []

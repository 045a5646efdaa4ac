"""Names do not depend on what was built before."""

import keras
import pytest
from keras import layers

from keras_attention.models.naming import stable_name, unique_names


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
    names = {stable_name(x.name, type(x).__name__) for x in (make(), make())}
    assert len(names) == 1
    assert make().name.startswith(names.pop())


def test_names_of_the_user_stay():
    for name in ("block_12", "dense_a", "dense__1x"):
        assert stable_name(name, "Dense") == name


def test_repeated_names_are_numbered_in_order():
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a_1", "a_2"]
    assert unique_names(["a", "a", "a_1"]) == ["a", "a_2", "a_1"]
    assert unique_names(["a_1", "a_1", "a"]) == ["a_1", "a_1_1", "a"]
    assert unique_names([]) == []

"""The demo does what it says, if only for one epoch."""

import numpy as np
import pytest

from keras_attention import demo


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return demo.run(tmp_path_factory.mktemp("demo"), epochs=1, verbose=0)


def test_digits_are_real_and_held_out():
    (x_train, y_train), (x_test, y_test) = demo.load_digits()
    assert x_train.shape == (1437, 8, 8, 1) and x_test.shape == (360, 8, 8, 1)
    assert 0 == x_train.min() and x_train.max() == 1
    assert set(y_train) == set(y_test) == set(range(10))


def test_reloaded_and_served_models_give_the_same(result):
    assert result.reload_difference < 1e-6
    assert result.serving_difference < 1e-5


def test_one_epoch_learns_something(result):
    assert 0.15 < result.accuracy <= 1


def test_what_was_made_lies_where_it_says(result):
    assert result.model_path.is_file()
    assert (result.export_path / "saved_model.pb").is_file()
    assert result.picture_path.read_bytes().startswith(b"\x89PNG")


def test_a_broken_process_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="no_such"):
        demo.predict_reloaded(
            tmp_path / "no_such.keras", np.zeros((1, 8, 8, 1)), tmp_path
        )

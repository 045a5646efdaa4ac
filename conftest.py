"""Gives every test and doctest the same fresh, quiet, CPU-only Keras."""

import gc
import os

# Read when TensorFlow is first imported, so set before Keras is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """Lets only what a module makes be searched for garbage.

    Keras searches everything at each change of a built layer, which takes
    longer with every graph that earlier modules left behind.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_keras():
    """Seeds the test, and undoes what it did to Keras's global state."""
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(1)
    keras.config.disable_interactive_logging()
    yield
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(policy)

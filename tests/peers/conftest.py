"""The peer tests belong to the Keras release that they come with."""

import keras

# Earlier wheels ship no tests, or tests of a layer with fewer arguments.
_OLDER = tuple(int(x) for x in keras.__version__.split(".")[:2]) < (3, 15)
collect_ignore_glob = ["test_keras_*.py"] if _OLDER else []

"""What the release of Keras at hand can be compared with."""

import inspect

import keras
import pytest

KERAS = tuple(int(x) for x in keras.__version__.split(".")[:2])

# Earlier releases fail there, or differ; the tests of each layer hold the same
# against its definition.
where_keras_can = pytest.mark.skipif(
    KERAS < (3, 15), reason=f"Keras {keras.__version__} has no right answer"
)


def needs(layer_class, *options):
    """Skips a comparison with a layer that has fewer arguments yet."""
    known = inspect.signature(layer_class).parameters
    missing = sorted(set(options) - known.keys())
    if missing:
        pytest.skip(f"Keras {keras.__version__} has no {', '.join(missing)}")

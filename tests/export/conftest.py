"""Models exported once for all tests of the package."""

import dataclasses
import pathlib

import keras
import pytest
from support.served_models import BUILDERS, vectorization

from keras_attention.export import export_for_serving


@dataclasses.dataclass
class Exported:
    model: keras.Model
    path: pathlib.Path


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Returns a function from a kind of model to that model, exported."""
    made = {}

    def get(kind):
        if kind not in made:
            keras.utils.set_random_seed(7)
            model = BUILDERS[kind]()
            preprocessing = vectorization() if kind == "text" else None
            path = export_for_serving(
                model,
                tmp_path_factory.mktemp("served") / kind,
                preprocessing=preprocessing,
            )
            made[kind] = Exported(model, path)
        return made[kind]

    return get

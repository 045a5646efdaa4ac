"""Importing the package costs little and brings nothing optional along."""

import importlib
import pkgutil

from support import fresh_process

import keras_attention

OPTIONAL = [
    "jax",
    "matplotlib",
    "onnx",
    "openvino",
    "pandas",
    "rich",
    "sklearn",
    "tensorflow_serving",
    "torch",
    "typer",
]

IMPORT = """
import sys
import time
import keras
already = set(sys.modules)  # Keras brings some of these where it can
start = time.perf_counter()
import keras_attention
cost = time.perf_counter() - start
print(*sorted(set(sys.modules) - already))
print(f"import keras_attention, beyond import keras: {cost:.3f} s")
"""


def test_nothing_optional_is_imported():
    added, cost = fresh_process.run(IMPORT).splitlines()
    print(cost)  # shown with -s; a time is no reason to fail
    added = added.split()
    assert "keras_attention.layers" in added
    assert {name.split(".")[0] for name in added}.isdisjoint(OPTIONAL)


def test_lazy_parts_come_on_first_use_alone():
    fresh_process.run(
        """
import sys
import keras_attention
lazy = ["export", "reference"]
for name in lazy:
    assert f"keras_attention.{name}" not in sys.modules, name
assert keras_attention.reference.__name__ == "keras_attention.reference"
assert "keras_attention.reference" in sys.modules
try:
    keras_attention.no_such_part
except AttributeError as error:
    assert "no_such_part" in str(error)
else:
    raise AssertionError("an unknown name was found")
"""
    )


def test_every_public_name_is_there():
    paths = pkgutil.walk_packages(keras_attention.__path__, "keras_attention.")
    names = ["keras_attention", *(module.name for module in paths)]
    modules = [importlib.import_module(name) for name in names]
    public = {m.__name__: m.__all__ for m in modules if hasattr(m, "__all__")}
    assert {"keras_attention", "keras_attention.layers"} <= set(public)
    for module in modules:
        for name in public.get(module.__name__, ()):
            assert hasattr(module, name), f"{module.__name__}.{name}"
    assert set(keras_attention.__all__) <= set(dir(keras_attention))

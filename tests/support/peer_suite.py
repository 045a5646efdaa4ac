"""Runs another package's test class with a class of ours in its place."""

import importlib.util
import pathlib
import types


class Substituted(types.SimpleNamespace):
    """A module seen through a set of replaced names."""

    def __init__(self, module, **replaced):
        super().__init__(**replaced)
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def load(package, path, class_name, replaced, left_out=(), only=None):
    """Returns a test class of `package`, with names of its `layers` replaced.

    Args:
        package: An imported package, whose folder `path` starts from.
        path: The test file, relative to that folder.
        class_name: Name of the test class in that file.
        replaced: Maps a name in the file's `layers` module to our class.
        left_out: Maps the start of a test's name to the reason why it
            cannot apply. Each must name a test, so that the list stays true.
        only: Starts of the names of the tests to keep. Defaults to all.

    Returns:
        The test class, for pytest to collect.
    """
    file = pathlib.Path(package.__file__).parent / path
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.layers = Substituted(module.layers, **replaced)
    suite = getattr(module, class_name)
    tests = [name for name in vars(suite) if name.startswith("test_")]
    for start in (*left_out, *(only or ())):
        if not any(name.startswith(start) for name in tests):
            raise LookupError(f"{file.name} has no test named {start}*")
    for name in tests:
        kept = only is None or name.startswith(tuple(only))
        if name.startswith(tuple(left_out)) or not kept:
            delattr(suite, name)
    return suite

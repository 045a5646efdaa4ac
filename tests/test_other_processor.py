"""Kernels compute the same where TensorFlow multiplies in the other way."""

from support import fresh_process

from keras_attention.ops import processor

# What pytest prints belongs to the complaints.
RUN = """
import contextlib, sys
import pytest
from keras_attention.ops import processor

class Passed:
    count = 0

    def pytest_runtest_logreport(self, report):
        self.count += report.when == "call" and report.passed

passed = Passed()
with contextlib.redirect_stdout(sys.stderr):
    code = pytest.main(sys.argv[1:], plugins=[passed])
print(passed.count, processor.multiplies_with_onednn())
sys.exit(code)
"""
BLOCKWISE = "ops/test_blockwise.py::test_equals_dense_with_gradients"
TESTS = [
    "ops/test_dense.py",
    BLOCKWISE,
    "ops/test_blockwise.py::test_half_types",
    "layers/test_multi_head_attention.py",
]
# Of the numbers of heads of the keys, 2 is neither all nor one.
CHOICE = f"not {BLOCKWISE.split('::')[-1]} or [2-"


def test_kernels_under_the_other_setting(monkeypatch):
    """`make test-other` runs many more."""
    here = processor.multiplies_with_onednn()
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", str(int(not here)))
    tests = [fresh_process.ROOT / "tests" / test for test in TESTS]
    options = ["-q", "-p", "no:cacheprovider", "-k", CHOICE]
    printed = fresh_process.run(RUN, *options, *tests)
    count, there = printed.split()
    assert int(count) > 80
    assert there == str(not here)

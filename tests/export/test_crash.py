"""A killed export harms no version and shows no part of one."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from support import export_killer

from keras_attention.export.folder import versions
from keras_attention.export.runner import Runner


def test_killed_exports_leave_whole_versions_only(tmp_path):
    base = tmp_path / "m"
    root = pathlib.Path(export_killer.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, export_killer.__file__, base],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert [name for name, *_ in outcomes] == list(export_killer.MOMENTS)
    for name, outcome, visible, untouched in outcomes:
        assert untouched, name
        assert outcome == "killed", name
        # Only the last moment comes after the folder took its place.
        expected = ["1", "2"] if name == "just appeared" else ["1"]
        assert visible == expected, name
    for version in versions(base):
        with Runner(base / str(version)) as runner:
            x = np.ones((3, 300), "float32")
            assert runner.run("serving_default", {"inputs": x})["y"].any()

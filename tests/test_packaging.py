"""The files that describe the project agree with each other and the code."""

import configparser
import re
from pathlib import Path

import keras_attention

ROOT = Path(__file__).parents[1]


def _setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def _extras():
    return dict(_setup_cfg()["options.extras_require"])


def test_changelog_describes_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    latest = re.search(r"^## (\S+) - ", changelog, re.MULTILINE)
    assert latest.group(1) == keras_attention.__version__


def test_every_requirement_is_pinned():
    required = _setup_cfg()["options"]["install_requires"].splitlines()
    for requirements in _extras().values():
        required += requirements.splitlines()
    names = {re.match(r"[\w-]*", line).group() for line in required}
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = set(re.findall(r"^([\w-]+)==", constraints, re.MULTILINE))
    assert names - {"", "keras-attention"} <= pinned


def test_named_extras_exist():
    named = set()
    for source in (ROOT / "keras_attention").rglob("*.py"):
        found = re.findall(
            r"keras[-_]attention\[([\w,]+)\]", source.read_text("utf-8")
        )
        named.update(",".join(found).split(","))
    assert named - {""} <= set(_extras())


def test_every_data_file_is_shipped():
    package = Path(keras_attention.__file__).parent
    patterns = _setup_cfg()["options.package_data"]["keras_attention"].split()
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    data = {
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert package / "py.typed" in data
    assert data <= shipped

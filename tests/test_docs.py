"""What the pages of `docs/` show is what happens.

Every ```python block of a page that shows results (`>>>`) is run, in order
and in one namespace; blocks without results are run as they stand.
"""

import doctest
import re
from pathlib import Path

import keras
import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [p for p in sorted(DOCS.glob("*.md")) if ">>> " in p.read_text("utf-8")]
# The answers of Keras on that page are those of one release.
if tuple(int(x) for x in keras.__version__.split(".")[:2]) < (3, 15):
    PAGES.remove(DOCS / "differences.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(text, filename):
    """Runs the blocks of a page, and returns what went otherwise."""
    names = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    complaints = []
    for match in BLOCK.finditer(text):
        block = match.group(1)
        line = text.count("\n", 0, match.start(1))
        if ">>> " not in block:
            exec(compile("\n" * line + block, filename, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(
            block, names, filename, filename, line
        )
        runner.run(test, out=complaints.append, clear_globs=False)
        names.update(test.globs)
    return "".join(complaints)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complaints = run_page(page.read_text("utf-8"), str(page))
    assert not complaints, complaints


def test_a_wrong_result_is_found():
    page = "```python\nx = 2\n```\ntext\n```python\n>>> x + {}\n4\n```\n"
    assert not run_page(page.format(2), "page.md")
    assert 'File "page.md", line 6' in run_page(page.format(3), "page.md")

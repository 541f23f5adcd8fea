"""The documentation's Python runs, and prints what it says that it prints."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)
RUN = [
    "README.md",
    "README.ko.md",
    "docs/api.md",
    "docs/guides/embedding.md",
    "docs/guides/own-model.md",
    "docs/guides/formats.md",
    "docs/guides/from-allennlp.md",
    "docs/guides/tables.md",
    "docs/guides/new-task.md",
    "docs/ko/elmo.md",
    "docs/ko/using-in-tasks.md",
    "docs/ko/korean-text.md",
]


@pytest.mark.parametrize("name", RUN)
def test_python_in_the_docs_runs_and_prints_what_is_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), names)
        assert printed.getvalue() == shown


def test_the_readmes_keep_step():
    """Same code, same commands, same links, same figures in both languages."""
    english, korean = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ko.md"))
    for pattern in (r"`(elmo [a-z]+|make [a-z]+)", r"\]\((docs/[^)]+)\)"):
        assert set(re.findall(pattern, english, re.MULTILINE)) == set(re.findall(pattern, korean, re.MULTILINE))
    assert english.count("\n## ") == korean.count("\n## ")
    numbers = [re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", text.split("\n## ")[5]) for text in (english, korean)]
    assert sorted(numbers[0]) == sorted(numbers[1])


def test_links_in_the_docs_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_architecture_page_is_drawn_from_the_code():
    """Its tree has a line for every file; its graph has every import, and no cycle."""
    command = [sys.executable, ROOT / "tools" / "architecture.py", "--check"]
    assert subprocess.run(command).returncode == 0, "run `python tools/architecture.py`, and read what it prints"


def test_make_and_ci_run_the_same_command():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "lint", "types"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()

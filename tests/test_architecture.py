"""tools/architecture.py: what draws the page, and finds cycles, is right about graphs that are known."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "architecture.py"


@pytest.fixture(scope="module")
def architecture():
    spec = importlib.util.spec_from_file_location("architecture", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({}, []),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),  # a diamond is no cycle
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}, [["b", "c", "d"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"a"}}, [["a", "b", "c"]]),  # two cycles through one
        ({"a": {"elsewhere"}}, []),
    ],
)
def test_cycles_are_found(architecture, graph, expected):
    assert sorted(architecture.cycles(graph)) == expected


def test_imports_within_functions_and_for_types_count(architecture, tmp_path):
    path = tmp_path / "one.py"
    path.write_text(
        "from __future__ import annotations\n"
        "import json, elmokit.two\n"
        "from elmokit import __version__\n"
        "from elmokit.text import three, nothing\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from elmokit.four import Four\n"
        "def late():\n"
        "    class Inner:\n"
        "        def later(self):\n"
        "            from elmokit.five import five\n"
    )
    names = ("one", "two", "text", "text.three", "four", "five", "six")
    known = {"elmokit": path, **{f"elmokit.{name}": path for name in names}}
    found = architecture.imports("elmokit.one", known)
    assert found == {f"elmokit.{name}" for name in ("two", "text", "text.three", "four", "five")}


def test_rooms_and_their_arrows(architecture):
    """An arrow is left out where a longer path stands for it."""
    modules = {
        "elmokit.text.words": set(),
        "elmokit.model.lstm": {"elmokit.text.words"},
        "elmokit.model.bilm": {"elmokit.model.lstm"},
        "elmokit.cli": {"elmokit.model.bilm", "elmokit.text.words"},
    }
    rooms = architecture.room_graph(modules)
    assert rooms == {"text": set(), "model": {"text"}, "cli": {"model", "text"}}
    assert list(architecture.drawn(rooms)) == ["graph LR", "  text --> model", "  model --> cli"]


def test_two_rooms_may_be_a_cycle_where_no_modules_are(architecture):
    modules = {
        "elmokit.a.one": {"elmokit.b.one"},
        "elmokit.b.one": set(),
        "elmokit.b.two": {"elmokit.a.two"},
        "elmokit.a.two": set(),
    }
    assert architecture.all_cycles(modules) == [["a", "b"]]


@pytest.mark.parametrize(
    ("docstring", "line"),
    [
        ("One line.", "One line"),
        ("It is\nfolded. And more.", "It is folded"),
        ("Reads .h5 and 3.14 well. More.", "Reads .h5 and 3.14 well"),
        ("Without an end\n\nand a second paragraph.", "Without an end"),
    ],
)
def test_a_files_line_is_its_first_sentence(architecture, tmp_path, docstring, line):
    (tmp_path / "file.py").write_text(f'"""{docstring}"""\n')
    assert architecture.first_sentence(tmp_path / "file.py") == line

"""Dependencies point one way, from text to the command; help is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "elmokit"

# Each may import from those before it, and from its own.
ORDER = [
    "errors",
    "progress",
    "data",
    "config",
    "atomic",
    "hdf5",
    "text",
    "model",
    "checkpoint",
    "formats",
    "sources",
    "embed",
    "pretrain",
    "tasks",
    "show",
    "analysis",
    "study",
    "compat",
    "cli",
]
ROOT = {"elmokit.__version__"}  # the one thing that everybody may take from the top


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("elmokit.")} - ROOT


def files() -> list[Path]:
    return [
        path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE or not path.name.startswith("__")
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert here in ORDER, f"where does {here} stand? Add it to ORDER"
    for name in imports(path):
        there = name.split(".")[1]
        assert ORDER.index(there) <= ORDER.index(here), f"{path.name} imports {name}, which stands after it"


def loaded_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize("statement", ["import elmokit", "import elmokit.cli"])
def test_help_does_not_wait_for_heavy_libraries(statement):
    assert not loaded_by(statement) & {
        "torch",
        "numpy",
        "h5py",
        "lancedb",
        "matplotlib",
        "pyarrow",
        "safetensors",
        "regex",
    }


def test_text_needs_no_torch():
    assert "torch" not in loaded_by("import elmokit.text.batches, elmokit.text.corpus, elmokit.text.vocabulary")


def test_the_public_names_are_there():
    import elmokit

    for name in elmokit.__all__:
        assert getattr(elmokit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Elmoo'"):
        elmokit.Elmoo  # noqa: B018

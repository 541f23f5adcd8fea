"""Dependencies point one way, from text to the command; help is light; inference is without training."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "elmokit"

# Each may import from those before it, and from its own.
ORDER = [
    "errors",
    "progress",
    "data",
    "regular",
    "config",
    "lock",
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
    "bench",
    "serve",
    "compat",
    "cli",
]
ROOT = {"elmokit.__version__"}  # the one thing that everybody may take from the top


def imports(path: Path) -> set[str]:
    """Everything that a file imports, within functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files() -> list[Path]:
    return [
        path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE or not path.name.startswith("__")
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert here in ORDER, f"where does {here} stand? Add it to ORDER"
    for name in {name for name in imports(path) if name.startswith("elmokit.")} - ROOT:
        there = name.split(".")[1]
        assert ORDER.index(there) <= ORDER.index(here), f"{path.name} imports {name}, which stands after it"


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_no_test_file_imports_another(path):
    """What tests share is in helpers/ and in reference.py, or a fixture of conftest.py."""
    tests = {other.stem for other in TESTS.rglob("test_*.py")} | {"conftest", "tests"}
    assert not {name.split(".")[0] for name in imports(path)} & tests


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


def test_inference_loads_nothing_of_training():
    """torch (2.13 does) loads parts of torch.distributed by itself: what counts is what comes on top of that.

    Its compiler, and with it the rest of torch.distributed, would come with the first weight that is initialized
    on the meta device: elmokit.model.shapes is there to prevent it.
    """
    loaded = loaded_by(
        'from elmokit import Elmo; Elmo.from_pretrained("en-small").embed(["He sat on the bank."]); '
        'Elmo.from_recipe("tiny").embed(["He sat ."])'
    )
    assert "elmokit.model.bilm" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("elmokit.")}
    assert not rooms & {"pretrain", "tasks", "analysis", "study", "show", "serve", "cli", "compat"}
    more = loaded - loaded_by("import torch")
    assert not [name for name in more if name.startswith(("torch.distributed", "torch._dynamo"))]


def test_text_needs_no_torch():
    assert "torch" not in loaded_by("import elmokit.text.batches, elmokit.text.corpus, elmokit.text.vocabulary")


def test_the_public_names_are_there():
    import elmokit

    for name in elmokit.__all__:
        assert getattr(elmokit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Elmoo'"):
        elmokit.Elmoo  # noqa: B018

"""Write what docs/architecture.md draws from the code: the tree with a line per file, and the graph of imports.

    python tools/architecture.py            rewrite both, and print the graph
    python tools/architecture.py --check    exit 1 if the page is not as the code is, or there is a cycle

A file's line is the first sentence of its docstring. The graph counts every import, those within functions too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "elmokit"
PAGE = ROOT / "docs" / "architecture.md"
WIDTH = 26  # of the column of names
ORDER = (
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
)
PLACES = (*ORDER, "serve", "integrations", "compat", "cli")  # in the tree; the rest comes first


def first_sentence(path: Path) -> str:
    """Of the docstring, on one line, without its final dot."""
    text = " ".join(
        (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split()
    )
    match = re.match(r".*?[.](?= [A-Z`]|$)", text)
    return (match[0] if match else text).rstrip(".")


def in_order(folder: Path) -> list[Path]:
    paths = [
        path
        for path in folder.iterdir()
        if (path.suffix == ".py" and path.name != "__init__.py") or (path / "__init__.py").is_file()
    ]

    def key(path: Path) -> tuple[int, bool, str]:
        place = PLACES.index(path.stem) if folder == SOURCE and path.stem in PLACES else -1
        return place, path.is_dir(), path.name

    return sorted(paths, key=key)


def tree(folder: Path = SOURCE, indent: str = "") -> Iterator[str]:
    for path in in_order(folder):
        if path.is_dir():
            yield f"{indent}{path.name + '/':<{WIDTH - len(indent)}}{first_sentence(path / '__init__.py')}"
            yield from tree(path, indent + "  ")
        else:
            yield f"{indent}{path.name:<{WIDTH - len(indent)}}{first_sentence(path)}"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, known: Mapping[str, Path]) -> set[str]:
    """The modules of elmokit that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(known[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found - {name, "elmokit"}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of more than one that reach each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def module_graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(name, known) for name in known if name not in ("elmokit", "elmokit.__main__")}


def room(name: str) -> str:
    return name.split(".")[1]


def room_graph(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    rooms: dict[str, set[str]] = {}
    for name, others in graph.items():
        rooms.setdefault(room(name), set()).update(room(other) for other in others if room(other) != room(name))
    return rooms


def all_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Of modules, or else of rooms: two of these may import each other although no two modules do."""
    return cycles(graph) or cycles(room_graph(graph))


def longest_path(rooms: Mapping[str, set[str]], name: str) -> int:
    return max((1 + longest_path(rooms, other) for other in rooms.get(name, ())), default=0)


def drawn(rooms: Mapping[str, set[str]]) -> Iterator[str]:
    """Mermaid, one arrow per import that no longer path stands for."""
    yield "graph LR"
    reach: dict[str, set[str]] = {}
    for name in sorted(rooms, key=lambda name: longest_path(rooms, name)):
        reach[name] = set().union(*({other} | reach[other] for other in rooms[name]))
        for other in sorted(rooms[name]):
            if not any(other in reach[between] for between in rooms[name] - {other}):
                yield f"  {other} --> {name}"


def page(text: str) -> str:
    graph = module_graph()
    for mark, lines in (("tree", tree()), ("graph", drawn(room_graph(graph)))):
        language = "mermaid" if mark == "graph" else "text"
        block = f"<!-- {mark} -->\n```{language}\n" + "\n".join(lines) + f"\n```\n<!-- end of {mark} -->"
        text = re.sub(rf"<!-- {mark} -->.*?<!-- end of {mark} -->", lambda _: block, text, flags=re.DOTALL)  # noqa: B023
    return text


def main() -> None:
    graph = module_graph()
    found = all_cycles(graph)
    for group in found:
        print("cycle:", " ".join(group))
    text = PAGE.read_text(encoding="utf-8")
    if found or "--check" in sys.argv[1:]:
        sys.exit(bool(found) or page(text) != text)
    for name, others in sorted(room_graph(graph).items()):
        print(f"{name:<14} imports {', '.join(sorted(others)) or 'nothing of ours'}")
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports, {len(found)} cycles")
    PAGE.write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()

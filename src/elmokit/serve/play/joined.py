"""The page as one file: modules joined into one script, styles into one, and a policy that allows just these.

Opened from a disk, a page may not load modules from beside it. So the modules' import statements and the word
export are taken out, and they stand one after the other in the order in which they need each other: names at the
top level are different across all of them (tests/test_play.py holds it).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

PAGE = files("elmokit.serve.play") / "page"
IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|let|function|async function|class)\b)", re.MULTILINE)
STYLE = re.compile(r'^<link rel="stylesheet" href="play/([^"]+)">\n', re.MULTILINE)
SCRIPT = re.compile(r'^<script type="module" src="play/([^"]+)"></script>\n', re.MULTILINE)
NAMES = re.compile(r"^(?:export )?(?:const|let|var|function\*?|async function|class)\s+(\{[^}]*\}|[\w$]+)", re.M)


def module_order(name: str = "main.js", folder: Traversable = PAGE) -> list[str]:
    """The page's modules, each after those that it imports."""
    found: list[str] = []

    def visit(path: str) -> None:
        if path in found:
            return
        for target in IMPORT.findall(_read(path, folder)):
            visit(_resolved(path, target))
        found.append(path)

    visit(name)
    return found


def top_level_names(script: str) -> list[str]:
    """What a module declares outside its functions."""
    return [name for declared in NAMES.findall(script) for name in re.findall(r"[\w$]+", declared)]


def joined_script(folder: Traversable = PAGE) -> str:
    parts = []
    for name in module_order(folder=folder):
        parts.append(f"// {name}\n" + EXPORT.sub("", IMPORT.sub("", _read(name, folder))))
    return "\n".join(parts)


def joined_page(data: dict[str, Any], about: dict[str, str], folder: Traversable = PAGE) -> str:
    """index.html with all that it needs in it. `data`: global names for the script; `about`: meta elements."""
    page = _read("index.html", folder)
    styles = "\n".join(_read(name, folder) for name in STYLE.findall(page))
    given = "".join(f"globalThis.{name} = {script_json(value)};\n" for name, value in data.items())
    script = joined_script(folder)
    for text, end in ((styles, "</style"), (script, "</script"), (script, "<!--")):
        assert end not in text, f"{end} would end it"  # ours: data are escaped
    policy = (
        f"default-src 'none'; script-src '{_digest(given)}' '{_digest(script)}'; style-src '{_digest(styles)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    metas = "".join(
        f'<meta name="{name}" content="{html.escape(text)}">\n'
        for name, text in {"referrer": "no-referrer", **about}.items()
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{metas}'
        f'<style>{styles}</style>\n<script>{given}</script>\n<script type="module">{script}</script>\n'
    )
    rest = SCRIPT.sub("", STYLE.sub("", page))
    before, charset, after = rest.partition('<meta charset="utf-8">\n')
    return before + charset + head + after


def script_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends one."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def examples(folder: Traversable = PAGE) -> list[dict[str, Any]]:
    """EXAMPLES of text.js: a list of flat objects, read as JSON once their names are in quotes."""
    found = re.search(
        r"^export const EXAMPLES = .*?(\[\n.*?^\]);", _read("text.js", folder), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    quoted = re.sub(r'("(?:[^"\\]|\\.)*")|(\w+)(?=:)', lambda m: m[1] or f'"{m[2]}"', found[1])
    return list(json.loads(re.sub(r",(?=\s*[\]}])", "", quoted)))


def _resolved(path: str, target: str) -> str:
    parts = path.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _read(name: str, folder: Traversable) -> str:
    return (folder / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

"""The playground's modules outside a browser: what node makes of them, where there is a node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import pytest

from elmokit.serve.play.joined import PAGE

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def in_node(folder: Path, script: str) -> Any:
    """What a module beside the page's own prints as JSON. In a folder of its own: node wants a package.json."""
    copy = folder / "page"
    if not copy.exists():
        with as_file(PAGE) as page:
            shutil.copytree(page, copy)
        (copy / "package.json").write_text('{"type": "module"}')
    (copy / "asked.js").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["node", copy / "asked.js"], capture_output=True, text=True, timeout=60, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ALL_ROOMS = """
import { readdirSync } from "node:fs";
const modules = [];
for (const name of readdirSync(new URL("./rooms/", import.meta.url)).filter((name) => name.endsWith(".js")))
  modules.push(await import(`./rooms/${name}`));
const exportedRooms = modules.flatMap((module) => Object.values(module)).filter((value) => value?.question);
"""

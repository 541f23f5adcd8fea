"""A few seconds of the campaign that `python tools/soak` runs for twenty minutes."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

SOAK = Path(__file__).parent.parent / "tools" / "soak"

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")


def test_a_small_seed_of_the_hostile_campaign(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK))
    import hostile

    cases = list(islice(hostile.campaign(1, 600, tmp_path), 40))
    assert len({case.kind for case in cases}) > 3
    assert [case for case in cases if case.failure] == []


def test_the_campaign_finds_what_it_looks_for(tmp_path, monkeypatch):
    """Code that runs, a traceback, a crash, memory and time: each fails its case."""
    monkeypatch.syspath_prepend(str(SOAK))
    import attempt
    import hostile

    monkeypatch.setattr(hostile, "SECONDS", 3.0)
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); import attempt\n"
        "from pathlib import Path\n"
        "attempt.ACTIONS.update(run=lambda path: Path(path).touch(), bug=lambda: {}['x'], ok=lambda: None,\n"
        "    crash=lambda: os.abort(), memory=lambda: len(bytes(b'x' * (600 << 20))), \n"
        "    time=lambda: time.sleep(60))\n"
        "attempt.main_loop()\n"
    )
    begin = [sys.executable, str(bad), str(SOAK)]
    pipe = subprocess.PIPE
    attempts = hostile.Attempts()
    monkeypatch.setattr(
        attempts,
        "_begin",
        lambda: subprocess.Popen(begin, stdin=pipe, stdout=pipe, bufsize=0),
    )
    marker = tmp_path / "executed"
    found = {}
    for action in ("ok", "run", "bug", "memory", "crash", "time"):
        found[action] = attempts.failure_of(action, [str(marker)] if action == "run" else [], marker)
    attempts.close()
    assert attempt.MOST_MEMORY < 600 << 20
    assert found["ok"] is None
    assert found["run"] == "code in the file was run"
    assert "KeyError" in found["bug"]
    assert found["memory"].startswith("took ")
    assert found["crash"].startswith("crashed")
    assert found["time"] == "took more than 3 seconds"

"""One process that tries many hostile files, in this process: `python attempt.py` reads jobs, a line of JSON each.

It says which job begins before it begins, so that who waits knows what crashed, hung or was killed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

MOST_MEMORY = 400 << 20  # bytes that one file may take beyond what was in use: the samples are of some kilobytes
LIMIT = 3 << 30  # address space beyond what is in use: the machine must survive this


def failure_of(action: str, arguments: list[str], marker: Path) -> str | None:
    """What went wrong in a job, None if nothing: a message and exit code 1 are what a bad file should get."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now
    before = _in_use("VmRSS")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run(action, arguments, err)
    said = err.getvalue()
    taken = _in_use("VmHWM") - before
    if marker.exists():
        marker.unlink()
        return "code in the file was run"
    if "This is a bug" in said or "Traceback" in said:
        return said.strip().splitlines()[0][:300]
    if "not enough memory" in said:
        return f"asked for more memory than there is: {said[:200]}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if len(said) > 5000:
        return f"a message of {len(said):,} characters"
    return f"took {taken >> 20} MB" if taken > MOST_MEMORY else None


def _run(action: str, arguments: list[str], err: io.StringIO) -> int:
    from elmokit.cli import bug, main, refusal
    from elmokit.errors import UserError

    try:
        if action == "elmo":
            sys.argv = ["elmo", *arguments]
            main()
        else:
            ACTIONS[action](*arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    except UserError as error:
        err.write(f"error: {error}")
        return 1
    except Exception as error:
        err.write(refusal(error) or bug(error))
        return 1
    return 0


def read_vectors(path: str) -> None:
    from elmokit.embed.vectors import open_vectors

    for sentence in open_vectors(path):
        assert sentence.vectors is not None


def read_words(path: str) -> None:
    from elmokit.formats.word_vectors import read_word_vectors

    read_word_vectors(path)


ACTIONS: dict[str, Any] = {"vectors": read_vectors, "words": read_words}


def _in_use(key: str) -> int:
    """Bytes in memory: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def main_loop() -> None:
    import h5py  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch

    import elmokit.embed.job
    import elmokit.sources.catalogue  # noqa: F401

    torch.set_num_threads(1)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (in_use + LIMIT, in_use + LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    report = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        job = json.loads(line)
        report.write(json.dumps({"begins": job["number"]}) + "\n")
        failure = failure_of(job["action"], job["arguments"], Path(job["marker"]))
        report.write(json.dumps({"ended": job["number"], "failure": failure}) + "\n")


if __name__ == "__main__":
    main_loop()

"""Commands of `elmo` in forked processes: torch is imported once, so that kills meet the work and not the imports.

As a script it is the process that forks: a line of JSON in, {"cwd", "command", "log"}, and two lines out, the
child's process id and, when it has ended, its exit code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Nursery:
    def __init__(self, cache: Path) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "ELMOKIT_CACHE": str(cache)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment)

    def run(
        self, command: list[str], cwd: Path, number: int | None, after: float, patience: float
    ) -> tuple[int, str]:
        """Send the signal when the time is over, if it is given; the exit code, and the end of what was said."""
        log = cwd.parent / f"{cwd.name}.log"
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"cwd": str(cwd), "command": command, "log": str(log)}).encode() + b"\n"
        )
        self._process.stdin.flush()
        child = int(self._line(patience))
        code = self._answer(after) if number is not None else None
        if code is None and number is not None:
            os.kill(child, number)
        hangs = False
        if code is None:
            code = self._answer(patience)
        if code is None:
            hangs = True
            os.kill(child, signal.SIGKILL)
            code = self._line(patience)
        said = " ".join(log.read_text(errors="replace").split())[-300:]
        return int(code), f"hangs for {patience:.0f} s: {said}" if hangs else said

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _answer(self, seconds: float) -> str | None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._line(seconds) if ready else None

    def _line(self, seconds: float) -> str:
        """Byte by byte, for nothing may stay in a buffer that `select` does not see."""
        assert self._process.stdout is not None
        line, end = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte or time.monotonic() > end:
                raise RuntimeError("the process that forks is gone")
            line += byte
        return line.decode()


def _be_forked() -> None:
    import torch  # noqa: F401

    import elmokit.cli
    import elmokit.embed.job
    import elmokit.pretrain.plan
    import elmokit.tasks.train  # noqa: F401

    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_the_command(asked)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _be_the_command(asked: dict[str, Any]) -> None:
    import elmokit.cli

    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.chdir(asked["cwd"])
    sys.argv = ["elmo", *asked["command"]]
    code: object = 1
    try:
        elmokit.cli.main()
        code = 0
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _be_forked()

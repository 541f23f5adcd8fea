"""deploy/nginx.conf with the real nginx, where there is one: two processes behind one address."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.servers import Load, eventually, make_world, running

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx here")
CONFIG = (Path(__file__).parent.parent / "deploy" / "nginx.conf").read_text(encoding="utf-8")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def configured(folder: Path, listen: int, first: int = 8001, second: int = 8002) -> list[str]:
    """The shipped file with other ports and folders; the command that reads it."""
    own = CONFIG.replace("listen 80;", f"listen 127.0.0.1:{listen};").replace("/var/log/nginx", str(folder))
    own = own.replace("127.0.0.1:8001", f"127.0.0.1:{first}").replace("127.0.0.1:8002", f"127.0.0.1:{second}")
    (folder / "elmo.conf").write_text(own, encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\n{temporary}include {folder}/elmo.conf;\n}}\n",
        encoding="utf-8",
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


@contextmanager
def nginx(command):
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(60)


def test_it_accepts_its_file(tmp_path):
    done = subprocess.run(
        [*configured(tmp_path, free_port()), "-t"], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_one_of_two_processes_is_drained_under_load_and_nothing_is_lost(tmp_path):
    world = make_world(tmp_path)
    with running(*world.arguments) as first, running(*world.arguments) as second:
        port = free_port()
        with nginx(configured(tmp_path, port, first.port, second.port)):
            load = Load(world, f"http://127.0.0.1:{port}")
            assert eventually(lambda: load.answered > 20 or load.wrong)
            assert first.metric("elmo_tokens_total") > 0
            assert second.metric("elmo_tokens_total") > 0
            assert first.stop(signal.SIGTERM) == 0
            before = load.answered
            assert eventually(lambda: load.answered > before + 20 or load.wrong)
            load.end()
    assert not load.wrong

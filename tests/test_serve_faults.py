"""What goes wrong between the real process and its clients: it answers right before it and after it."""

from __future__ import annotations

import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from elmokit import Elmo, UserError
from elmokit.serve import extra
from helpers.servers import Load, eventually, make_world, running

HEAD = b"POST /embed HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def server(world):
    with running(*world.arguments, "--read-timeout", "1") as server:
        yield server


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def check_right(server, world):
    answer = server.ask("POST", "/embed", {"inputs": ["a b c"]})
    assert answer.status == 200
    np.testing.assert_array_equal(np.float32(answer.json()), world.elmo.encode(["a b c"], normalize=True))
    assert server.ask("GET", "/readyz").status == 200


def read_all(connection) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_body_that_stops_is_not_waited_for(server, world):
    with connect(server) as slow:
        slow.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"inp')
        assert b" 408 " in read_all(slow)
    check_right(server, world)


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(server, world):
    """Each byte is in time, all of them are not: a client that drips holds its place no longer than others."""
    with connect(server) as slow:
        slow.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        ended = threading.Event()

        def drip():
            with suppress(OSError):  # until the server has closed it
                while not ended.wait(0.2):
                    slow.sendall(b" ")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert b" 408 " in slow.recv(65536)
        finally:
            ended.set()
            dripping.join()
    check_right(server, world)


@pytest.mark.parametrize("sent", [b"", b"POST /em", HEAD])
def test_a_connection_that_asks_for_nothing_is_closed(server, world, sent):
    with connect(server) as slow:
        slow.sendall(sent)
        assert read_all(slow) == b""
    check_right(server, world)


def test_endless_headers_are_not_read_on(server, world):
    with connect(server) as endless, pytest.raises(OSError):  # noqa: PT011  broken pipe or reset
        for _ in range(10_000):
            endless.sendall(b"POST / HTTP/1.1\r\n" if not _ else b"X-A: " + b"a" * 60_000 + b"\r\n")
    check_right(server, world)


def test_half_a_body_and_gone(server, world):
    gone = server.metric("elmo_gone_total")
    with connect(server) as half:
        half.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"inputs": ["a"')
    assert eventually(lambda: server.metric("elmo_gone_total") > gone)
    check_right(server, world)


def test_a_client_that_leaves_is_not_computed_for(world):
    with running(*world.arguments, "--batch-tokens", "1", "--max-wait", "1000") as server:
        body = b'{"inputs": [' + b",".join([b'"' + b"a " * 2000 + b'"'] * 300) + b"]}"
        with connect(server) as gone:
            gone.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert eventually(lambda: server.metric("elmo_queue_tokens") > 0)
        assert eventually(lambda: server.metric("elmo_gone_total") == 1)
        assert eventually(lambda: server.metric("elmo_queue_tokens") == 0)
        assert server.metric("elmo_tokens_total") < 300 * 2000
        check_right(server, world)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_50_megabytes_is_told_so(server, world, chunked):
    body = b"x" * 50_000_000
    with connect(server) as large:
        if chunked:
            large.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
        else:
            large.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = read_all(large)
    assert b" 413 " in answer
    assert b"--max-body" in answer
    check_right(server, world)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/embed", b'{"inputs": ', 422),
        ("/embed", b'{"inputs": NaN}', 422),
        ("/v1/tokens", b'{"inputs": ["a"], "layers": [NaN, 1, 1]}', 422),
        ("/v1/tokens", b'{"inputs": ["a"], "layers": [1e400, 1, 1]}', 422),
        ("/embed", b"[" * 100_000, 422),
        ("/embed", b'{"inputs": {"a": 1}}', 422),
        ("/embed", b"\xff\xfe", 422),
        ("/embed", b'{"inputs": "' + b"a" * 100_000 + b'"}', 200),
        ("/v1/score", b'{"inputs": [["' + b"a" * 100_000 + b'"]]}', 200),
        ("/v1/tokens", rb'{"inputs": ["a \ud800 b", ["\udfff"]]}', None),
        ("/v1/similar", rb'{"sentences": ["[a\ud800]", "[a]"]}', None),
        ("/v1/fill", rb'{"sentence": "\ud800 ___"}', None),
        ("/v1/tasks/ner", rb'{"inputs": ["\ud800"]}', None),
        ("/embed", rb'{"\ud800": 1}', None),
        ("/embed", rb'{"inputs": "\u0000"}', 200),
    ],
)
def test_odd_bodies(server, world, path, body, status):
    answer = server.ask("POST", path, body)
    assert answer.status in ((200, 422) if status is None else (status,))
    check_right(server, world)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_connections_opened_and_left(server, world, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 512:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 512), hard))
    try:
        with ExitStack() as left:
            opened = [left.enter_context(connect(server)) for _ in range(count)]
            check_right(server, world)
            assert opened[-1].recv(1) == b""  # closed after --read-timeout
            check_right(server, world)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_killed_and_restarted_under_load_clients_lose_nothing(world):
    with running(*world.arguments) as first:
        port = first.port
        load = Load(world, first.url)
        assert eventually(lambda: load.answered > 20)
        first.stop(signal.SIGKILL)
    before = load.answered
    with running(*world.arguments, port=port):
        assert eventually(lambda: load.answered > before + 20)
        load.end()
    assert not load.wrong


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_no_accepted_request(world, number):
    """What was taken is answered: as many requests are logged with 200 as clients have answers."""
    with running(*world.arguments) as server:
        load = Load(world, server.url, patience=0)
        assert eventually(lambda: load.answered > 20)
        assert server.stop(number) == 0
        load.end()
        statuses = [
            line.split('"status":')[1].split(",")[0] for line in server.logs.splitlines() if "/v1/tokens" in line
        ]
    assert set(statuses) == {"200"}
    assert len(statuses) == load.answered
    assert all("reach" in str(error) or "connection" in str(error).lower() for error in load.wrong)


def test_a_model_folder_deleted_underneath(world, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(world.model_folder, copy)
    with running(f"small={copy}") as server:
        shutil.rmtree(copy)
        check_right(server, world)
        assert server.ask("POST", "/v1/fill", {"sentence": "a ___ ."}).status == 200


def test_a_port_that_is_taken_is_one_line(server, world):
    command = [sys.executable, "-m", "elmokit", "serve", f"small={world.model_folder}", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"error: cannot listen on 127.0.0.1:{server.port}" in done.stderr


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "fastapi" else object())
    with pytest.raises(UserError, match=r'fastapi: pip install "elmokit\[serve\]"'):
        extra.check_extra()


def test_texts_of_different_people_are_not_mixed(world):
    import elmokit.serve

    carrying = Elmo.from_pretrained(world.model_folder, state="carry")
    with pytest.raises(UserError, match="would mix the texts"):
        elmokit.serve.app({"small": carrying})

"""`elmo serve` by uvicorn: connections that ask for nothing are closed, signals end it in an orderly way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from elmokit.errors import UserError
from elmokit.serve.limits import Limits
from elmokit.serve.logs import log

HEADERS = 65_536  # bytes, at most
BACKLOG = 4096  # connections that wait to be accepted


def run(
    app: FastAPI,
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grace: float = 30.0,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or SIGINT: then nothing is accepted, and what was is answered within `grace` seconds.

    started   is called with the address when it listens: with port 0 the system chooses one.
    """
    _raise_file_limit(limits.connections)
    sys.setswitchinterval(0.001)  # the computing thread, back from the kernels, does not wait long for the GIL
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol(limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=limits.connections,
        timeout_keep_alive=max(5, round(limits.read)),
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    server = _Server(config, started)
    try:
        server.run()
    except SystemExit as end:
        if end.code:
            raise UserError(
                f"cannot listen on {host}:{port}: is another server there? Give another --port"
            ) from None
    log("stopped")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[str], None]) -> None:
        super().__init__(config)
        self._tell = started

    def _log_started_message(self, listeners: Any) -> None:
        host, port = listeners[0].getsockname()[:2]
        self._tell(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was heeded is not raised again: the process ends with 0."""

        def handle(number: int, frame: FrameType | None) -> None:
            log("stopping", signal=signal.Signals(number).name)
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def _protocol(limits: Limits) -> type[asyncio.Protocol]:
    class Protocol(HttpToolsProtocol):
        """A connection must send a request's headers in time, and not too many: uvicorn would wait for ever."""

        _deadline: asyncio.TimerHandle | None = None
        _unread = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_headers()

        def _expect_headers(self) -> None:
            self._unread = 0
            if self._deadline is None:
                self._deadline = self.loop.call_later(limits.read, self._too_late)

        def _too_late(self) -> None:
            self._deadline = None
            self.transport.close()

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if self._deadline is not None and self._unread > HEADERS:
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._expect_headers()

        def on_headers_complete(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            super().connection_lost(exc)

    return Protocol


def _raise_file_limit(connections: int) -> None:
    """Every connection is an open file."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not everywhere, and not always allowed
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + 256
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def free_port(host: str, first: int, tries: int = 100) -> int:
    """The first port from `first` on that nobody listens on."""
    for port in range(first, first + tries):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server's own
            probe.bind((host, port))
            return port
    raise UserError(f"no port from {first} to {first + tries - 1} is free: give one by --port")

"""A server's answers as bytes: a request is sent again while the server is being started, restarted or busy."""

from __future__ import annotations

import json
import os
import random
import re
import ssl
import time
from types import ModuleType
from typing import Any

from elmokit.errors import UserError, clipped

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries
CONNECT_SECONDS = 10.0  # at most: an address where nothing is does not always say so
AGAIN = {408, 429, 502, 503, 504}  # busy, or a server or the proxy before it that is being started


class Connection:
    """Requests and answers as bytes. Every request may be sent twice: no answer changes anything on the server."""

    def __init__(self, url: str, api_key: str | None, timeout: float, patience: float) -> None:
        self.url, self.patience = url, patience
        self._urllib3 = _urllib3()
        self._timeout = self._urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout), read=timeout)
        self._headers = {"Content-Type": "application/json", "User-Agent": "elmokit"}
        if api_key:
            if not api_key.isascii() or not api_key.isprintable():
                raise UserError("api_key: expected printable ASCII characters")
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._sleep, self._clock = time.sleep, time.monotonic
        self._open()

    def _open(self) -> None:
        self._pool = self._urllib3.PoolManager(maxsize=16, retries=False, timeout=self._timeout)
        self._process = os.getpid()

    def close(self) -> None:
        self._pool.clear()

    def get(self, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self.ask("GET", path))
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            found = None
        if not isinstance(found, dict):
            raise self.no_server("JSON was expected")
        return found

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer, however many tries it takes within `patience`."""
        if self._process != os.getpid():  # forked: on shared connections, one would read the other's answers
            self._open()
        pause, until = FIRST_PAUSE, None
        while True:
            wait = pause * random.uniform(0.5, 1.0)  # not all clients at the same time
            try:
                answer = self._pool.request(
                    method, self.url + path, body=body, headers=self._headers, redirect=False
                )
            except self._urllib3.exceptions.HTTPError as error:
                if error.args and isinstance(
                    error.args[0], ssl.SSLCertVerificationError
                ):  # it will not get better
                    raise UserError(f"{self.url}: {clipped(error, 200)}") from None
                trouble = _reason(error)
                advice = "start it with `elmo serve`, or check the address"
            else:
                if answer.status < 300:
                    data: bytes = answer.data
                    return data
                if answer.status not in AGAIN:
                    raise self._refused(answer)
                trouble, advice = str(self._refused(answer)), "try later, or with more patience"
                wait += _retry_after(answer.headers.get("Retry-After"))
            until = self._clock() + self.patience if until is None else until
            left = until - self._clock()
            if left <= 0 or (wait > left and wait > LONGEST_PAUSE):  # it says itself that it will take longer
                raise UserError(
                    f"{self.url} gave no answer within {self.patience:g} seconds ({trouble}): {advice}"
                )
            self._sleep(min(wait, left))
            pause = min(2 * pause, LONGEST_PAUSE)

    def no_server(self, why: str) -> UserError:
        return UserError(f"{self.url} does not answer as `elmo serve` does: {why}; check the address")

    def _refused(self, answer: Any) -> UserError:
        """The server's own words, where it is one of ours."""
        try:
            message = json.loads(answer.data)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            text = clipped(answer.data.decode("utf-8", "replace"), 200)
            return self.no_server(f"found {answer.status} {answer.reason or ''} {text}".rstrip())
        if answer.status == 401:
            return UserError(f"{message} (give it as api_key=, or as ELMO_API_KEY in the environment)")
        return UserError(str(message))


def _urllib3() -> ModuleType:
    try:
        import urllib3
    except ImportError:
        raise UserError('a client needs urllib3: pip install "elmokit[client]"') from None
    return urllib3


def checked_url(url: str) -> str:
    """Without what is added to it here: a path may come before that, where a proxy has one."""
    if not isinstance(url, str) or not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
        raise UserError(f"expected the server's address, as http://127.0.0.1:8000, found {clipped(repr(url))}")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _retry_after(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:  # a date, which a proxy may send: the pause by itself will do
        return 0.0
    return seconds if 0 <= seconds < float("inf") else 0.0


def _reason(error: Exception) -> str:
    """urllib3's words without its objects' addresses."""
    return clipped(re.sub(r"<[^>]*>|\S*HTTPS?Connection(Pool)?\([^)]*\):?", "", str(error)).strip(" :,"), 150)

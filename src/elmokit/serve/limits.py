"""How much is taken at once, and how a request is refused: a status, a code, a message that names the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from elmokit.errors import UserError


@dataclass(frozen=True)
class Limits:
    body: int = 8 << 20  # bytes of a request
    inputs: int = 2048  # of a request
    tokens: int = 8192  # of an input
    queue: int = 262_144  # tokens that wait
    wait: float = 10.0  # seconds that these are expected to take; far less than `timeout`, for paces change
    timeout: float = 60.0  # seconds from a request's arrival to its answer
    read: float = 30.0  # seconds for a request's headers, and again for its body, to arrive
    connections: int = 16_384  # open at a time

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"limits.{field.name}: expected more than 0, found {value}")


class Refused(Exception):
    """A request that is answered by an error; `message` may be shown to whoever asked."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    @property
    def kind(self) -> str:
        """As OpenAI's `type`."""
        if self.status == 401:
            return "authentication_error"
        return "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"


class Gone(Exception):
    """Whoever asked has left: there is nobody to answer."""


def too_large(limits: Limits) -> Refused:
    return Refused(
        413,
        "body_too_large",
        f"the body is larger than {limits.body:,} bytes (--max-body): send fewer inputs per request",
    )


def check_inputs(count: int, limits: Limits) -> None:
    if count > limits.inputs:
        raise Refused(
            422,
            "too_many_inputs",
            f"expected at most {limits.inputs:,} inputs per request (--max-inputs), found {count:,}",
            param="input",
        )


def cut(sentences: list[list[str]], limits: Limits, truncate: bool) -> int:
    """Inputs that are too long are refused or, with `truncate`, cut here; how many were."""
    long = [number for number, tokens in enumerate(sentences) if len(tokens) > limits.tokens]
    if long and not truncate:
        number = long[0]
        raise Refused(
            422,
            "input_too_long",
            f"input {number}: expected at most {limits.tokens:,} tokens (--max-tokens), found "
            f"{len(sentences[number]):,}: split it into sentences, or give truncate: true",
            param="input",
        )
    for number in long:
        sentences[number] = sentences[number][: limits.tokens]
    return len(long)

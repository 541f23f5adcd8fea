"""A real browser at the playground, where there is one: Debian's Chromium or Chrome, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parent.parent.parent / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE = 30_000  # milliseconds in which what is to come must have come; nothing is measured by it


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or a reason why the test is skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no Playwright here")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A reader at the page: what the console says, what is asked of others and what pops up is kept."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        language = "ko-KR" if options.pop("lang", "en") == "ko" else "en-US"
        self.script = options.pop("script", None)
        self.origin = url.partition("#")[0]
        settings: dict[str, Any] = {"viewport": {"width": 1100, "height": 900}, "locale": language, **options}
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.under_way: set[Any] = set()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", self._popped_up)
        self.page.on("request", self._asked)
        for event in ("requestfinished", "requestfailed"):
            self.page.on(event, lambda request: self.under_way.discard(request))
        self.page.add_init_script(
            "addEventListener('elmo:drawn', () => { globalThis.drawn = (globalThis.drawn ?? 0) + 1; });"
        )
        if self.script:
            self.page.add_init_script(self.script)
        self.page.goto(url)
        self.page.wait_for_selector("main section")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _popped_up(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Any) -> None:
        self.under_way.add(request)
        if not request.url.startswith((self.origin, "data:")):
            self.wrong.append(f"outside: {request.url}")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.context.close()
        if kind is None:
            assert not self.wrong, self.wrong

    @property
    def rooms(self) -> list[str]:
        found: list[str] = self.page.eval_on_selector_all("main > section", "all => all.map((one) => one.id)")
        return found

    def enter(self, room: str) -> str:
        """Scroll to a room and wait until it has its picture."""
        self.page.locator(f"#{room}").scroll_into_view_if_needed()
        self.settle(room)
        return self.picture(room)

    def settle(self, room: str) -> None:
        """Until its picture is there and stays as it is, and nothing is asked for."""
        self.page.wait_for_function(
            "(room) => document.querySelector(`#${room} .picture`).childElementCount > 0", arg=room
        )
        before = None
        while self.under_way or before != self.picture(room) or self.page.locator("[aria-busy=true]").count():
            before = self.picture(room)
            self.page.wait_for_timeout(150)

    def rest(self) -> None:
        """Until nothing is asked for."""
        self.page.wait_for_timeout(150)
        while self.under_way:
            self.page.wait_for_timeout(50)

    def picture(self, room: str) -> str:
        """All that is drawn, as the browser writes it."""
        drawn: str = self.page.locator(f"#{room} .picture").inner_html()
        return drawn

    def trouble(self, room: str) -> str:
        """What a room says where it has no picture."""
        return " ".join(self.page.locator(f"#{room} .trouble").all_inner_texts())

    def words(self, side: str) -> list[str]:
        words: list[str] = self.page.locator(f"#words-{side} .word").all_inner_texts()
        return words

    def picked(self, side: str) -> list[str]:
        picked: list[str] = self.page.locator(f"#words-{side} .word[aria-pressed=true]").all_inner_texts()
        return picked

    def type(self, side: str, text: str) -> None:
        """And wait until its words are read."""
        self.page.fill(f"#sentence-{side}", text)
        self.page.wait_for_function(
            "([side, text]) => [...document.querySelectorAll(`#words-${side} .word`)]"
            ".map((word) => word.textContent).join('') === text.replace(/\\s/g, '')",
            arg=[side, text],
        )

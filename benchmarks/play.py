"""Typing to picture in the browser: from a key to the moment at which the room that is seen has drawn its answer.

    .venv/bin/python benchmarks/play.py [--model en-small ko-small] [--keys 60] [--threads 2]

A sentence of 20 words is typed in a real Chromium, each key after the picture of the one before. For each room
p50, p95 and the longest in milliseconds; beside them the same until the browser has painted, and how long it
waited for the server.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys

from playwright.sync_api import Page, sync_playwright

from elmokit.bench.machine import Machine, commit

SENTENCES = {
    "en": "The old man who sat on the bank of the river all morning had never once been to the city .",
    "ko": "밤새 눈이 내려 길이 하얗게 덮였고 아이들은 아침 일찍 마당에 나와 "
    "커다란 눈사람을 만들며 하루 종일 즐겁게 뛰어 놀았다 .",
}
ROOMS = ("contexts", "letters", "readers", "layers", "mix", "task")
WATCH = """(room) => {
  const seen = { typed: 0, waits: [], painted: [], asked: [] };
  globalThis.seen = seen;
  const field = document.getElementById("sentence-a");
  field.addEventListener("input", () => { seen.typed = performance.now(); }, { capture: true });
  addEventListener("elmo:drawn", (event) => {
    if (!event.target.closest(`#${room}`) || !seen.typed) return;
    const since = seen.typed;
    seen.typed = 0;
    seen.waits.push(performance.now() - since);
    requestAnimationFrame(() => setTimeout(() => seen.painted.push(performance.now() - since)));
  });
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (one.name.endsWith(`/play/${room}`)) seen.asked.push(one.duration);
  }).observe({ type: "resource", buffered: false });
}"""


def measured(page: Page, room: str, sentence: str, keys: int) -> dict[str, list[float]]:
    page.fill("#sentence-a", sentence)
    for above in ROOMS[: ROOMS.index(room) + 1]:  # their pictures push it down
        page.locator(f"#{above}").scroll_into_view_if_needed()
        page.wait_for_function(
            "(id) => document.querySelector(`#${id} .picture`).childElementCount > 0", arg=above
        )
    page.wait_for_timeout(1000)
    page.evaluate(WATCH, room)
    page.evaluate("document.getElementById('sentence-a').focus({ preventScroll: true })")
    for key in range(keys + 5):  # the first ones warm up
        done = page.evaluate("seen.waits.length")
        # A letter at the end, or it is taken away again: 20 words all the time.
        page.keyboard.press("Backspace" if key % 2 else "x")
        page.wait_for_function("(done) => seen.painted.length > done", arg=done)
        page.wait_for_timeout(120)  # as fast as people type; what else the page asks for gets its turn
    found: dict[str, list[float]] = page.evaluate("seen")
    return {name: sorted(found[name][5:]) for name in ("waits", "painted", "asked")}


def at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["en-small", "ko-small"])
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("there is no Chromium here")
    command = [sys.executable, "-m", "elmokit", "play", *options.model, "--port", "0", "--no-browser"]
    process = subprocess.Popen([*command, "--threads", str(options.threads)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = next(found[1] for line in process.stderr if (found := re.search(r"on (http://\S+)", line)))
        print(f"{Machine.here()}\ncommit {commit()}, {options.threads} threads, {options.keys} keys a room")
        print(f"{'':12}{'p50':>8}{'p95':>8}{'most':>8}{'painted p95':>14}{'server p50':>12}   ms")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for language, sentence in SENTENCES.items():
                assert len(sentence.split()) >= 20
                everything = []
                for room in options.rooms:
                    page = browser.new_page(locale="ko-KR" if language == "ko" else "en-US")
                    page.goto(f"{url}/")
                    found = measured(page, room, sentence, options.keys)
                    page.close()
                    waits = found["waits"]
                    everything += waits
                    print(
                        f"{language} {room:9}{at(waits, 0.5):8.1f}{at(waits, 0.95):8.1f}{waits[-1]:8.1f}"
                        f"{at(found['painted'], 0.95):14.1f}{statistics.median(found['asked']):12.1f}"
                    )
                everything.sort()
                shares = f"{at(everything, 0.5):8.1f}{at(everything, 0.95):8.1f}{everything[-1]:8.1f}"
                print(f"{language} {'all':9}{shares}")
            browser.close()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()

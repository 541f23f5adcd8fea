"""Jobs of `elmo embed`: a text, a small model with a window every few sentences, a stop in the middle."""

from __future__ import annotations

from elmokit.embed import job as job_module
from elmokit.embed.job import EmbedJob
from helpers.models import make_elmo

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]

LINES = ["He sat on the bank .", "", "밥을 먹었다 😀", "nul\0byte and é", "x" * 10_000, "last"]


def small_elmo(**options):
    return make_elmo(batch_tokens=8, **options)  # a window every few sentences


def write_lines(path):
    path.write_text("\n".join(LINES * 20) + "\n", encoding="utf-8")
    return path


def run(text, output, elmo=None, overwrite=False, restart=False, **options):
    return EmbedJob(elmo or small_elmo(), text, output, **options).run(overwrite=overwrite, restart=restart)


class Stop(Exception):
    pass


def stop_after(monkeypatch, appended, error=Stop):
    """Fail in the middle of things: at the so-manieth sentence that is appended, half of it written."""
    append = job_module.Scratch.append
    count = 0

    def failing(self, record):
        nonlocal count
        count += 1
        if count > appended:
            self._vectors.write(b"half")
            raise error
        append(self, record)

    monkeypatch.setattr(job_module.Scratch, "append", failing)
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_COMMITS", 0.0)

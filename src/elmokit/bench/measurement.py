"""`Measurement`: how fast a model is on this machine, by format of its weights, beside what the machine can do.

    measurement = Measurement("en-small", seconds=QUICK)
    measurement.measure()
    measurement.facts()

What has been measured is there at any time: whoever stops it midway has what is known.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.bench import lstms
from elmokit.bench.contenders import Contender, farthest
from elmokit.bench.flops import lstm_flops
from elmokit.bench.lstms import Apart, Batch
from elmokit.bench.machine import BUSY, Company, Machine, versions
from elmokit.bench.rates import LONGEST, Precision, best_seconds, largest_rate, measurable, seconds
from elmokit.bench.sentences import first_tokens, made_up, read_text, real_lengths, tokens_of
from elmokit.embed.embedder import Elmo
from elmokit.embed.reader import Array
from elmokit.errors import UserError
from elmokit.model.kernels.library import arithmetic
from elmokit.model.kernels.packing import WEIGHT_FORMATS, WeightFormat
from elmokit.progress import OnProgress, Progress, silent

FULL, QUICK = 45.0, 4.0  # seconds of measuring
SHARES = {"at once": 0.5, "one at a time": 0.2, "LSTMs": 0.2}  # of these; the rest is for products
ROUNDS = 3  # that sentences are chosen for; while there is time, there are more
MOST_ROUNDS = 8
SENTENCES = 500
COMPARED = 64  # sentences whose vectors are compared with those of float32
BATCH = 32  # sentences that the LSTMs alone read at once
SHORT = 0.05  # seconds: what takes less is run several times in its turn
COLD, WARM = "cold", "warm"  # no word is known when it begins; all are
TORCH = "nn.LSTM"

Row = dict[str, Any]


def checked_formats(names: Sequence[str]) -> list[WeightFormat]:
    """float32 first, which the others are compared with; then those that were asked for, in our order."""
    for name in names:
        if name not in WEIGHT_FORMATS:
            raise UserError(f"weights: expected all, or some of {', '.join(WEIGHT_FORMATS)}, found {name!r}")
    return [name for name in WEIGHT_FORMATS if name == "float32" or name in names]


class Measurement:
    """
    text      one sentence a line; None: made up.
    weights   the formats to measure; float32 is always among them.
    seconds   about how long it takes, on top of opening the model.
    """

    def __init__(
        self,
        model: str,
        *,
        text: Path | None = None,
        weights: Sequence[str] = tuple(WEIGHT_FORMATS),
        seconds: float = FULL,
    ) -> None:
        self.formats = checked_formats(weights)
        elmo = Elmo.from_pretrained(model)
        self.model, self.text, self.seconds = model, text, seconds
        self.sentences = made_up(real_lengths(SENTENCES)) if text is None else read_text(text, elmo, SENTENCES)
        self.checkpoint = elmo.checkpoint
        self.machine, self.versions = Machine.here(), versions()
        self.limits: dict[Precision, float] = {}  # operations a second, by precision
        self.apart: dict[str, Apart] = {}
        self.at_once: dict[tuple[str, str], float] = {}  # by format, cold or warm: seconds
        self.one_at_a_time: dict[tuple[str, str], list[float]] = {}  # seconds of every sentence, of all rounds
        self.lstms: dict[str, float] = {}  # seconds of a batch; of a limit, which takes its turn, none
        self.lengths = sorted((len(sentence) + 2 for sentence in self.sentences[:BATCH]), reverse=True)  # its own
        self.others: float | None = None  # at work beside us: their share of the machine
        self.took = 0.0
        self.finished = False

    def measure(self, on_progress: OnProgress = silent) -> None:
        company, begun = Company(), time.perf_counter()
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.filterwarnings("ignore", message=lstms.NO_WARNING)
                self._measure_limits(on_progress)
                contenders = self._contenders(on_progress)
                self._measure_at_once(contenders, on_progress)
                self._measure_one_at_a_time(contenders, on_progress)
                self._measure_lstms(on_progress)
            self.finished = True
        finally:
            self.others, self.took = company.share(), time.perf_counter() - begun

    @property
    def busy(self) -> bool:
        return self.others is not None and self.others > BUSY

    def _measure_limits(self, on_progress: OnProgress) -> None:
        precisions = measurable(self.machine.instruction_sets)
        for number, precision in enumerate(precisions):
            on_progress(Progress("products", number, len(precisions)))
            self._measure_limit(precision, longest=min(LONGEST, self.seconds / 20))

    def _measure_limit(self, precision: Precision, longest: float) -> float:
        """Here, and again in every round of what is compared with it."""
        self.limits[precision] = max(self.limits.get(precision, 0.0), largest_rate(precision, longest))
        return 0.0

    def _contenders(self, on_progress: OnProgress) -> dict[tuple[str, str], Contender]:
        """Of each format a cold and a warm one; on the way, how far its vectors are from float32's."""
        found: dict[tuple[str, str], Contender] = {}
        expected: list[Array] | None = None
        for number, weights in enumerate(self.formats):
            on_progress(Progress("getting ready", number, len(self.formats)))
            cold = Contender.of(self.checkpoint, COLD, weights)
            cold.seconds(self.sentences[:1])  # all is packed
            if not number:
                self._choose_sentences(cold)
            vectors = cold.vectors(self.sentences[:COMPARED])
            expected = vectors if expected is None else expected
            self.apart[weights] = farthest(vectors, expected)
            found |= {(weights, COLD): cold, (weights, WARM): cold.warm(WARM, self.sentences)}
        return found

    def _choose_sentences(self, cold: Contender) -> None:
        """So many that all contenders can read them in ROUNDS rounds."""
        some = self.sentences[:BATCH]
        pace = tokens_of(some) / cold.seconds(some)
        allowed = SHARES["at once"] * self.seconds / (ROUNDS * 2 * len(self.formats))
        self.sentences = first_tokens(self.sentences, int(pace * allowed))

    def _measure_at_once(self, contenders: dict[tuple[str, str], Contender], on_progress: OnProgress) -> None:
        best_seconds(
            {key: partial(each.seconds, self.sentences, keep=True) for key, each in contenders.items()},
            MOST_ROUNDS,
            allowed=SHARES["at once"] * self.seconds * (1 - 1 / ROUNDS),
            best=self.at_once,
            stage="many sentences",
            on_progress=on_progress,
        )

    def _measure_one_at_a_time(
        self, contenders: dict[tuple[str, str], Contender], on_progress: OnProgress
    ) -> None:
        sentences = self.sentences[: max(1, len(self.sentences) // 10)]

        def work(key: tuple[str, str]) -> float:
            latencies = contenders[key].latencies(sentences)
            self.one_at_a_time.setdefault(key, []).extend(latencies)
            return sum(latencies)

        best_seconds(
            {key: partial(work, key) for key in contenders},
            MOST_ROUNDS,
            allowed=SHARES["one at a time"] * self.seconds * (1 - 1 / ROUNDS),
            stage="one sentence",
            on_progress=on_progress,
        )

    def _measure_lstms(self, on_progress: OnProgress) -> None:
        bilm = self.checkpoint.bilm
        batch = Batch.make(bilm, self.lengths)
        runs = {f"elmokit, {weights}": lstms.ours(bilm, weights) for weights in self.formats}
        for run in runs.values():
            run(batch)  # all is packed
        runs[TORCH] = lstms.torch_packed(bilm)
        works = {name: partial(seconds, partial(run, batch)) for name, run in runs.items()}
        works |= {name: partial(self._measure_limit, name, self.seconds / 200) for name in self.limits}
        best_seconds(
            works,
            MOST_ROUNDS,
            min(SHORT, self.seconds / 100),
            allowed=SHARES["LSTMs"] * self.seconds * (1 - 1 / ROUNDS),
            best=self.lstms,
            stage="LSTMs alone",
            on_progress=on_progress,
        )

    def weight_rows(self) -> list[Row]:
        """By format: what it is computed with, how fast it is, how far from float32; None: not measured yet."""
        tokens, rows = tokens_of(self.sentences), []
        for weights in self.formats:
            row: Row = {"weights": weights, **arithmetic(weights)._asdict()}
            for known in (COLD, WARM):
                took = self.at_once.get((weights, known))
                row[f"{known} tokens/s"] = None if took is None else tokens / took
            for known in (COLD, WARM):
                taken = self.one_at_a_time.get((weights, known))
                for name, rank in (("p50", 50), ("p99", 99)):
                    row[f"{known} {name} ms"] = None if not taken else 1e3 * float(np.percentile(taken, rank))
            apart = self.apart.get(weights)
            row |= {"difference": None, "cosine": None} if apart is None else apart._asdict()
            rows.append(row)
        return rows

    def lstm_rows(self) -> list[Row]:
        """The LSTMs alone, beside the limit of the precision that they are computed in."""
        tokens, rows = sum(self.lengths), []
        flops = lstm_flops(self.checkpoint.bilm.config.lstm, tokens)
        precisions = {f"elmokit, {weights}": arithmetic(weights).precision for weights in self.formats}
        for name, precision in {**precisions, TORCH: "float32"}.items():
            if name not in self.lstms:
                continue
            took, limit = self.lstms[name], self.limits.get(precision)
            row: Row = {"LSTMs": name, "ms": 1e3 * took, "tokens/s": tokens / took, "GFLOP/s": flops / took / 1e9}
            rows.append(row | {"precision": precision, "of limit": limit and flops / took / limit})
        return rows

    def facts(self) -> Row:
        """All of it, as JSON has it."""
        lstm = self.checkpoint.bilm.config.lstm
        return {
            "machine": asdict(self.machine),
            "versions": self.versions,
            "model": {"name": self.model, "layers": lstm.layers, "cells": lstm.cells, "width": lstm.width},
            "text": {
                "source": "made up" if self.text is None else str(self.text),
                "sentences": len(self.sentences),
                "tokens": tokens_of(self.sentences),
            },
            "finished": self.finished,
            "seconds": self.took,
            "others": self.others,
            "limits": self.limits,
            "weights": self.weight_rows(),
            "lstms": {"lengths": self.lengths, "rows": self.lstm_rows()},
        }

"""A measurement as people read it: the machine, a model by format of weights, its LSTMs alone; and bars."""

from __future__ import annotations

from typing import Any

from elmokit.bench.measurement import COLD, WARM, Measurement
from elmokit.bench.sentences import tokens_of
from elmokit.model.kernels.library import arithmetic
from elmokit.show.exhibit import Exhibit
from elmokit.show.figures import draw_bars


def exhibits(measurement: Measurement) -> list[Exhibit]:
    """Only those of which something is known."""
    found = [machine_exhibit(measurement)]
    if measurement.apart:
        found.append(text_exhibit(measurement))
    if measurement.one_at_a_time:
        found.append(sentence_exhibit(measurement))
    if measurement.lstm_rows():
        found.append(lstm_exhibit(measurement))
    return found


def machine_exhibit(measurement: Measurement) -> Exhibit:
    """What it can do, and which path is chosen."""
    machine, kernels = measurement.machine, measurement.versions["kernels"]
    cores = f"{machine.cores}"
    if machine.logical > machine.cores:
        cores += f" ({machine.logical} with hyperthreads)"
    if machine.usable < machine.logical:
        cores += f", {machine.usable} of them for this process"
    others = measurement.others
    facts = {
        "processor": f"{machine.processor}, {machine.system}",
        "cores": cores,
        "instruction sets": ", ".join(machine.instruction_sets) or "none of those that matter here",
        "caches": ", ".join(f"{level} {size}" for level, size in machine.caches.items()) or "not known",
        "threads in use": f"{machine.threads}",
        "load before": "not known" if machine.load is None else f"{machine.load:.1f} processes",
        "others meanwhile": "not known" if others is None else f"{others:.0%} of all cores",
    }
    for precision, rate in measurement.limits.items():
        unit = "GOP/s" if precision == "int8" else "GFLOP/s"
        facts[f"products, {precision}"] = f"at most {rate / 1e9:,.0f} {unit}, by torch"
    facts["kernels"] = f"{kernels}" + (": no native library" if kernels == "torch" else "")
    facts |= {f"weights, {weights}": str(arithmetic(weights)) for weights in measurement.formats}
    notes = []
    if measurement.busy:
        notes.append("This machine is busy: figures are lower than they could be, and ratios mean little.")
    return Exhibit("machine", "This machine", ("what", "found"), tuple(facts.items()), tuple(notes))


def text_exhibit(measurement: Measurement) -> Exhibit:
    """Many sentences at once. Its figure is that of the whole measurement."""
    rows = []
    for row in measurement.weight_rows():
        paces = [None if pace is None else round(pace) for pace in (row["cold tokens/s"], row["warm tokens/s"])]
        apart = (None, None) if row["cosine"] is None else (f"{row['difference']:.1e}", f"{row['cosine']:.6f}")
        rows.append((row["weights"], *paces, *apart))
    source = "made up" if measurement.text is None else measurement.text.name
    read = f"{len(measurement.sentences):,} sentences, {tokens_of(measurement.sentences):,} tokens ({source})"
    return Exhibit(
        "bench",
        f"{measurement.model}, many sentences at once: {read}",
        ("weights", "cold tokens/s", "warm tokens/s", "difference", "cosine"),
        tuple(rows),
        (
            "Tokens to all layers in NumPy, the best round. cold: no word is known when it begins; warm: all.",
            "difference, cosine: from float32's vectors, the largest and the lowest.",
        ),
        draw=lambda figure: draw(figure, measurement),
    )


def sentence_exhibit(measurement: Measurement) -> Exhibit:
    columns = [f"{known} {rank} ms" for known in (COLD, WARM) for rank in ("p50", "p99")]
    rows = [(row["weights"], *(row[name] for name in columns)) for row in measurement.weight_rows()]
    title = f"{measurement.model}, one sentence at a time"
    return Exhibit("sentence", title, ("weights", *columns), tuple(rows))


def lstm_exhibit(measurement: Measurement) -> Exhibit:
    rows = []
    for row in measurement.lstm_rows():
        share = None if row["of limit"] is None else f"{row['of limit']:.0%} of {row['precision']}"
        rows.append((row["LSTMs"], row["ms"], round(row["tokens/s"]), round(row["GFLOP/s"]), share))
    return Exhibit(
        "lstms",
        f"The LSTMs alone: {len(measurement.lengths)} sentences at once, {sum(measurement.lengths):,} tokens",
        ("LSTMs", "ms", "tokens/s", "GFLOP/s", "of the limit"),
        tuple(rows),
        (
            "The limit: products, of the precision that is computed in. nn.LSTM is torch's, with proj_size, of "
            "packed sequences.",
        ),
    )


def draw(figure: Any, measurement: Measurement) -> None:
    """Text to vectors on the left, the LSTMs alone on the right, where they have been measured."""
    alone = measurement.lstm_rows()
    figure.set_size_inches(11 if alone else 6.4, 4.2)
    left, *right = figure.subfigures(1, 2, width_ratios=(3, 2)) if alone else [figure]
    rows = measurement.weight_rows()
    paces = {f"many, {known}": [thousands(row[f"{known} tokens/s"]) for row in rows] for known in (COLD, WARM)}
    tokens = tokens_of(measurement.sentences) / len(measurement.sentences)
    for known in (COLD, WARM):
        spent = [row[f"{known} p50 ms"] for row in rows]
        paces[f"one by one, {known}"] = [thousands(ms and 1e3 * tokens / ms) for ms in spent]
    label, pace = f"{measurement.model}, by format of weights", "thousand tokens/s"
    draw_bars(left, [row["weights"] for row in rows], paces, xlabel=label, ylabel=pace)
    for part in right:
        names = [row["LSTMs"].replace(", ", "\n") for row in alone]
        label, values = (
            f"the LSTMs alone, {len(measurement.lengths)} sentences at once",
            [row["tokens/s"] for row in alone],
        )
        draw_bars(part, names, {"tokens/s": list(map(thousands, values))}, xlabel=label, ylabel=pace)


def thousands(pace: float | None) -> float:
    return 0.0 if pace is None else pace / 1e3

"""elmo bench: how fast a model is on this machine, beside what the machine can do."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.exhibits import print_exhibit, tell_written
from elmokit.cli.shared.options import DEFAULT_MODEL, Model, Threads, check_texts, use_threads
from elmokit.cli.shared.signals import interrupt, stoppable
from elmokit.progress import terminal_bar

if TYPE_CHECKING:
    from elmokit.bench.measurement import Measurement


def bench(
    *,
    model: Model = DEFAULT_MODEL,
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your sentences, one per line, also .gz .bz2 .xz .zst; else made up."),
    ] = None,
    weights: Annotated[
        str, typer.Option(metavar="FORMAT,...", help="all, or formats of weights such as float16,int8.")
    ] = "all",
    threads: Threads = None,
    quick: Annotated[bool, typer.Option("--quick", help="Ten seconds instead of a minute; rougher.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Write bench.json and bench.png to this folder."),
    ] = None,
) -> None:
    """How fast a model is on this machine, by format of its weights, beside what the machine can do.

    Sentences to vectors, many at once and one at a time; and the LSTMs alone, beside torch's nn.LSTM and the
    limit, the largest rate of torch's products. Contenders take turns, and the best round counts. Ctrl-C leaves
    what is known.

    Examples:

    `elmo bench`

    `elmo bench --quick -m my-elmo --text reviews.txt --weights float16,int8`

    `elmo bench --threads 1 -o speed`
    """
    if text is not None:
        check_texts([str(text)])
    if out is not None:
        from elmokit.show.files import ready_folder

        ready_folder(out)
    use_threads(threads)
    from elmokit.bench.measurement import FULL, QUICK, Measurement
    from elmokit.model.kernels.packing import WEIGHT_FORMATS

    formats = list(WEIGHT_FORMATS) if weights == "all" else weights.split(",")
    with stoppable(interrupt) as stopped:
        measurement = Measurement(model, text=text, weights=formats, seconds=QUICK if quick else FULL)
        with suppress(KeyboardInterrupt), terminal_bar() as on_progress:
            measurement.measure(on_progress)
    _show(measurement, out)
    if not measurement.finished:
        raise typer.Exit(stopped.exit_code)


def _show(measurement: Measurement, out: Path | None) -> None:
    from elmokit.bench.exhibits import exhibits

    found = exhibits(measurement)
    for exhibit in found:
        print_exhibit(exhibit)
    if not measurement.finished:
        typer.echo("stopped: what had been measured until then is above", err=True)
    if out is None:
        return
    from elmokit.atomic import write_file

    facts = {"command": " ".join(["elmo", *sys.argv[1:]]), **measurement.facts()}
    contents = {"bench.json": json.dumps(facts, ensure_ascii=False, indent=1).encode()}
    for exhibit in found:
        if (image := exhibit.png()) is not None:
            contents["bench.png"] = image
    for name, content in contents.items():
        write_file(out / name, content)
    tell_written([out / name for name in contents], found)

"""The README's chart of speed: elmokit by precision beside its peers, for light pages and for dark ones.

    .venv/bin/python benchmarks/chart.py [--data benchmarks/peers.json] [--out docs/images]

Writes OUT/speed.png and OUT/speed-dark.png. The data is tokens/s of one run on one machine: whoever measures again
writes all its figures anew.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from elmokit.atomic import write_file

HERE = Path(__file__).parent


class Colours(NamedTuple):
    """Okabe and Ito's blue for ours, grey for the others: the names beside the bars tell them apart as well."""

    ink: str
    paper: str
    ours: str
    peers: str


VARIANTS = {
    "speed.png": Colours("#1f2328", "#ffffff", "#0072B2", "#9aa4ae"),
    "speed-dark.png": Colours("#e6edf3", "#0d1117", "#56B4E9", "#6e7781"),
}


def bars(data: dict[str, Any]) -> list[tuple[str, float, bool]]:
    """Name, tokens/s and whether it is ours: the slowest first, the fastest on top of the chart."""
    ours = [(f"elmokit, {precision}", pace, True) for precision, pace in data["elmokit"].items()]
    peers = [(name, pace, False) for name, pace in data["peers"].items()]
    return sorted([*ours, *peers], key=lambda bar: bar[1])


def draw(data: dict[str, Any], colours: Colours) -> Figure:
    rows = bars(data)
    fastest = max(data["peers"].values())
    figure = Figure(figsize=(7.6, 0.42 * len(rows) + 1.1), layout="constrained", facecolor=colours.paper)
    axes = figure.subplots()
    axes.set_facecolor(colours.paper)
    fill = [colours.ours if ours else colours.peers for _, _, ours in rows]
    drawn = axes.barh([name for name, _, _ in rows], [pace for _, pace, _ in rows], 0.68, color=fill)
    labels = [f"{pace:,}" + (f"  ({pace / fastest:.1f} x)" if ours else "") for _, pace, ours in rows]
    axes.bar_label(drawn, labels, padding=5, color=colours.ink, fontsize=10)
    axes.set_title(data["what"], loc="left", color=colours.ink, fontsize=10, x=0, pad=8)
    axes.set_xlabel(f"{data['machine']}; x: to the fastest peer", loc="left", color=colours.ink, fontsize=9)
    axes.set_xlim(0, 1.2 * max(pace for _, pace, _ in rows))
    axes.set_xticks([])
    axes.tick_params(length=0, labelcolor=colours.ink, labelsize=10)
    axes.spines[:].set_visible(False)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "peers.json", metavar="FILE")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "images", metavar="FOLDER")
    arguments = parser.parse_args(argv)
    data = json.loads(arguments.data.read_text(encoding="utf-8"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, colours in VARIANTS.items():
        image = io.BytesIO()
        draw(data, colours).savefig(image, format="png", dpi=160, metadata={"Software": None})
        write_file(arguments.out / name, image.getvalue())
        print(arguments.out / name)


if __name__ == "__main__":
    main()

"""Figures, by matplotlib: drawn once, then written as SVG, as PNG and for a page.

matplotlib comes with the extra `train`; without it tables are made and figures are left out. Colours are those of
Okabe and Ito, which the colour-blind tell apart; a marker or a hatch says the same in grey.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

Draw = Callable[[Any], None]  # fills a matplotlib Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
LINES = ("--", ":", "-.")
INK, PAPER = "#1a1a1a", "#fefefe"  # text and lines, and what is behind them: the page puts its own colours there
PNG_DPI = 160
NO_MATPLOTLIB = "the figure is left out: it needs matplotlib (pip install 'elmokit[train]')"
NO_KOREAN_FONT = (
    "no Korean font is installed: Korean letters are boxes in the PNG (install NanumGothic or Noto Sans CJK); the "
    "SVG has them as text"
)
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"  # within the [] of a regular expression
HANGUL_FONTS = (
    "Noto Sans CJK KR",
    "Noto Sans KR",
    "Noto Sans CJK JP",  # the first of a collection that has them all
    "Source Han Sans KR",
    "Source Han Sans K",
    "NanumGothic",
    "NanumBarunGothic",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "UnDotum",
    "Baekmuk Dotum",
    "Arial Unicode MS",
)


class Drawing:
    """A figure in every format, drawn and laid out once. A format is None where the figure cannot be drawn.

    figure     the matplotlib Figure.
    svg        with its text as text. It is written first, so that it does not depend on the other formats.
    left_out   what cannot be drawn, and what to do about it: a table is worth having without its figure.
    """

    def __init__(self, draw: Draw) -> None:
        self.figure: Any = None
        self.left_out: list[str] = []
        if not can_draw():
            self.left_out.append(NO_MATPLOTLIB)
        else:
            self._draw(draw)
        self.svg = self._write_svg()
        if self.figure is not None:
            self.figure.set_layout_engine("none")  # as the SVG is laid out, so are the others
        if self.svg is not None and re.search(f"[{HANGUL}]", self.svg) and not _hangul_fonts():
            self.left_out.append(NO_KOREAN_FONT)

    @cached_property
    def transparent_svg(self) -> str | None:
        """Nothing is behind it: for a page, which may be dark."""
        return self._write_svg(transparent=True)

    @cached_property
    def png(self) -> bytes | None:
        return self._write("png", {"Software": None}, dpi=PNG_DPI)

    def _draw(self, draw: Draw) -> None:
        from matplotlib.figure import Figure

        try:
            with _style():
                figure = Figure(figsize=(6.4, 3.8), layout="constrained")
                draw(figure)
        except Exception as error:
            self._failed(error)
        else:
            self.figure = figure

    def _write_svg(self, transparent: bool = False) -> str | None:
        image = self._write("svg", {"Date": None, "Creator": None}, transparent=transparent)
        return None if image is None else image.decode("utf-8")

    def _write(self, kind: str, metadata: dict[str, None], **options: Any) -> bytes | None:
        if self.figure is None:
            return None
        image = io.BytesIO()
        try:
            with _style():
                self.figure.savefig(image, format=kind, metadata=metadata, **options)
        except Exception as error:
            self.figure = None
            self._failed(error)
            return None
        return image.getvalue()

    def _failed(self, error: Exception) -> None:
        self.left_out.append(f"the figure is left out: drawing it failed ({type(error).__name__}: {error})")


def can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _style() -> Iterator[None]:
    """Plain text of any script, in ink; SVG with text as text and the same ids every time."""
    import matplotlib

    settings: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *_hangul_fonts()],
        "text.parse_math": False,
        "axes.unicode_minus": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "elmokit",
        "hatch.linewidth": 0.5,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A letter that no installed font has is a box in the PNG; the SVG has it, and the browser's fonts.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from (current )?font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def _hangul_fonts() -> list[str]:
    """The first installed font with Korean letters."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in HANGUL_FONTS if name in installed][:1]


def draw_bars(
    figure: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    lines: Mapping[str, float | Sequence[float]] | None = None,
) -> None:
    """Bars from zero, each with its value; one group of them per tick.

    series   a label and one value per group. One series alone needs no legend.
    lines    baselines: a label and one value for the whole width, or one per group.
    """
    axes = figure.subplots()
    width = 0.8 / len(series)
    drawn = []
    for number, (label, values) in enumerate(series.items()):
        places = [group - 0.4 + (number + 0.5) * width for group in range(len(groups))]
        bars = axes.bar(
            places,
            values,
            width * 0.94,
            label=label,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.6,
        )
        size = 8 if len(series) * len(groups) <= 12 else 6
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
        axes.bar_label(bars, fmt="%.1f", fontsize=size, padding=3, zorder=4, bbox=box)
        drawn.append(bars)
    for number, (label, level) in enumerate((lines or {}).items()):
        levels = [level] if isinstance(level, int | float) else list(level)
        ends = [(group - 0.45, group + 0.45) for group in range(len(levels))]
        if len(levels) == 1:
            ends, label = [(-0.5, len(groups) - 0.5)], f"{label} ({levels[0]:.1f})"
        lefts, rights = zip(*ends)
        style = LINES[number % len(LINES)]
        axes.hlines(levels, lefts, rights, colors=PAPER, linewidth=3.2, zorder=2.5)  # to be seen on the bars
        drawn.append(
            axes.hlines(levels, lefts, rights, colors=INK, linestyles=style, linewidth=1.4, label=label, zorder=3)
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.06)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    plain(axes, grid="y")
    if len(drawn) > 1:
        legend_below(figure, drawn)


def draw_probe(figure: Any, names: Sequence[str], scores: Sequence[float], baselines: Mapping[str, float]) -> None:
    """A linear probe's accuracy on every representation, the baselines as lines; long names in two lines."""
    ticks = [re.sub(r" (?=\(|of |side by)", "\n", name, count=1) for name in names]
    labels = {"xlabel": "representation", "ylabel": "accuracy (%)"}
    draw_bars(figure, ticks, {"linear probe": scores}, lines=baselines, **labels)


def plain(axes: Any, grid: str = "both") -> None:
    """A quiet grid behind the data, and no box around it."""
    axes.set_axisbelow(True)
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def panels(figure: Any, count: int, across: int = 3) -> list[Any]:
    """So many axes, a few in a row; more rows make the figure higher."""
    rows = math.ceil(count / across)
    figure.set_size_inches(6.4, 3.2 * rows + 0.6)
    grid = list(figure.subplots(rows, min(count, across), squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return grid[:count]


def legend_below(figure: Any, drawn: Sequence[Any]) -> None:
    """What was drawn, by its labels, below the figure; what several panels have is there once."""
    drawn = list({str(artist.get_label()): artist for artist in drawn}.values())
    if not drawn:
        return
    labels = [str(artist.get_label()) for artist in drawn]
    labels = [label if len(label) <= 48 else label[:47] + "…" for label in labels]
    columns = min(len(labels), 4)
    if max(map(len, labels)) > 24 or columns * sum(map(len, labels)) / len(labels) > 64:  # letters of a row
        columns = 2
    figure.legend(drawn, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)

"""What every analysis is shown as: a table, its notes and a figure; on the terminal, in files or on the page.

Figures need matplotlib (extra `train`); without it the tables are made and the figures are left out. Colours are
those of Okabe and Ito, which the colour-blind tell apart; a marker or a hatch says the same in grey.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.atomic import write_file
from elmokit.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | int | float | None
Draw = Callable[[Any], None]  # fills a matplotlib Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
LINES = ("--", ":", "-.")
INK, PAPER = "#1a1a1a", "#fefefe"  # text and lines, and what is behind them: the page puts its own colours there
PNG_DPI = 160
NO_MATPLOTLIB = "the figure is left out: it needs matplotlib (pip install 'elmokit[train]')"
HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
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


class Shown(NamedTuple):
    name: str
    numeric: bool
    cells: list[str]


@dataclass(frozen=True)
class Exhibit:
    """
    name     the stem of its files.
    rows     one cell a column. Scores are per cent; None is an empty cell. A column whose name begins with ± is
             the deviation of the one before it: people see both in one cell.
    notes    the data, sizes and seeds; whether what the paper found is found here.
    draw     fills a figure. It runs under this module's settings: plain text, no mathematics.
    paper    what it is in the paper, such as "Table 6".
    digits   decimals of the numbers that are shown; files have them all.
    brief    the columns that a terminal has room for; by default all.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    draw: Draw | None = field(default=None, compare=False, repr=False)
    paper: str = ""
    digits: int = 2
    brief: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-][\w.-]*", self.name):
            raise UserError(f"name: expected letters, digits, _ and - for files, found {self.name!r}: see stem()")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UserError(f"{self.name}: expected {len(self.columns)} cells a row, found {len(row)}: {row}")

    def shown(self, cell: Cell) -> str:
        """A cell as people read it."""
        if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
            return ""
        if isinstance(cell, float):
            return f"{cell:.{self.digits}f}"
        return cell if isinstance(cell, str) else f"{cell:,}"

    def columns_shown(self, brief: bool = False) -> list[Shown]:
        """As people read it: deviations joined to what they are of."""
        found: list[Shown] = []
        for number, name in enumerate(self.columns):
            cells = [row[number] for row in self.rows]
            if name.startswith("±") and found:
                joined = [f"{a} ± {b}" if b else a for a, b in zip(found[-1].cells, map(self.shown, cells))]
                found[-1] = found[-1]._replace(cells=joined)
            else:
                there = [cell for cell in cells if cell is not None]
                numeric = bool(there) and not any(isinstance(cell, str) for cell in there)
                found.append(Shown(name, numeric, [self.shown(cell) for cell in cells]))
        return [column for column in found if not (brief and self.brief) or column.name in self.brief]

    def table(self) -> Table:
        """For the terminal, by rich."""
        from rich.markup import escape
        from rich.table import Table

        title = self.title + (f" ({self.paper} of the paper)" if self.paper else "")
        table = Table(title=escape(title), title_justify="left")
        columns = self.columns_shown(brief=True)
        for column in columns:
            least = max(map(len, column.cells), default=1) if column.numeric else None  # numbers are not folded
            table.add_column(escape(column.name), justify="right" if column.numeric else "left", min_width=least)
        for row in zip(*(column.cells for column in columns)):
            table.add_row(*map(escape, row))
        return table

    def markdown(self) -> str:
        """A table of a Markdown page, with the notes below it."""
        columns = self.columns_shown()
        lines = ["| " + " | ".join(column.name for column in columns) + " |"]
        lines.append("|" + "|".join("---:" if column.numeric else "---" for column in columns) + "|")
        for row in zip(*(column.cells for column in columns)):
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |")
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_finite(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def facts(self) -> dict[str, object]:
        """All but the figure, as JSON has it."""
        return {
            "name": self.name,
            "title": self.title,
            "paper": self.paper,
            "columns": list(self.columns),
            "rows": [[_finite(cell) for cell in row] for row in self.rows],
            "notes": list(self.notes),
        }

    def json(self) -> str:
        return json.dumps(self.facts(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"

    def figure(self) -> Any:
        """A matplotlib Figure; None where there is nothing to draw or no matplotlib."""
        if self.draw is None or not can_draw():
            return None
        from matplotlib.figure import Figure

        with _style():
            figure = Figure(figsize=(6.4, 3.8), layout="constrained")
            self.draw(figure)
        return figure

    def svg(self, transparent: bool = False) -> str | None:
        image = self._image("svg", {"Date": None, "Creator": None}, transparent=transparent)
        return None if image is None else image.decode("utf-8")

    def png(self) -> bytes | None:
        return self._image("png", {"Software": None}, dpi=PNG_DPI)

    def _image(self, kind: str, metadata: dict[str, None], **options: Any) -> bytes | None:
        figure, image = self.figure(), io.BytesIO()
        if figure is None:
            return None
        with _style():
            figure.savefig(image, format=kind, metadata=metadata, **options)
        return image.getvalue()

    def write(self, folder: str | Path) -> list[Path]:
        """NAME.csv, NAME.json and, if there is a figure, NAME.png and NAME.svg: the same bytes every time."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        contents: dict[str, bytes | None] = {"csv": self.csv().encode(), "json": self.json().encode()}
        with suppress(Exception):  # the table is there without its figure: left_out() says why
            svg = self.svg()
            contents |= {"png": self.png(), "svg": None if svg is None else svg.encode()}
        written = []
        for suffix, content in contents.items():
            if content is not None:
                path = folder / f"{self.name}.{suffix}"
                write_file(path, content)
                written.append(path)
        return written

    def left_out(self) -> list[str]:
        """What cannot be drawn of the figure, and what to do about it."""
        if self.draw is None:
            return []
        try:
            svg = self.svg()
        except Exception as error:
            return [undrawn(error)]
        if svg is None:
            return [NO_MATPLOTLIB]
        if HANGUL.search(svg) and not _hangul_fonts():
            return [
                "no Korean font is installed: Korean letters are boxes in the PNG (install NanumGothic or Noto "
                "Sans CJK); the SVG has them as text"
            ]
        return []


def percent(share: float) -> float:
    """0 to 1 -> 0 to 100, without the digits that nobody needs."""
    return round(100 * share, 4)


def stem(text: str) -> str:
    """A name for files out of any text."""
    return re.sub(r"[^\w]+", "-", text).strip("-") or "x"


def layer_name(layer: int) -> str:
    return f"layer {layer}" + (" (context-free)" if layer == 0 else "")


def pattern_note(pattern: str, holds: bool, found: str) -> str:
    """Whether what the paper found is found here, and by which figures."""
    return f"The paper's pattern ({pattern}) {'appears' if holds else 'does not appear'}: {found}."


def undrawn(error: Exception) -> str:
    """A note in place of a figure: whatever is wrong with it, the table is worth having."""
    return f"the figure is left out: drawing it failed ({type(error).__name__}: {error})"


def can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw_bars(
    figure: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    lines: Mapping[str, float | Sequence[float]] | None = None,
) -> None:
    """Bars from zero, each with its value; one group of them a tick.

    series   a label and one value a group. One series alone needs no legend.
    lines    baselines: a label and one value for the whole width, or one a group.
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


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell

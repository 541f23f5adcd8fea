"""What a result is shown as: a table with a title, notes and perhaps a figure; on the terminal and in files."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.atomic import write_file
from elmokit.show.figures import Draw, Drawing

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | int | float | None


class Shown(NamedTuple):
    name: str
    numeric: bool
    cells: list[str]


@dataclass(frozen=True)
class Exhibit:
    """
    name     the stem of its files.
    rows     one cell per column. Scores are per cent; None is an empty cell. A column whose name begins with ± is
             the deviation of the one before it: people see both in one cell.
    notes    the data, sizes and seeds; whether what the paper found is found here.
    draw     fills a figure, once. It runs under the settings of `figures`: plain text, no mathematics.
    paper    what it is in the paper, such as "Table 6".
    digits   decimals of the numbers that are shown; files have them all.
    brief    the columns that a terminal has room for; by default all.
    ends     above 0, people see so many rows at the beginning and at the end; files have them all.
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
    ends: int = 0

    def __post_init__(self) -> None:
        # Whoever makes an exhibit is wrong here, not a user.
        if not re.fullmatch(r"[\w-][\w.-]*", self.name):
            raise ValueError(f"name: expected letters, digits, _ and - for files, found {self.name!r}: see stem()")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"{self.name}: expected {len(self.columns)} cells per row, found {len(row)}: {row}"
                )

    def shown(self, cell: Cell) -> str:
        """A cell as people read it."""
        if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
            return ""
        if isinstance(cell, float):
            return f"{cell:.{self.digits}f}"
        return cell if isinstance(cell, str) else f"{cell:,}"

    def rows_shown(self) -> tuple[tuple[Cell, ...], ...]:
        """All, or those at both ends with the number of the others between them."""
        others = len(self.rows) - 2 * self.ends
        if not self.ends or others < 2:
            return self.rows
        between = (f"... {others:,} more ...", *[None] * (len(self.columns) - 1))
        return (*self.rows[: self.ends], between, *self.rows[-self.ends :])

    def columns_shown(self, brief: bool = False) -> list[Shown]:
        """As people read it: deviations joined to what they are of."""
        shown: list[Shown] = []
        rows = self.rows_shown()
        for number, name in enumerate(self.columns):
            cells = [row[number] for row in rows]
            if name.startswith("±") and shown:
                joined = [f"{a} ± {b}" if b else a for a, b in zip(shown[-1].cells, map(self.shown, cells))]
                shown[-1] = shown[-1]._replace(cells=joined)
            else:
                filled = [cell for cell in cells if cell is not None]
                numeric = bool(filled) and not any(isinstance(cell, str) for cell in filled)
                shown.append(Shown(name, numeric, [self.shown(cell) for cell in cells]))
        return [column for column in shown if not (brief and self.brief) or column.name in self.brief]

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

    @cached_property
    def drawing(self) -> Drawing | None:
        """The figure, drawn when it is first asked for and not again; None where there is nothing to draw."""
        return None if self.draw is None else Drawing(self.draw)

    def figure(self) -> Any:
        """A matplotlib Figure; None where there is nothing to draw, or it cannot be drawn."""
        return None if self.drawing is None else self.drawing.figure

    def svg(self, transparent: bool = False) -> str | None:
        if self.drawing is None:
            return None
        return self.drawing.transparent_svg if transparent else self.drawing.svg

    def png(self) -> bytes | None:
        return None if self.drawing is None else self.drawing.png

    def left_out(self) -> list[str]:
        """What cannot be drawn of the figure, and what to do about it."""
        return [] if self.drawing is None else self.drawing.left_out

    def write(self, folder: str | Path) -> list[Path]:
        """NAME.csv, NAME.json and, if there is a figure, NAME.png and NAME.svg: the same bytes every time."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        svg = self.svg()
        contents = {
            "csv": self.csv().encode(),
            "json": self.json().encode(),
            "png": self.png(),
            "svg": None if svg is None else svg.encode(),
        }
        written = []
        for suffix, content in contents.items():
            if content is not None:
                path = folder / f"{self.name}.{suffix}"
                write_file(path, content)
                written.append(path)
        return written


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


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell

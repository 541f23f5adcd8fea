"""Tables in a Markdown page, each between two marks: <!-- NAME --> and <!-- end NAME -->."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elmokit.atomic import write_file
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit


def places(page: Path, names: Sequence[str]) -> list[str]:
    """Those of the exhibits that have their two marks in a Markdown page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for name in names:
        begin, end = _marks(name)
        _, begun, rest = text.partition(begin)
        if begun and end not in rest:
            raise UserError(f"{page}: after the line {begin.strip()} expected a line {end}, found none")
        if begun:
            found.append(name)
    return found


def check_page(page: Path, names: Sequence[str]) -> None:
    if not places(page, names):
        begin, end = _marks(names[0])
        raise UserError(
            f"{page} has no place for {' or '.join(names)}: expected a line {begin.strip()} and later a line {end}"
        )


def put_into_page(page: Path, exhibits: Sequence[Exhibit]) -> list[str]:
    """Each exhibit between its marks, in place of what was there; the names of those that have none."""
    marked = places(page, [exhibit.name for exhibit in exhibits])
    text = page.read_text(encoding="utf-8")
    for exhibit in exhibits:
        if exhibit.name in marked:
            begin, end = _marks(exhibit.name)
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}{exhibit.markdown()}{end}{rest.partition(end)[2]}"
    write_file(page, text.encode())
    return [exhibit.name for exhibit in exhibits if exhibit.name not in marked]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->\n", f"<!-- end {name} -->"

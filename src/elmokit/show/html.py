"""Exhibits -> one page of HTML that needs nothing else: no script, no network, light and dark, on paper too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from elmokit.show.exhibit import Exhibit
from elmokit.show.figures import HANGUL, INK, PAPER

_KOREAN = re.compile(f"[{HANGUL}]+(?: [{HANGUL}]+)*")
_XLINK = "{http://www.w3.org/1999/xlink}"
_INKS = re.compile(rf"{INK}|#000000|\bblack\b", re.IGNORECASE)
_PIXELS = "data:image/png;base64,"
_REFERENCE = re.compile(r"url\(#([^)]*)\)")

SHORT = 12  # a table of so many rows is not broken between pages
LONG = 40  # one of more scrolls on a screen
WIDE = 8  # one of more columns is set smaller
STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Section:
    """
    text      what is to be seen here; an empty line begins a new paragraph.
    missing   why there are no exhibits, or not all, and what would bring them.
    command   what makes this section again.
    """

    heading: str
    text: str = ""
    exhibits: Sequence[Exhibit] = ()
    missing: str = ""
    command: str = ""


def render_page(title: str, facts: Mapping[str, object], sections: Sequence[Section], *, lang: str = "en") -> str:
    """The page as text. `facts` stand at its head: the model, the date, the data."""
    links = "".join(f'<li><a href="#s{i}">{_text(s.heading)}</a></li>' for i, s in enumerate(sections, start=1))
    known = "".join(f"<dt>{_text(name)}</dt><dd>{_text(str(value))}</dd>" for name, value in facts.items())
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="{escape(lang)}">',
            "<head>",
            '<meta charset="utf-8">',
            # Whatever gets into the page, a browser runs and fetches nothing.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; img-src data:\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            "</head>",
            "<body>",
            f"<header><h1>{_text(title)}</h1>",
            f"<dl>{known}</dl></header>" if known else "</header>",
            f'<nav aria-label="Contents"><strong>Contents</strong><ol>{links}</ol></nav>' if links else "",
            "<main>",
            *(_section(section, f"s{number}") for number, section in enumerate(sections, start=1)),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def inline_svg(svg: str, prefix: str, label: str) -> str:
    """An SVG file -> an element of a page: its ids begin with the prefix, its ink is the page's, no metadata."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style", "script"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            if changed := _attribute(name.replace(_XLINK, ""), value, prefix):
                element.attrib[name.replace(_XLINK, "")] = changed
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _attribute(name: str, value: str, prefix: str) -> str | None:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    if name == "href":
        return value if value.startswith(_PIXELS) else None  # only what is in the figure itself
    value = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
    if name in ("style", "fill", "stroke"):
        value = _INKS.sub("currentColor", value).replace(PAPER, "var(--paper)")
    return value


def _section(section: Section, place: str) -> str:
    parts = [f'<section id="{place}">', f"<h2>{_text(section.heading)}</h2>"]
    parts += [f"<p>{_text(part)}</p>" for part in section.text.split("\n\n") if part.strip()]
    for number, exhibit in enumerate(section.exhibits, start=1):
        parts.append(_exhibit(exhibit, f"{place}-{number}"))
    if section.missing:
        parts.append(_missing(section.missing))
    if section.command:
        parts.append(f"<pre><code>{escape(section.command)}</code></pre>")
    return "\n".join([*parts, "</section>"])


def _exhibit(exhibit: Exhibit, place: str) -> str:
    paper = f' <span class="quiet">({_text(exhibit.paper)} of the paper)</span>' if exhibit.paper else ""
    parts = [f'<article id="{place}">', f"<h3>{_text(exhibit.title)}{paper}</h3>"]
    if exhibit.draw is not None:
        parts.append(_figure(exhibit, f"{place}-figure"))
    parts.append(_table(exhibit))
    if exhibit.notes:
        parts.append('<ul class="notes">' + "".join(f"<li>{_text(note)}</li>" for note in exhibit.notes) + "</ul>")
    return "\n".join([*parts, "</article>"])


def _figure(exhibit: Exhibit, place: str) -> str:
    """One that cannot be drawn leaves a note: the page has others, and every table."""
    svg = exhibit.svg(transparent=True)
    if svg is None:
        return _missing(" ".join(exhibit.left_out()))
    return f"<figure>{inline_svg(svg, place, exhibit.title)}</figure>"


def _missing(note: str) -> str:
    return f'<p class="missing" role="note">{_text(note)}</p>'


def _table(exhibit: Exhibit) -> str:
    columns = exhibit.columns_shown()
    kinds = [' class="number"' if column.numeric else "" for column in columns]
    head = "".join(f'<th scope="col"{kind}>{_text(column.name)}</th>' for kind, column in zip(kinds, columns))
    rows = []
    for row in zip(*(column.cells for column in columns)):
        first, *others = (f"{kind}>{_text(cell)}" for kind, cell in zip(kinds, row))
        cells = "".join(f"<td{other}</td>" for other in others)
        rows.append(f'<tr><th scope="row"{first}</th>{cells}</tr>')
    body = "\n".join(rows)
    sizes = {"short": len(rows) <= SHORT, "long": len(rows) > LONG, "wide": len(columns) > WIDE}
    kind = " ".join(["scroll", *(name for name, holds in sizes.items() if holds)])
    return (
        f'<div class="{kind}"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
    )


def _text(text: str) -> str:
    """Escaped, with Korean marked as such, so that a browser takes a Korean font and voice."""
    return _KOREAN.sub(r'<span lang="ko">\g<0></span>', escape(text))

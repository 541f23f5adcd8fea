"""Exhibits -> one page of HTML that needs nothing else: no script, no network, light and dark, on paper too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from xml.etree import ElementTree

from elmokit.show.exhibit import INK, NO_MATPLOTLIB, PAPER, Exhibit, undrawn

_KOREAN = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]+(?: [\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]+)*")
_XLINK = "{http://www.w3.org/1999/xlink}"
_INKS = re.compile(rf"{INK}|#000000|\bblack\b", re.IGNORECASE)
_PIXELS = "data:image/png;base64,"
_REFERENCE = re.compile(r"url\(#([^)]*)\)")

SHORT = 12  # a table of so many rows is not broken between pages
LONG = 40  # one of more scrolls on a screen
WIDE = 8  # one of more columns is set smaller
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --quiet: #5a6169; --rule: #d5d9de;
  --tint: #f3f5f7; --link: #005a9c; --warn: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e6e8ea; --quiet: #a3abb3;
  --rule: #3a4047; --tint: #20242a; --link: #7cc0ff; --warn: #f0b35c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans KR", "Apple SD Gothic Neo",
  "Malgun Gothic", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .6rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
a { color: var(--link); }
.quiet, .notes, dt { color: var(--quiet); }
.quiet { font-weight: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1.5rem; }
dd { margin: 0; overflow-wrap: anywhere; }
nav { background: var(--tint); border-radius: 6px; padding: .75rem 1rem; }
nav ol { margin: .25rem 0 0; padding-left: 1.5rem; columns: 20rem; }
pre { background: var(--tint); border-radius: 6px; padding: .6rem .8rem; margin: .75rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; font: .85rem/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.scroll { overflow-x: auto; }
.long { max-height: 32rem; overflow-y: auto; }
.long thead th { position: sticky; top: 0; background: var(--paper); }
table { border-collapse: collapse; font-size: .92rem; margin: .5rem 0; }
th, td { padding: .3rem .75rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
tbody th { font-weight: normal; min-width: 6.5rem; }
thead th { border-bottom: 2px solid var(--quiet); vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.wide table { font-size: .8rem; }
.wide :is(th, td) { padding: .3rem .4rem; }
figure { margin: 1rem 0; }
figure svg { display: block; max-width: 100%; height: auto; color: var(--ink); }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure svg text { fill: currentColor; }
.notes { font-size: .9rem; margin: .5rem 0; padding-left: 1.2rem; }
.missing { border-left: 4px solid var(--warn); background: var(--tint); padding: .6rem .9rem; margin: 1rem 0; }
@media print {
  :root { --paper: #fff; --ink: #000; --quiet: #444; --rule: #bbb; --tint: #f4f4f4; --link: #000; --warn: #666; }
  @page { margin: 16mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2, h3, thead, section > p { break-after: avoid; }
  h2, h3, p, figure, tr, pre, .missing, nav, .short { break-inside: avoid; }
  th, td { padding: .12rem .6rem; }
  thead { display: table-header-group; }
  .wide :is(th, td) { padding: .12rem .25rem; }
  .scroll { overflow: visible; max-height: none; }
  a { text-decoration: none; }
}
""".strip()


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
    if section.missing:
        parts.append(_missing(section.missing))
    for number, exhibit in enumerate(section.exhibits, start=1):
        parts.append(_exhibit(exhibit, f"{place}-{number}"))
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
    try:
        svg = exhibit.svg(transparent=True)
        if svg is None:
            return _missing(NO_MATPLOTLIB)
        return f"<figure>{inline_svg(svg, place, exhibit.title)}</figure>"
    except Exception as error:
        return _missing(undrawn(error))


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

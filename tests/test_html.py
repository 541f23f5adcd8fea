"""The page: whole in itself, nothing in it that runs or fetches, every id once, notes where data is missing."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest

from elmokit.show.exhibit import Exhibit
from elmokit.show.figures import INK, PAPER, draw_bars
from elmokit.show.html import Section, inline_svg, render_page

EVIL = '<script>alert("1")</script>'
VOID = {"meta", "link", "br", "hr", "img"}


def chart(name: str = "chart", label: str = EVIL) -> Exhibit:
    def draw(figure):
        draw_bars(
            figure, [label, "배"], {"a": [1, 2], "b": [2, 3]}, xlabel="x", ylabel="y", lines={"c": [1.5, 2.5]}
        )

    return Exhibit(name, f"Title {label}", ("word", label), ((label, 1.0), ("눈 배", None)), (label,), draw)


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.ids, self.references, self.attributes, self.open = [], [], [], [], []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value))
            if name == "id":
                self.ids.append(value)
            if name == "href" and value.startswith("#"):
                self.references.append(value[1:])
            self.references += re.findall(r"url\(#([^)]*)\)", value or "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))


SECTIONS = [
    Section("First 눈", "One.\n\nTwo <i>.", [chart(), chart()], command=f"elmo probe pos 'a & b' {EVIL}"),
    Section("Second", missing=f"no data {EVIL}: put it into DIR", command="elmo report MODEL"),
    Section("Third", exhibits=[chart()], missing="half of it is missing"),
]


@pytest.fixture(scope="module")
def page():
    return render_page(f"Report {EVIL}", {"model": EVIL, "seed": 0}, SECTIONS)


def test_nothing_runs_and_nothing_is_fetched(page):
    assert "://" not in page
    assert "@import" not in page
    reader = Reader(page)
    assert not set(reader.tags) & {"script", "iframe", "img", "object", "embed", "base", "metadata"}
    assert reader.tags.count("style") == 1
    assert not [name for _, name, _ in reader.attributes if name.startswith(("on", "src"))]
    for tag, name, value in reader.attributes:
        if name == "href":
            assert value.startswith("#") or (tag, value) == ("link", "data:,")
    assert "default-src 'none'" in page


def test_what_users_wrote_is_text(page):
    reader = Reader(page)
    places = {tag for tag, text in reader.texts if EVIL in text}
    assert {"title", "h1", "dd", "h3", "th", "li", "text", "p", "code"} <= places
    assert "a & b" in next(text for tag, text in reader.texts if tag == "code")


def test_every_id_is_there_once_and_every_reference_leads_to_one(page):
    reader = Reader(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert {"s1", "s2", "s3", "s1-1", "s1-2", "s3-1"} <= set(reader.ids)
    assert set(reader.references) <= set(reader.ids)
    assert sum(reference.startswith("s1-2-figure-") for reference in reader.references) > 10
    assert reader.references[:3] == ["s1", "s2", "s3"]


def test_missing_data_leaves_a_note_and_the_rest_is_there(page):
    assert page.count("<svg") == page.count("<table") == 3
    assert "no data &lt;script&gt;" in page
    assert "half of it is missing" in page
    assert page.count('class="missing"') == 2


def test_numbers_are_right_aligned_and_languages_marked(page):
    assert '<td class="number">1.00</td>' in page
    assert '<th scope="row"><span lang="ko">눈 배</span></th>' in page
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert '<html lang="ko">' in render_page("t", {}, [], lang="ko")
    assert "<nav" not in render_page("t", {}, [])


def test_light_dark_and_paper(page):
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    figures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "currentColor" in figures
    assert "var(--paper)" in figures
    assert INK not in figures
    assert PAPER not in figures
    assert "#ffffff" not in figures  # nothing white behind it


def test_the_same_page_every_time(page):
    assert page == render_page(f"Report {EVIL}", {"model": EVIL, "seed": 0}, SECTIONS)


def test_an_svg_of_any_kind():
    svg = (
        '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        "<metadata>x</metadata><defs><path id='p'/></defs><script>1</script>"
        "<use xlink:href='#p' style='clip-path: url(#p); fill: #000000'/><use href='http://a/b'/>"
        "<text>id='p' url(#p) #000000</text></svg>"
    )
    found = inline_svg(svg, "f", 'a "label"')
    assert found.startswith('<svg role="img" aria-label="a &quot;label&quot;">')
    assert '<use href="#f-p" style="clip-path: url(#f-p); fill: currentColor" /><use />' in found
    assert "<text>id='p' url(#p) #000000</text>" in found
    assert "http" not in found
    assert "script" not in found


def test_the_pixels_of_a_figure_are_on_the_page():
    """A heat map is an image in its SVG: without its pixels the page has an empty frame."""
    heat = Exhibit("heat", "Heat", ("a",), ((1,),), draw=lambda figure: figure.subplots().imshow([[0, 1]]))
    page = render_page("Report", {}, [Section("One", exhibits=[heat])])
    pixels = [value for tag, name, value in Reader(page).attributes if (tag, name) == ("image", "href")]
    assert len(pixels) == 1
    assert re.fullmatch(r"data:image/png;base64,[\w+/=\s]+", pixels[0])
    assert "href" not in inline_svg("<svg><image href='data:text/html,x'/></svg>", "f", "x")


def test_tables_by_their_size():
    def kinds(rows: int, columns: int) -> set[str]:
        table = Exhibit("x", "X", tuple(map(str, range(columns))), ((1,) * columns,) * rows)
        page = render_page("Report", {}, [Section("One", exhibits=[table])])
        (found,) = (value for tag, name, value in Reader(page).attributes if (tag, name) == ("div", "class"))
        return set(found.split()) - {"scroll"}

    assert kinds(2, 3) == {"short"}
    assert kinds(20, 3) == set()
    assert kinds(100, 11) == {"long", "wide"}


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    page = render_page("t", {}, [Section("s", exhibits=[chart()])])
    assert "<svg" not in page
    assert "the figure is left out: it needs matplotlib" in page
    assert "<table" in page


def test_a_figure_that_fails_leaves_a_note_and_the_others():
    failing = Exhibit("bad", "Bad", ("word",), (("kept",),), draw=lambda figure: figure.no_such_thing())
    made = render_page("Report", {}, [Section("One", exhibits=[failing, chart()])])
    assert "drawing it failed (AttributeError" in made
    assert "kept" in made
    assert Reader(made).tags.count("figure") == 1

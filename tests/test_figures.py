"""Figures: drawn once for every format, the same bytes every time, in any script; a note where there is none."""

from __future__ import annotations

import sys
import warnings
from xml.etree import ElementTree

import pytest
from PIL import Image

from elmokit.show import figures
from elmokit.show.figures import draw_bars, legend_below
from elmokit.show.html import Section, render_page
from helpers.exhibits import bars, make_exhibit


def test_the_same_files_every_time(tmp_path):
    first, second = (make_exhibit().write(tmp_path / "new" / folder) for folder in "ab")
    assert [path.name for path in first] == [f"words-1.{suffix}" for suffix in ("csv", "json", "png", "svg")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_text(encoding="utf-8") == make_exhibit().csv()
    assert sorted(path.name for path in (tmp_path / "new" / "a").iterdir()) == sorted(p.name for p in first)
    with Image.open(first[2]) as image:
        image.load()
        assert image.width > 800
    text = "".join(ElementTree.fromstring(first[3].read_text(encoding="utf-8")).itertext())
    for part in ("단어", "배", "기준 (2.5)", "$x", "_y", "눈 [a]"):
        assert part in text


def test_a_figure_is_drawn_once_for_all_formats_and_the_page(tmp_path):
    drawn = []

    def draw(figure):
        drawn.append(figure)
        bars(figure)

    exhibit = make_exhibit(draw)
    assert drawn == []  # not before it is asked for
    page = render_page("t", {}, [Section("s", exhibits=[exhibit])])
    exhibit.write(tmp_path)
    exhibit.left_out()
    assert exhibit.figure() is drawn[0]
    assert len(drawn) == 1
    assert "<svg" in page


@pytest.mark.parametrize("first", ["png", "svg", "transparent"])
def test_a_format_does_not_depend_on_those_written_before_it(first):
    def formats(order):
        exhibit = make_exhibit()
        made = {
            "png": exhibit.png,
            "svg": exhibit.svg,
            "transparent": lambda: exhibit.svg(transparent=True),
        }
        return {name: made[name]() for name in order}

    others = [name for name in ("png", "svg", "transparent") if name != first]
    assert formats([first, *others]) == formats([*others, first])


def test_a_page_has_nothing_behind_the_figure():
    exhibit = make_exhibit()
    assert "#ffffff" in exhibit.svg()
    assert "#ffffff" not in exhibit.svg(transparent=True)


def test_letters_without_a_font_are_told_of(monkeypatch):
    monkeypatch.setattr(figures, "HANGUL_FONTS", ())
    exhibit = make_exhibit()
    assert "no Korean font" in exhibit.left_out()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exhibit.png() is not None
        assert "눈 [a]" in (exhibit.svg() or "")
    plain = make_exhibit(lambda figure: draw_bars(figure, ["a"], {"b": [1.0]}, xlabel="x", ylabel="y"))
    assert plain.left_out() == []


def test_a_font_with_korean_letters_is_used_where_there_is_one(monkeypatch):
    monkeypatch.setattr(figures, "HANGUL_FONTS", ("No such font", "DejaVu Sans Mono", "DejaVu Serif"))
    exhibit = make_exhibit()
    assert exhibit.left_out() == []
    assert "DejaVu Sans Mono" in (exhibit.svg() or "")


def test_without_matplotlib_the_tables_remain(tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    exhibit = make_exhibit()
    assert (exhibit.figure(), exhibit.svg(), exhibit.png()) == (None, None, None)
    assert [path.suffix for path in exhibit.write(tmp_path)] == [".csv", ".json"]
    assert "pip install 'elmokit[train]'" in exhibit.left_out()[0]
    assert make_exhibit(draw=None).left_out() == []


def test_a_figure_that_fails_leaves_the_table(tmp_path):
    failing = make_exhibit(lambda figure: figure.no_such_thing())
    assert [path.suffix for path in failing.write(tmp_path)] == [".csv", ".json"]
    assert "drawing it failed (AttributeError" in failing.left_out()[0]


def test_a_format_that_fails_leaves_the_table(tmp_path, monkeypatch):
    exhibit = make_exhibit()

    def refuse(*arguments, **options):
        raise MemoryError("too many pixels")

    monkeypatch.setattr(exhibit.figure(), "savefig", refuse)
    assert {path.suffix for path in exhibit.write(tmp_path)} == {".csv", ".json", ".svg"}  # that was there
    assert "drawing it failed (MemoryError: too many pixels)" in exhibit.left_out()[-1]


def test_nothing_drawn_has_no_legend():
    figure = make_exhibit(lambda figure: legend_below(figure, [])).figure()
    assert figure.legends == []

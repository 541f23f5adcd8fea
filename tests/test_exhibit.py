"""Exhibits: tables and files that say the same, and the probes shown as exhibits."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from elmokit.analysis.probes.classification import TextProbeResult
from elmokit.analysis.probes.pairs import PairScore, PairsProbeResult
from elmokit.analysis.probes.senses import Score, SenseProbeResult, SenseTestResult
from elmokit.analysis.probes.tagging import TagProbeResult
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit, pattern_note, percent, stem
from helpers.exhibits import make_exhibit

SHOWN = make_exhibit()


def tags(by_layer, column="upos", **changes):
    result = TagProbeResult(by_layer, 0.94, 0.8, 0.85, column, 17, 10, 200, 5, 100, 0.1, 0.05, 1.0, 7)
    return replace(result, **changes)


def senses(test, *f1, first=0.5):
    layers = tuple(Score(f, f, f) for f in f1)
    found = None if first is None else Score(first, first, first)
    return SenseTestResult(layers, layers[-1], Score(0.4, 0.4, 0.4), found, test, 455, 3, 20, 90, 33, 7)


def test_csv_and_json_have_every_cell():
    header, *rows = csv.reader(io.StringIO(SHOWN.csv()))
    assert header == ["word", "score (%)", "count"]
    assert rows == [['눈, "quoted"\nline', "66.66666", "1234"], ["[red]plain[/red]", "", ""], ["-", "", "0"]]
    facts = json.loads(SHOWN.json())
    assert facts["rows"] == [
        ['눈, "quoted"\nline', 66.66666, 1234],
        ["[red]plain[/red]", None, None],
        ["-", None, 0],
    ]
    assert (facts["name"], facts["paper"], facts["notes"]) == ("words-1", "Table 9", ["seed 0", "배"])


def test_the_terminal_has_plain_text_and_two_decimals():
    console = Console(file=io.StringIO(), width=100)
    console.print(SHOWN.table())
    text = console.file.getvalue()
    for part in ("Words <b> [bold] (Table 9 of the paper)", "[red]plain[/red]", "66.67", "1,234"):
        assert part in text
    assert [column.numeric for column in SHOWN.columns_shown()] == [False, True, True]


def test_people_see_a_deviation_beside_what_it_is_of_and_a_terminal_only_what_it_has_room_for():
    exhibit = Exhibit(
        name="seeds",
        title="Seeds",
        columns=("task", "f1", "± f1", "minutes"),
        rows=(("ner", 50.0, 0.25, 3), ("pos", 90.0, None, 2)),
        brief=("task", "f1"),
    )
    assert "| ner | 50.00 ± 0.25 | 3 |\n| pos | 90.00 | 2 |" in exhibit.markdown()
    console = Console(file=io.StringIO(), width=100)
    console.print(exhibit.table())
    assert "50.00 ± 0.25" in console.file.getvalue()
    assert "minutes" not in console.file.getvalue()
    assert exhibit.csv().splitlines()[:2] == ["task,f1,± f1,minutes", "ner,50.0,0.25,3"]


def test_figures_have_labels_and_a_legend():
    figure = SenseProbeResult((senses("a", 0.5, 0.6, 0.7), senses("b", 0.4, 0.5, 0.6))).exhibit().figure()
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("test set", "F1 (%)")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "layer 0 (context-free)"
    assert labels[-2:] == ["most frequent sense in training", "first sense of WordNet"]
    assert [round(bar.get_height()) for bar in axes.containers[2]] == [70, 60]
    assert len({(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in axes.containers}) == 4


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", ".a"])
def test_names_that_are_no_file(name):
    with pytest.raises(ValueError, match="expected letters") as raised:
        replace(SHOWN, name=name)
    assert not isinstance(raised.value, UserError)  # a bug of who makes it


def test_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="expected 3 cells per row, found 1"):
        replace(SHOWN, rows=(("a",),))


def test_small_things():
    assert stem("../눈 and/or") == "눈-and-or"
    assert stem("/") == "x"
    assert percent(0.123456789) == 12.3457
    assert pattern_note("a above b", False, "1, 2") == "The paper's pattern (a above b) does not appear: 1, 2."


@pytest.mark.parametrize(
    ("by_layer", "word"),
    [
        ((0.90, 0.95, 0.94), "appears"),
        ((0.90, 0.95, 0.95), "appears"),
        ((0.90, 0.94, 0.95), "does not appear"),
        ((0.95, 0.96, 0.95), "does not appear"),
    ],
)
def test_the_pattern_of_table_6(by_layer, word):
    exhibit = tags(by_layer).exhibit()
    assert (exhibit.name, exhibit.paper) == ("pos", "Table 6")
    assert f"both above layer 0) {word}: {by_layer[0]:.2%}" in " ".join(exhibit.notes)
    assert exhibit.rows[1] == ("layer 1", percent(by_layer[1]))
    assert exhibit.rows[-2:] == (("static word vectors", 85.0), ("each word's most frequent tag", 80.0))
    assert "seed 7" in exhibit.notes[1]


def test_tags_of_another_kind_have_no_pattern():
    exhibit = tags((0.9, 0.95), "3", vectors=None, without_vector=None).exhibit()
    assert (exhibit.name, exhibit.paper, len(exhibit.rows), len(exhibit.notes)) == ("tags-3", "", 4, 2)
    assert "has 2" in tags((0.9, 0.95)).exhibit().notes[-1]


@pytest.mark.parametrize(
    ("f1", "first", "pattern", "beside"),
    [
        ((0.5, 0.6, 0.7), 0.65, "appears", "is above the first sense of WordNet (65.00%)"),
        ((0.5, 0.7, 0.6), 0.65, "does not appear", "is not above the first sense of WordNet"),
        ((0.5, 0.5, 0.6), None, "does not appear", "is above the most frequent sense in training (40.00%)"),
    ],
)
def test_the_pattern_of_table_5(f1, first, pattern, beside):
    exhibit = SenseProbeResult((senses("t", *f1, first=first),)).exhibit()
    notes = " ".join(exhibit.notes)
    assert f"layer 1 above layer 0) {pattern}" in notes
    assert beside in notes
    assert len(exhibit.rows) == (5 if first is None else 6)
    assert (exhibit.paper, exhibit.columns[1]) == ("Table 5", "t: F1 (%)")


def test_texts_and_pairs():
    text = TextProbeResult((0.7, 0.8), 0.9, 0.5, 2, 10, 20, 1.0, 3).exhibit()
    assert [row[1] for row in text.rows] == [70, 80, 90, 50]
    words = (PairScore("배", (0.5, 1.0), 0.75, 6, (0.0, 0.2), 0.1, ("ship", "pear")),)
    pairs = PairsProbeResult((0.5, 1.0), 0.75, (0.5, 1.0), 1.0, 6, words).exhibit()
    assert pairs.rows[-1] == ("배", "ship / pear", 50, 100, 75)  # after the totals
    assert pairs.rows[1] == ("words told apart", "", 50, 100, 100)
    assert "above it at layer 1." in pairs.notes[2]
    assert "at no layer" in PairsProbeResult((0.5, 0.4), 0.4, (0.5, 0.0), 0.0, 6, words).exhibit().notes[2]
    assert text.svg()
    assert pairs.svg()


def test_a_probe_saves_its_exhibit(elmo_command, model_folder, tmp_path):
    (tmp_path / "a.conll").write_text("a\tX\nb\tY\n\nb\tY\na\tX\n", encoding="utf-8")
    arguments = ("probe", "tags", "a.conll", "a.conll", "-m", model_folder, "--save", "out")
    code, out, err = elmo_command(*arguments, "--json")
    assert code == 0, err
    facts = json.loads(out)
    for suffix in ("csv", "json", "png", "svg"):
        assert f"wrote out/tags-2.{suffix}" in err
    saved = json.loads((tmp_path / "out" / "tags-2.json").read_text(encoding="utf-8"))
    assert saved["rows"][2] == ["layer 2", percent(facts["by_layer"][2])]
    _, out, _ = elmo_command(*arguments)
    assert f"{100 * facts['by_layer'][2]:.2f}" in out
    assert "seed 0" in out


def test_of_a_long_table_people_see_both_ends_and_files_have_all():
    rows = tuple((f"word {i}", float(i)) for i in range(10))
    exhibit = Exhibit("words", "Words", ("word", "share (%)"), rows, ends=2)
    shown = exhibit.columns_shown()
    assert shown[0].cells == ["word 0", "word 1", "... 6 more ...", "word 8", "word 9"]
    assert shown[1].cells == ["0.00", "1.00", "", "8.00", "9.00"]
    assert exhibit.csv().count("\n") == 11
    assert len(exhibit.facts()["rows"]) == 10
    assert dataclasses.replace(exhibit, rows=rows[:5]).rows_shown() == rows[:5]  # none is hidden for its own name

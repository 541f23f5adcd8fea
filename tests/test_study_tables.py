"""A study's runs as tables and figures: by hand, with little done, with scores of nought."""

from __future__ import annotations

import statistics

import pytest

from elmokit.study.data import open_data
from elmokit.study.experiments import EXPERIMENTS
from elmokit.study.runs import Measured
from elmokit.study.samples import epochs_exhibit, samples_exhibit
from elmokit.study.tables import (
    error_reduction,
    placement_exhibit,
    tasks_exhibit,
    weighting_exhibit,
    weights_exhibit,
)
from elmokit.study.variants import BASELINE, ELMO, PLACEMENT, WEIGHTING, sample_variants
from helpers.studies import make_sweep, pretend, write_data, write_result


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


def measured(task, variant, score, seed=0, by_epoch=None):
    return Measured(task, variant, seed, "f1", score, 60.0, 40, by_epoch or (score,), {})


def legend(exhibit):
    return [text.get_text() for text in exhibit.figure().legends[0].get_texts()]


def test_table_1_by_hand(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    exhibit = tasks_exhibit(sweep.results(), open_data(data))
    row = dict(zip(exhibit.columns, exhibit.rows[0]))
    assert row["task"] == "our pos"
    assert row["baseline"] == pytest.approx(81)
    assert row["+ ELMo"] == pytest.approx(86)
    assert row["± baseline"] == pytest.approx(statistics.stdev([80, 81, 82]))
    assert row["errors gone, %"] == pytest.approx(100 * 5 / 19)
    assert row["paper's, %"] == 21
    assert "appears: ahead in pos, ner" in exhibit.notes[-1]
    assert exhibit.svg().startswith("<?xml")
    assert error_reduction(100, 100) == 0


def test_a_gain_within_the_deviation_does_not_count(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch, {"baseline": [70.0, 80.0, 90.0], "elmo": [85.0, 86.0, 87.0]})
    sweep.run(1)
    assert "does not appear" in tasks_exhibit(sweep.results(), open_data(data)).notes[-1]


def test_placement_and_weights(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, PLACEMENT)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    exhibit = placement_exhibit(sweep.results(), open_data(data))
    assert "pos: ELMo at the input" in exhibit.notes[0]
    assert len(set(exhibit.columns)) == len(exhibit.columns)
    weights = weights_exhibit(sweep.results())
    assert {row[1] for row in weights.rows} >= {"input", "input (of both)", "output (of both)"}
    assert weights.rows[0][2:6] == pytest.approx((0.2, 0.5, 0.3, 1.5))
    assert exhibit.svg()
    assert weights.svg()


def test_what_is_compared_has_the_same_seeds(tmp_path, data, monkeypatch):
    """ELMo has a lucky second seed; the other places have the first alone."""
    sweep = make_sweep(tmp_path, data, (BASELINE, ELMO), ("pos",), seeds=2)
    pretend(sweep, monkeypatch, {"baseline": [80.0, 82.0], "elmo": [84.0, 90.0]})
    sweep.run(1)
    sweep = make_sweep(tmp_path, data, PLACEMENT, ("pos",), seeds=2)
    for name, score in (("both", 85.0), ("output", 83.0)):
        write_result(tmp_path / "runs" / "pos" / name / "seed-0", score)
    exhibit = placement_exhibit(sweep.results(), open_data(data))
    row = dict(zip(exhibit.columns, exhibit.rows[0]))
    assert (row["baseline"], row["ELMo at the input"]) == (80, 84)
    assert row["seeds"] == 1
    assert "pos: ELMo at both" in exhibit.notes[0]


def test_samples(tmp_path, data, monkeypatch):
    shares = [0.1, 1.0]
    sweep = make_sweep(tmp_path, data, sample_variants(shares), seeds=1)
    pretend(sweep, monkeypatch, {"baseline-0.1": [50.0], "elmo-0.1": [49.0], "baseline": [80.0], "elmo": [81.0]})
    sweep.run(1)
    exhibit = samples_exhibit(sweep.results(), open_data(data), shares)
    assert [row[1] for row in exhibit.rows] == [10, 100, 10, 100]
    assert "does not appear: below at pos at 10.0%, ner at 10.0%" in exhibit.notes[-1]
    assert exhibit.svg()
    assert legend(exhibit) == ["baseline", "+ ELMo"]


def test_a_gain_within_the_deviation_is_said(tmp_path, data):
    scores = {"baseline-0.01": (4.0, 9.0), "elmo-0.01": (8.0, 7.0), "baseline": (50.0, 51.0), "elmo": (60.0, 61.0)}
    results = [
        measured("pos", name, score, seed) for name, both in scores.items() for seed, score in enumerate(both)
    ]
    exhibit = samples_exhibit(results, open_data(data), [0.01, 1.0])
    assert "appears: 2 sizes" in exhibit.notes[-2]
    assert exhibit.notes[-1] == "Above by less than the deviation: pos at 1.0%."


def test_only_small_shares_are_done(tmp_path, data):
    results = [measured("pos", f"{kind}-0.01", score) for kind, score in (("baseline", 1.0), ("elmo", 2.0))]
    by_size, by_epoch = EXPERIMENTS["samples"].exhibits(results, open_data(data), [0.01, 1.0])
    assert by_size.svg()
    assert legend(by_size) == ["baseline", "+ ELMo"]
    assert by_epoch.rows == ()


def test_the_score_by_epoch_is_a_table_too(tmp_path, data):
    results = [
        measured("pos", "baseline", 9.0, seed=1, by_epoch=(9.0,)),
        measured("pos", "elmo", 9.0, seed=1, by_epoch=(9.0,)),
        measured("pos", "baseline", 5.0, by_epoch=(3.0, 4.0, 5.0)),
        measured("pos", "elmo", 7.0, by_epoch=(4.0, 7.0)),
    ]
    exhibit = epochs_exhibit(results, open_data(data))
    assert exhibit.rows == (("our pos", 1, 3.0, 4.0), ("our pos", 2, 4.0, 7.0), ("our pos", 3, 5.0, None))
    assert "appears: pos: epoch 2, the baseline's is 3" in exhibit.notes[-1]
    assert exhibit.svg()
    never = epochs_exhibit([measured("pos", "baseline", 5.0), measured("pos", "elmo", 5.0)], open_data(data))
    assert "does not appear: pos: never" in never.notes[-1]


def test_scores_of_nought_are_drawn(tmp_path, data):
    results = [measured("pos", variant.name, 0.0) for variant in WEIGHTING]
    exhibit = weighting_exhibit(results, open_data(data))
    assert len(exhibit.figure().axes[0].get_lines()) == len(WEIGHTING)
    assert exhibit.svg()


def test_the_legend_has_what_any_panel_has_once(tmp_path, data):
    """The first task lacks a variant that the second has."""
    results = [measured("pos", name, 1.0) for name in ("baseline", "elmo")]
    results += [measured("ner", name, 2.0) for name in ("baseline", "last", "elmo")]
    exhibit = weighting_exhibit(results, open_data(data))
    assert legend(exhibit) == ["baseline", "the last layer only", "all layers, lambda 0.001"]


def test_many_tasks_have_room(tmp_path, data):
    names = ("pos", "ner", "srl", "squad", "coref", "sentiment", "entailment")
    results = [measured(task, variant.name, 50.0) for task in names for variant in WEIGHTING]
    figure = weighting_exhibit(results, open_data(data)).figure()
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width
    assert len(figure.axes) == 7
    assert len({axes.get_position().y0 for axes in figure.axes}) == 3


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_too_little_done_is_an_empty_table(tmp_path, data, name):
    for exhibit in EXPERIMENTS[name].exhibits([], open_data(data), [1.0]):
        assert exhibit.rows == ()
        assert exhibit.svg() is None


def test_no_two_exhibits_of_all_experiments_share_a_name(tmp_path, data):
    """Else one's table would take the other's place, in a page and among saved files."""
    found = open_data(data)
    names = [exhibit.name for e in EXPERIMENTS.values() for exhibit in e.exhibits([], found, [0.1, 1.0])]
    assert len(names) == len(set(names)) >= 6

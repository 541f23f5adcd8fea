"""Formats of weights: which one weights="auto" takes, the commands' --weights, and what is measured of them."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from elmokit import Elmo, UserError, open_vectors, train_task
from elmokit.analysis.contexts.marked import compare_words
from elmokit.cli.shared.options import WeightsName
from elmokit.model.kernels import precision, use
from elmokit.model.kernels.library import available_variants, units
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.precision import DIFFERENCES, Difference, by_speed, faithful, fastest
from elmokit.tasks.model import TaskModel

POS = Path(__file__).parent / "tasks" / "pos.conllu"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CLOSE, WORSE, BETTER = (Difference("p", *ends, 2000) for ends in ((-0.05, 0.1), (-0.11, 0.0), (0.0, 0.2)))
COARSE = Difference("q", -0.2, 0.2, 500)  # one answer is 0.2 points
BOTH = ("int8", "bfloat16")


@pytest.fixture
def measured(monkeypatch):
    def set_to(**differences):
        monkeypatch.setattr(precision, "DIFFERENCES", {name: tuple(rows) for name, rows in differences.items()})

    return set_to


@pytest.mark.parametrize(
    ("variant", "units", "expected"),
    [
        ("avx512", BOTH, ("int8", "bfloat16", "float32")),
        ("avx512", ("int8",), ("int8", "float32")),
        ("avx512", ("bfloat16",), ("bfloat16", "float32")),
        ("avx512", (), ("float32",)),
        ("avx2", (), ("int8", "float32")),
        ("portable", (), ("float32",)),
        ("torch", (), ("float32",)),
        ("definition", (), ("float32",)),
    ],
)
def test_the_order_of_speed_is_that_of_the_processors_units(variant, units, expected):
    assert by_speed(variant, units) == expected


def test_auto_takes_the_fastest_format_within_a_tenth_of_a_point(measured):
    measured(int8=[CLOSE], bfloat16=[CLOSE])
    assert fastest("avx512", BOTH) == "int8"
    measured(int8=[CLOSE, WORSE], bfloat16=[CLOSE])
    assert fastest("avx512", BOTH) == "bfloat16"
    measured(int8=[BETTER], bfloat16=[WORSE])  # a gain is a difference, too
    assert fastest("avx512", BOTH) == "float32"


def test_auto_takes_no_format_that_was_not_measured(measured):
    measured(int8=[], bfloat16=[CLOSE])
    assert fastest("avx512", BOTH) == "bfloat16"
    measured()
    assert fastest("avx512", BOTH) == "float32"


def test_a_probe_whose_one_answer_is_more_than_a_tenth_of_a_point_does_not_decide(measured):
    measured(int8=[COARSE, WORSE], bfloat16=[COARSE, CLOSE])
    assert fastest("avx512", BOTH) == "bfloat16"
    measured(bfloat16=[COARSE])  # nothing that could decide was measured
    assert fastest("avx512", BOTH) == "float32"


def test_auto_as_measured_is_bfloat16_where_there_is_a_unit_for_it_and_never_int8():
    assert fastest("avx512", BOTH) == fastest("avx512", ("bfloat16",)) == "bfloat16"
    assert fastest("avx512", ("int8",)) == "float32"
    assert [d.probe for d in DIFFERENCES["int8"] if d.decides and not d.within] == ["ko-small pos"]


def test_auto_is_float32_where_no_unit_is_faster(measured):
    measured(int8=[CLOSE], bfloat16=[CLOSE])
    assert fastest("portable", ()) == fastest("torch", ()) == fastest("avx512", ()) == "float32"


def test_every_format_but_float32_was_measured_with_every_probe():
    assert set(DIFFERENCES) == set(WEIGHT_FORMATS) - {"float32"}
    probes = [[difference.probe for difference in rows] for rows in DIFFERENCES.values()]
    assert all(names == probes[0] for names in probes)
    assert faithful("float32")
    assert len(probes[0]) == len(set(probes[0]))


def test_the_commands_offer_the_formats_that_there_are():
    assert set(get_args(WeightsName)) == {*WEIGHT_FORMATS, "auto"}


def test_auto_is_what_the_processor_is_fastest_with_and_says_which():
    for name in (*available_variants(), "torch"):
        with use(name):
            elmo = Elmo.from_recipe("tiny", weights="auto")
            assert elmo.weights == fastest(name, units())
            assert elmo.weights in repr(elmo)


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_similar_and_embed_read_with_the_weights_that_are_asked_for(elmo_command, model_folder, weights):
    Path("t.txt").write_text("a bank\n")
    sentences = ["the [bank] of a river", "a [bank] with money"]
    code, out, _ = elmo_command("similar", *sentences, "-m", model_folder, "--weights", weights, "--json")
    assert code == 0
    expected = compare_words(Elmo.from_pretrained(model_folder, weights=weights), sentences).to_list()
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert elmo_command("embed", "t.txt", "-o", f"{weights}.npz", "-m", model_folder, "--weights", weights)[0] == 0
    (vectors,) = Elmo.from_pretrained(model_folder, weights=weights).embed(["a bank"])
    assert np.array_equal(open_vectors(f"{weights}.npz")[0].vectors, vectors)


def test_a_probe_is_learned_and_measured_with_the_weights_that_are_asked_for(
    elmo_command, model_folder, monkeypatch
):
    opened = []
    real = Elmo.from_pretrained.__func__

    def recorded(cls, *arguments, **options):
        opened.append(real(cls, *arguments, **options))
        return opened[-1]

    monkeypatch.setattr(Elmo, "from_pretrained", classmethod(recorded))
    Path("a.tsv").write_text("a\tX\nb\tY\n\na\tX\n")
    code, out, _ = elmo_command(
        "probe", "tags", "a.tsv", "a.tsv", "-m", model_folder, "--weights", "int8", "--json"
    )
    assert code == 0
    assert [elmo.weights for elmo in opened] == ["int8"]
    assert json.loads(out)["weights"] == "int8"


def test_a_task_is_used_with_the_weights_that_it_was_trained_with(tmp_path, model_folder):
    def train(weights):
        return train_task(
            "pos",
            train=POS,
            dev=POS,
            out=tmp_path / "run",
            elmo=model_folder,
            weights=weights,
            settings=["cells=8", "train.epochs=1"],
            cache=tmp_path / "cache",
        )

    assert train("int8").elmo.weights == "int8"
    assert TaskModel.load(tmp_path / "run").elmo.weights == "int8"
    assert TaskModel.load(tmp_path / "run", weights="float32").elmo.weights == "float32"
    with pytest.raises(UserError, match="other settings"):
        train("float32")
    path = tmp_path / "run" / "best" / "task.json"
    table = json.loads(path.read_text())
    del table["elmo_weights"]
    path.write_text(json.dumps(table))  # as folders were before
    assert TaskModel.load(tmp_path / "run").elmo.weights == "float32"
    path.write_text(json.dumps(table | {"elmo_weights": ["int4"]}))
    with pytest.raises(UserError, match="elmo_weights: expected float32"):
        TaskModel.load(tmp_path / "run")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("precision")


@pytest.fixture
def probes(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("precision_probes")


def test_the_interval_of_a_difference_is_paired(probes):
    """Whatever the sentences drawn, a constant gain is that gain; noise of n flips spreads as its root."""
    exact = np.stack([np.arange(100) % 7, np.full(100, 10)], axis=1).astype(float)
    better = exact + np.array([1, 0])
    assert probes.interval(exact, better, 0) == pytest.approx((10, 10))
    flips = np.zeros((100, 2))
    flips[:16, 0] = np.tile([1, -1], 8)
    low, high = probes.interval(exact, exact + flips, 0)
    assert low == pytest.approx(-1.96 * 16**0.5 / 10, rel=0.15)
    assert high == pytest.approx(1.96 * 16**0.5 / 10, rel=0.15)


def test_outcomes_are_scored_as_f1_and_changed_labels_are_counted(probes):
    exact = probes.Outcome(np.array([[1.0, 2.0], [2.0, 2.0]]), ["a", "b", "c", "d"])
    other = probes.Outcome(np.array([[2.0, 2.0], [2.0, 2.0]]), ["a", "x", "c", "d"])
    row = other.beside(exact, 0)
    assert (exact.score, row["points"], row["changed"], row["labels"]) == (75.0, 25.0, 1, 4)


def test_vector_errors_are_those_of_the_worst_token(benchmark, elmo):
    other = Elmo(elmo.checkpoint, weights="int8")
    exact = Elmo(copy.deepcopy(elmo.checkpoint))
    sentences = [["a", "b"], ["bank"]]
    ours, theirs = (np.concatenate(e.embed(sentences), axis=1).astype(float) for e in (other, exact))
    rows = benchmark.vector_errors(exact, other, sentences)
    assert [row["largest"] for row in rows] == pytest.approx(np.abs(ours - theirs).max(axis=(1, 2)))
    cosines = (ours * theirs).sum(2) / np.linalg.norm(ours, axis=2) / np.linalg.norm(theirs, axis=2)
    assert [row["cosine"] for row in rows] == pytest.approx(cosines.min(axis=1), abs=1e-12)
    assert rows[1]["largest"] > 0

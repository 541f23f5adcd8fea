"""elmo bench runs in seconds on a small model, says what it found, and leaves what is known when stopped."""

from __future__ import annotations

import json
import os
import platform

import pytest
import torch

from elmokit.bench import lstms, machine, measurement, rates
from elmokit.bench.exhibits import exhibits
from elmokit.bench.machine import Company, Machine
from elmokit.bench.measurement import Measurement, checked_formats
from elmokit.errors import UserError
from elmokit.model.kernels import use, variant
from elmokit.model.kernels.library import arithmetic
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from helpers.models import random_bilm, small_config

ZEN4 = """\
processor : 0
model name : AMD EPYC 9R14
physical id : 0
core id : 0
flags : fpu avx2 avx512f avx512_vnni avx512_bf16
processor : 1
model name : AMD EPYC 9R14
physical id : 0
core id : 0
flags : fpu avx2 avx512f avx512_vnni avx512_bf16
processor : 2
model name : AMD EPYC 9R14
physical id : 0
core id : 1
flags : fpu avx2 avx512f avx512_vnni avx512_bf16
"""
GRAVITON = "processor : 0\nFeatures : fp asimd bf16 i8mm\n"


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Nothing here is about how long anything takes."""
    monkeypatch.setattr(measurement, "QUICK", 0.05)
    monkeypatch.setattr(measurement, "MOST_ROUNDS", 2)
    monkeypatch.setattr(rates, "SIDES", (8,))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("He sat on the bank .\n\nShe works at a bank .\nStop\n", encoding="utf-8")
    return path


def test_bench_prints_the_machine_and_every_format_and_writes_json_and_a_picture(
    elmo_command, model_folder, text, tmp_path
):
    code, out, _ = elmo_command("bench", "--quick", "-m", model_folder, "--text", text, "-o", "speed")
    assert code == 0
    for heading in ("This machine", "many sentences at once", "one sentence at a time", "The LSTMs alone"):
        assert heading in out
    facts = json.loads((tmp_path / "speed" / "bench.json").read_text(encoding="utf-8"))
    assert facts["finished"]
    assert facts["command"].startswith("elmo bench --quick -m")
    assert facts["text"]["source"] == str(text)
    assert 1 <= facts["text"]["sentences"] <= 3
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["machine"]["threads"] == torch.get_num_threads()
    assert [row["weights"] for row in facts["weights"]] == list(WEIGHT_FORMATS)
    assert all(value is not None for row in facts["weights"] for value in row.values())
    names = [f"elmokit, {weights}" for weights in WEIGHT_FORMATS] + ["nn.LSTM"]
    assert [row["LSTMs"] for row in facts["lstms"]["rows"]] == names
    assert sorted(path.name for path in (tmp_path / "speed").iterdir()) == ["bench.json", "bench.png"]
    assert (tmp_path / "speed" / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_bench_runs_without_the_native_library(elmo_command, model_folder):
    with use("torch"):
        code, out, _ = elmo_command("bench", "--quick", "-m", model_folder, "--weights", "int8")
    assert code == 0
    assert "torch: no native library" in out
    assert "torch knows no other format" in out


@pytest.mark.parametrize("stage", ["products", "getting ready", "many sentences", "one sentence", "LSTMs alone"])
def test_ctrl_c_leaves_a_table_of_what_is_known(elmo_command, model_folder, text, tmp_path, monkeypatch, stage):
    measure = Measurement.measure

    def stopped(self, on_progress):
        def stop(now):
            on_progress(now)
            if now.stage == stage and now.done:
                raise KeyboardInterrupt

        measure(self, stop)

    monkeypatch.setattr(Measurement, "measure", stopped)
    code, out, err = elmo_command("bench", "--quick", "-m", model_folder, "--text", text, "-o", "speed")
    assert code == 130
    assert "This machine" in out
    assert "stopped" in err
    facts = json.loads((tmp_path / "speed" / "bench.json").read_text(encoding="utf-8"))
    assert not facts["finished"]
    assert facts["limits"]["float32"] > 0
    assert (facts["weights"][0]["cosine"] is None) == (stage == "products")
    assert bool(facts["lstms"]["rows"]) == (stage == "LSTMs alone")


def test_the_json_is_written_whole_or_not_at_all(elmo_command, model_folder, text, tmp_path, monkeypatch):
    folder = tmp_path / "speed"
    folder.mkdir()
    (folder / "bench.json").write_text("before")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    code, _, err = elmo_command("bench", "--quick", "-m", model_folder, "--text", text, "-o", folder)
    assert code == 1
    assert "No space left" in err
    assert [path.name for path in folder.iterdir()] == ["bench.json"]
    assert (folder / "bench.json").read_text() == "before"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--weights", "float8"], "expected all, or some of float32"),
        (["--weights", ""], "expected all, or some of float32"),
        (["--text", "missing.txt"], "missing.txt"),
        (["--text", "empty.txt"], "expected sentences, one a line, found none"),
        (["--text", "ko-small"], "give the model by -m ko-small"),
        (["-o", "empty.txt"], "expected a folder to write to, found a file"),
    ],
)
def test_bad_options_of_bench_are_refused_with_what_was_expected(
    elmo_command, model_folder, tmp_path, options, expected
):
    (tmp_path / "empty.txt").write_text("\n")
    code, _, err = elmo_command("bench", "--quick", "-m", model_folder, *options)
    assert code == 1
    assert expected in err
    assert "bug" not in err


def test_float32_is_always_measured_and_formats_keep_their_order():
    assert checked_formats(["int8", "float16"]) == ["float32", "float16", "int8"]
    assert checked_formats(list(WEIGHT_FORMATS)) == list(WEIGHT_FORMATS)
    assert checked_formats(["float32"]) == ["float32"]
    with pytest.raises(UserError, match="float8"):
        checked_formats(["float8"])


def test_a_new_format_of_weights_says_what_it_is_computed_with():
    for weights in WEIGHT_FORMATS:
        assert arithmetic(weights).precision in rates.TYPES
    with use("torch"):
        assert {arithmetic(weights).precision for weights in WEIGHT_FORMATS} == {"float32"}


@pytest.mark.skipif(variant() == "torch", reason="elmokit was installed without a compiler")
def test_formats_are_compared_with_float32(model_folder):
    found = Measurement(str(model_folder), seconds=0.05)
    found.measure()
    assert found.apart["float32"].difference == 0
    assert 0 < found.apart["int8"].difference < 0.5
    assert 0.9 < found.apart["int8"].cosine < 1


@pytest.mark.skipif(variant() == "torch", reason="elmokit was installed without a compiler")
def test_contenders_of_one_model_keep_their_own_format():
    bilm = random_bilm(small_config())
    runs = {weights: lstms.ours(bilm, weights) for weights in WEIGHT_FORMATS}
    batch = lstms.Batch.make(bilm, [7, 3])
    with torch.no_grad():
        expected = lstms.definition(bilm)(batch)
        apart = {weights: lstms.Apart.of(run(batch), expected).difference for weights, run in runs.items()}
    assert apart["float32"] < 1e-5
    assert all(apart[weights] > 1e-4 for weights in WEIGHT_FORMATS if weights != "float32")
    assert bilm.weights == "float32"


def test_a_busy_machine_is_said_to_be_busy(model_folder):
    found = Measurement(str(model_folder), seconds=0.05)
    for others, notes in ((None, 0), (0.05, 0), (0.4, 1)):
        found.others = others
        assert len(exhibits(found)[0].notes) == notes


def test_processors_are_told_by_what_linux_says_of_them(tmp_path):
    assert machine.processor_name(ZEN4) == "AMD EPYC 9R14"
    assert machine.physical_cores(ZEN4) == 2
    assert machine.instruction_sets(ZEN4) == ("AVX2", "AVX-512", "VNNI", "BF16")
    assert machine.instruction_sets(GRAVITON) == ("BF16", "NEON", "I8MM")
    assert machine.processor_name(GRAVITON) == (platform.processor() or platform.machine())
    for index, facts in enumerate([("1", "Data", "32K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), facts):
            (folder / name).write_text(value + "\n")
    assert machine.caches(tmp_path) == {"L1": "32K", "L2": "1024K"}


def test_the_machine_is_described_where_the_system_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(machine, "STAT", tmp_path / "none")
    here = Machine.here()
    assert here.processor
    assert here.cores == os.cpu_count()
    assert Company().share() is None


def test_products_that_would_take_long_are_not_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(rates, "SIDES", (8, 16, 32))

    def slow(work):  # a thousand operations a second
        tried.append(len(work.__defaults__[0]))
        return 2 * tried[-1] ** 3 / 1000

    monkeypatch.setattr(rates, "seconds", slow)
    assert rates.largest_rate(longest=10.0) == pytest.approx(1000)
    assert set(tried) == {8, 16}  # one second, eight seconds; the next would take 65


def test_products_of_bfloat16_are_measured_where_the_processor_has_them():
    assert "bfloat16" not in rates.measurable(("AVX2",))
    for sets in (("BF16",), ("AMX",)):
        assert "bfloat16" in rates.measurable(sets)


def test_contenders_take_turns_and_their_best_round_counts():
    turns = []
    paces = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}
    works = {name: lambda name=name: turns.append(name) or next(paces[name]) for name in paces}
    assert rates.best_seconds(works, 3) == {"a": 1.0, "b": 4.0}
    assert turns == ["a", "b"] * 3


def test_the_first_round_is_made_however_little_time_is_allowed():
    turns = []
    rates.best_seconds({"a": lambda: turns.append("a") or 1.0}, 5, allowed=-1)
    assert turns == ["a"]

"""Sweeps over tasks: what runs, what is skipped, what is refused. Few runs are real: most are written down."""

from __future__ import annotations

import json
import subprocess
import threading

import pytest

from elmokit.study.data import open_data
from elmokit.study.experiments import read_shares
from elmokit.study.sweep import Sweep
from elmokit.study.variants import ELMO, PLACEMENT, WEIGHTING, sample_variants
from helpers.studies import TASKS, make_sweep, pretend, write_data, write_result


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


def test_everything_runs_once_and_is_not_run_again(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    ran = pretend(sweep, monkeypatch)
    told = []
    assert sweep.run(2, lambda trial, result: told.append((trial.task, result.score))) == []
    assert len(ran) == len(told) == len(sweep.results()) == 2 * 2 * 3
    again = make_sweep(tmp_path, data, variants=PLACEMENT)
    ran = pretend(again, monkeypatch)
    again.run(1)
    assert {trial.variant.name for trial in ran} == {"both", "output"}


def test_seeds_come_one_after_the_other(tmp_path, data):
    seeds = [trial.seed for trial in make_sweep(tmp_path, data).trials]
    assert seeds == sorted(seeds)


def test_a_failed_run_is_told_and_the_others_go_on(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, seeds=1)
    good = pretend(sweep, monkeypatch)
    train = sweep._train
    monkeypatch.setattr(sweep, "_train", lambda t: None if t.variant is ELMO else train(t))
    failed = sweep.run(2)
    assert [trial.variant for trial in failed] == [ELMO, ELMO]
    assert len(good) == len(sweep.results()) == 2


def test_a_stopped_sweep_begins_nothing_more(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    ran = pretend(sweep, monkeypatch)
    assert sweep.run(1, lambda trial, result: sweep.stop()) == []
    assert len(ran) == 1
    assert sweep.stopped


def test_stopping_ends_the_processes(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, seeds=1)
    monkeypatch.setattr(sweep, "command", lambda trial: ["--version"])
    begun, real = threading.Event(), subprocess.Popen

    def sleeper(line, **options):
        process = real(["sleep", "60"], **options)
        begun.set()
        return process

    monkeypatch.setattr("subprocess.Popen", sleeper)
    threading.Thread(target=lambda: (begun.wait(20), sweep.stop())).start()
    assert sweep.run(2) == []  # nothing failed: it was stopped
    assert sweep.results() == []


@pytest.mark.parametrize("how", ["asked", "interrupted"])
def test_whoever_stops_it_the_processes_end(tmp_path, data, monkeypatch, how):
    """By the `stop` that is asked again and again, or by an exception such as Ctrl-C raises."""
    sweep = make_sweep(tmp_path, data, seeds=1)
    monkeypatch.setattr(sweep, "command", lambda trial: ["--version"])
    begun, real = [], subprocess.Popen

    def sleeper(line, **options):
        seconds = "60" if how == "asked" or begun else "0"  # else the first ends, and its end is told
        begun.append(real(["sleep", seconds], **options))
        return begun[-1]

    def interrupted(trial, measured):
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen", sleeper)
    if how == "asked":
        assert sweep.run(2, stop=lambda: len(begun) == 2) == []  # nothing failed
    else:
        with pytest.raises(KeyboardInterrupt):
            sweep.run(2, on_trial=interrupted)
    assert sweep.stopped
    assert len(begun) >= 2 or how == "interrupted"
    assert all(process.poll() is not None for process in begun)


def test_a_folder_is_of_one_model_and_one_recipe(tmp_path, data):
    make_sweep(tmp_path, data)
    write_result(tmp_path / "runs" / "pos" / "elmo" / "seed-0", 85.0)
    make_sweep(tmp_path, data)
    with pytest.raises(ValueError, match="another recipe"):
        make_sweep(tmp_path, data, recipe="paper")
    with pytest.raises(ValueError, match="another model"):
        Sweep(tmp_path / "runs", open_data(data), ["pos"], [ELMO], model="N", digest="d2")


def test_a_folder_without_runs_is_nobodys(tmp_path, data):
    """All of them failed, with settings that only a run finds wrong: the right ones are not refused."""
    log = tmp_path / "runs" / "pos" / "elmo" / "seed-0.log"
    make_sweep(tmp_path, data, settings=["train.learning_rate=-1.0"])
    log.parent.mkdir(parents=True)
    log.write_text("error")
    make_sweep(tmp_path, data, settings=["train.epochs=1"])
    assert json.loads((tmp_path / "runs" / "study.json").read_text())["settings"] == ["train.epochs=1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "foo"}, r"pos: unknown recipe 'foo'.*laptop, paper"),
        ({"settings": ["train.epoch=1"]}, r"pos: unknown key 'train.epoch': did you mean 'epochs'"),
        ({"settings": ["nonsense"]}, r"pos: expected a setting such as .*=.*found 'nonsense'"),
        ({"settings": ["train.epochs=many"]}, r"'train.epochs': expected int, found 'many'"),
    ],
)
def test_what_cannot_run_claims_no_folder(tmp_path, data, options, message):
    with pytest.raises(ValueError, match=message):
        make_sweep(tmp_path, data, sample_variants([0.1, 1]), **options)
    assert not (tmp_path / "runs").exists()


def test_the_settings_are_right_for_every_task(tmp_path, data):
    toml = (data / "study.toml").read_text()
    (data / "study.toml").write_text(toml + '\nsettings = ["train.epoch=1"]\n')  # of the last, ner
    with pytest.raises(ValueError, match=r"ner: unknown key 'train.epoch'"):
        make_sweep(tmp_path, data)
    assert not (tmp_path / "runs").exists()


def test_a_task_named_twice_is_one(tmp_path, data):
    assert open_data(data).choose(["ner", "ner"]) == ["ner"]
    folders = [trial.folder for trial in make_sweep(tmp_path, data, tasks=("ner", "pos", "ner")).trials]
    assert len(folders) == len(set(folders)) == 2 * 2 * 3


def test_a_folder_is_of_one_set_of_data(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, seeds=1)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    moved = data.rename(tmp_path / "moved")
    make_sweep(tmp_path, moved)  # the same files, elsewhere
    size = (moved / "pos.conllu").stat().st_size
    with (moved / "pos.conllu").open("a") as file:
        file.write("\n")
    refused = (
        rf"runs.pos holds runs with another training file \(pos.conllu of {size} bytes, not .*{size + 1} bytes\)"
    )
    with pytest.raises(ValueError, match=refused):
        make_sweep(tmp_path, moved)
    make_sweep(tmp_path, moved, tasks=("ner",))


def test_data_that_are_refused_are_written_down_for_no_task(tmp_path, data):
    """Else the right ones would be refused next, for a task that did not say its data."""
    make_sweep(tmp_path, data)
    for task, name in (("pos", "pos.conllu"), ("ner", "ner.conll")):
        write_result(tmp_path / "runs" / task / "elmo" / "seed-0", 85.0)
        (data / name).write_text((TASKS / name).read_text() + "\n")
    (tmp_path / "runs" / "ner" / "data.json").unlink()
    with pytest.raises(ValueError, match="another training file"):
        make_sweep(tmp_path, data, tasks=("ner", "pos"))
    assert not (tmp_path / "runs" / "ner" / "data.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [("limit = 3", r"another limit \(None, not 3\)"), ('settings = ["train.epochs=8"]', "another settings")],
)
def test_a_task_has_one_limit_and_settings_of_its_own(tmp_path, data, change, message):
    make_sweep(tmp_path, data)
    write_result(tmp_path / "runs" / "ner" / "elmo" / "seed-0", 85.0)
    (data / "study.toml").write_text((data / "study.toml").read_text() + f"\n{change}\n")
    with pytest.raises(ValueError, match=message):
        make_sweep(tmp_path, data)


def test_a_folder_has_one_file_of_vectors(tmp_path, data):
    toml = (data / "study.toml").read_text()
    (data / "study.toml").write_text('vectors = "glove.txt"\n' + toml)
    with pytest.raises(ValueError, match=r"vectors: there is no file .*glove.txt"):
        make_sweep(tmp_path, data)
    (data / "glove.txt").write_text("a 1\n")
    make_sweep(tmp_path, data)
    write_result(tmp_path / "runs" / "pos" / "elmo" / "seed-0", 85.0)
    (data / "study.toml").write_text(toml)
    with pytest.raises(ValueError, match=r"another vectors \(glove.txt of 4 bytes, not None\)"):
        make_sweep(tmp_path, data)


def test_a_folder_of_before_does_not_say_its_data_and_is_told_them(tmp_path, data):
    runs = tmp_path / "runs"
    write_result(runs / "pos" / "elmo" / "seed-0", 85.0)
    (runs / "pos" / "examples.json").write_text('{"train": 3394}')
    (runs / "study.json").write_text(
        json.dumps({"elmokit": "0.1.0", "model": "d1", "recipe": "laptop", "settings": []})
    )
    sweep = make_sweep(tmp_path, data, tasks=("pos",), seeds=1)
    assert [result.score for result in sweep.results()] == [85.0]
    assert json.loads((runs / "pos" / "data.json").read_text())["dev file"].startswith("pos.conllu of ")


def test_the_examples_are_counted_once_and_again_when_the_data_change(tmp_path, data):
    variants, sentences = sample_variants([0.5]), (TASKS / "pos.conllu").read_text().strip().split("\n\n")
    half = str(round(len(sentences) / 2))
    assert options_of(make_sweep(tmp_path, data, variants), "elmo-0.5")["--limit"] == half
    assert json.loads((tmp_path / "runs" / "pos" / "data.json").read_text())["examples"] == len(sentences)
    (data / "pos.conllu").write_text("\n\n".join(sentences[:4]) + "\n\n")
    assert options_of(make_sweep(tmp_path, data, variants), "elmo-0.5")["--limit"] == "2"


def test_no_task_at_all(tmp_path, data):
    with pytest.raises(
        ValueError, match=r"no task whose files are there: it names pos, ner, and --tasks NAME says"
    ):
        make_sweep(tmp_path, data, tasks=())


def options_of(sweep, name, task="pos"):
    (trial,) = [t for t in sweep.trials if t.variant.name == name and t.task == task and t.seed == 0]
    line = sweep.command(trial)
    return {line[i]: line[i + 1] for i in range(3, len(line), 2)} | {"settings": line}


def test_the_variants_are_flags_of_task_train(tmp_path, data):
    found = {v.name: options_of(make_sweep(tmp_path, data, (v,)), v.name) for v in (*WEIGHTING, *PLACEMENT)}
    assert found["baseline"]["--model"] == "none"
    assert found["elmo"]["--model"] == "M"
    assert found["last"]["--layers"] == "last"
    assert float(found["lambda-1"]["--lambda"]) == 1
    assert [found[name]["--place"] for name in ("elmo", "both", "output")] == ["input", "both", "output"]


def test_a_share_of_the_data_is_a_limit_and_more_epochs(tmp_path, data):
    sweep = make_sweep(
        tmp_path, data, sample_variants([0.125, 1]), settings=["train.epochs=10", "train.decay=0.25"]
    )
    whole, part = options_of(sweep, "elmo"), options_of(sweep, "elmo-0.125")
    examples = len((TASKS / "pos.conllu").read_text().strip().split("\n\n"))
    assert "--limit" not in whole
    assert part["--limit"] == str(round(examples / 8))
    longer = [word for word in part["settings"] if word.startswith("train.")][-3:]
    assert longer == ["train.epochs=20", "train.patience=20", "train.decay=0.5"]  # 8 ^ (1/3) is 2


@pytest.mark.parametrize("text", ["a", "0", "2", "0.1,-1", ""])
def test_shares_that_are_none(text):
    with pytest.raises(ValueError, match="shares"):
        read_shares(text)


def test_data_that_is_not_right(tmp_path, data):
    (data / "study.toml").write_text("[tasks.nerr]\ntrain = 'a'\ndev = 'b'\n")
    with pytest.raises(ValueError, match=r"study.toml: unknown task 'nerr'.*'ner'"):
        open_data(data)
    (data / "study.toml").write_text("[tasks.ner]\ntrain = 'a'\n")
    with pytest.raises(ValueError, match=r"missing key 'tasks.ner.dev'"):
        open_data(data)
    with pytest.raises(ValueError, match="no folder"):
        open_data(data / "absent")


def test_layouts(tmp_path, data):
    assert list(open_data(data).tasks) == ["pos", "ner"]
    assert set(open_data(data, "ko").tasks) == {"sentiment", "pos"}
    assert "squad" in open_data(data, "en").tasks
    own = tmp_path / "own.toml"
    own.write_text("corpus = 'a.txt'\n")
    assert open_data(data, str(own)).corpus == str(data / "a.txt")
    with pytest.raises(ValueError, match="layout: expected en or ko or a file, found 'kr'"):
        open_data(data, "kr")


def test_tasks_without_their_files_are_left_out(tmp_path, data):
    (data / "ner.conll").unlink()
    found = open_data(data)
    assert found.choose(None) == ["pos"]
    with pytest.raises(ValueError, match="there is no file"):
        found.choose(["ner"])
    assert open_data(tmp_path).choose(None) == []  # the pack's layout, and nothing of it

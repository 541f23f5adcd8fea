"""Folders of every kind lead to a model, and models to folders of another kind."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from elmokit import Elmo, UserError, convert, describe
from elmokit.pretrain.run import CORPUS, MODEL
from elmokit.pretrain.run_config import RUN
from elmokit.sources import hub, locate, open_checkpoint, unfinished
from helpers.models import SENTENCES, make_elmo
from helpers.training import make_run, stop_after


@pytest.fixture
def run_folder(tmp_path, elmo):
    """As a finished training run leaves it, as far as this is about."""
    folder = tmp_path / "run"
    elmo.save(folder / MODEL)
    (folder / CORPUS).mkdir()
    (folder / RUN).write_text("{}")
    return folder


def test_a_run_is_opened_as_its_model(run_folder, elmo):
    assert (unfinished.RUN, unfinished.CORPUS, unfinished.RUN_MODEL) == (RUN, CORPUS, MODEL)
    assert locate(run_folder) == run_folder / "model"
    assert Elmo.from_pretrained(str(run_folder)).checkpoint.digest == elmo.checkpoint.digest
    facts = describe(run_folder)
    assert (facts["model"], facts["folder"]) == (str(run_folder), str(run_folder / "model"))


def test_a_run_without_a_model_says_what_to_do(run_folder):
    (run_folder / "model" / "config.json").unlink()
    with pytest.raises(
        UserError,
        match=r"unfinished run, without a checkpoint yet; resume it with `elmo pretrain --out .*run --resume`",
    ):
        open_checkpoint(run_folder)
    (run_folder / "corpus").rmdir()  # as a task's run, which holds no ELMo to come
    with pytest.raises(UserError, match="holds no model"):
        open_checkpoint(run_folder)


def test_the_model_of_an_unfinished_run_is_a_path_and_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "mine", tokens=600)
    run.train(stop=stop_after(3))
    run.close()
    monkeypatch.setattr(hub, "fetch", lambda *arguments: pytest.fail("asked the hub"))
    for name in ("mine", "mine/model", str(tmp_path / "mine" / "model")):
        with pytest.raises(UserError) as raised:
            open_checkpoint(name)
        folder = name.removesuffix("/model")
        assert str(raised.value) == (
            f"{folder} is an unfinished run, {100 * run.progress:.0f} % done: resume it with "
            f"`elmo pretrain --out {folder} --resume`, or export it with `elmo pretrain --out {folder} --export`"
        )


def test_a_path_whose_parent_is_there_never_asks_the_hub(run_folder, monkeypatch):
    monkeypatch.chdir(run_folder.parent)
    monkeypatch.setattr(hub, "fetch", lambda *arguments: pytest.fail("asked the hub"))
    for name, hint in {
        "run/modle": "did you mean run/model?",
        "run/model/model": "did you mean run/model?",
        "./xyz": "there is no xyz in .",
    }.items():
        with pytest.raises(UserError, match=rf"{name.removeprefix('./')} is no folder: {re.escape(hint)}"):
            open_checkpoint(name)


def test_a_folder_with_a_model_inside_that_is_no_run_holds_none(run_folder):
    (run_folder / "run.json").unlink()
    with pytest.raises(UserError, match="holds no model"):
        open_checkpoint(run_folder)


def test_a_folder_with_two_pairs_is_not_guessed_at(tmp_path):
    for name in ("a_options.json", "b_options.json", "weights.hdf5"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=r"found a_options.json, b_options.json, weights.hdf5: name the pair"):
        open_checkpoint(tmp_path)


def test_convert_there_and_back_in_python(tmp_path, model_folder, published_pair, elmo):
    options, weights = published_pair
    pair = convert(model_folder, tmp_path / "pair", to="bilm")
    assert pair.digest == elmo.checkpoint.digest
    assert sorted(os.listdir(tmp_path / "pair")) == ["options.json", "weights.hdf5"]
    convert(str(tmp_path / "pair"), tmp_path / "again")
    plain = [sentence for sentence in SENTENCES if sentence.isascii()]  # the published spelling knows no NFC
    for ours, theirs in zip(Elmo.from_pretrained(tmp_path / "again").embed(plain), elmo.embed(plain)):
        np.testing.assert_array_equal(ours, theirs)
    read = convert(weights, tmp_path / "half", options=options, weights="float16")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["weights"] == "float16"
    assert describe(tmp_path / "half")["parameters"] == read.number_of_parameters
    with pytest.raises(UserError, match="exists already"):
        convert(weights, tmp_path / "half", options=options)
    convert(weights, tmp_path / "half", options=options, overwrite=True)
    assert json.loads((tmp_path / "half" / "config.json").read_text())["weights"] == "float32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "onnx"}, "to: expected elmokit or bilm, found 'onnx'"),
        ({"to": "bilm", "weights": "float16"}, "float32 only, found float16"),
        ({"weights": "int8"}, "weights: expected float32 or float16 in a file, found 'int8'"),
    ],
)
def test_what_cannot_be_converted_is_said(tmp_path, model_folder, arguments, message):
    with pytest.raises(UserError, match=message):
        convert(model_folder, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_weights_file_needs_its_options(tmp_path, published_pair):
    with pytest.raises(UserError, match=r"name the options.json that goes with it"):
        convert(published_pair[1], tmp_path / "out")


def test_a_jamo_model_is_described(tmp_path):
    Elmo.from_recipe("ko-small").save(tmp_path / "ko")
    facts = describe(tmp_path / "ko")
    assert (facts["spelling"], facts["predicts"]) == ("jamo, whole syllables", "nothing")
    assert "folder" not in facts
    assert make_elmo().checkpoint.number_of_parameters == sum(p.numel() for p in make_elmo().bilm.parameters())

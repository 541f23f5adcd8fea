from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint, config_digest
from elmokit.config import parse_json
from elmokit.errors import UserError
from elmokit.model.language_head import LanguageHead
from elmokit.text.vocabulary import Vocabulary, make_mapper
from helpers.models import SENTENCES, make_elmo, small_config


def equal(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two))


def test_save_load_embed_is_identical(elmo, model_folder):
    again = Elmo.from_pretrained(model_folder)
    assert equal(again.embed(SENTENCES), elmo.embed(SENTENCES))
    assert again.checkpoint.digest == elmo.checkpoint.digest
    assert again.bilm.config == elmo.bilm.config
    assert again.checkpoint.tokenizer == elmo.checkpoint.tokenizer
    again.save(model_folder.parent / "again")
    for name in os.listdir(model_folder):
        assert (model_folder / name).read_bytes() == (model_folder.parent / "again" / name).read_bytes()


def test_half_precision_halves_the_file_and_rounds_the_weights(elmo, tmp_path, model_folder):
    elmo.save(tmp_path / "half", weights="float16")
    half, full = (tmp_path / "half" / "model.safetensors", model_folder / "model.safetensors")
    assert half.stat().st_size < 0.6 * full.stat().st_size
    again = Elmo.from_pretrained(tmp_path / "half")
    assert next(again.bilm.parameters()).dtype == torch.float32
    assert again.checkpoint.digest != elmo.checkpoint.digest
    for ours, theirs in zip(elmo.embed(SENTENCES), again.embed(SENTENCES)):
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_the_softmax_head_and_its_vocabulary_come_along(elmo, tmp_path):
    vocabulary = Vocabulary(["the", "밥"])
    head = LanguageHead(len(vocabulary), 8)
    Checkpoint(elmo.bilm, elmo.mapper, elmo.checkpoint.tokenizer, vocabulary, head, "my card").save(tmp_path / "m")
    again = Checkpoint.load(tmp_path / "m")
    assert again.vocabulary == vocabulary
    assert again.card == "my card"
    assert torch.equal(again.head(torch.ones(8)), head(torch.ones(8)))
    assert again.head(torch.ones(8)).exp().sum().item() == pytest.approx(1)
    with pytest.raises(ValueError, match="predicts 5 words, the vocabulary has none"):
        Checkpoint(elmo.bilm, elmo.mapper, elmo.checkpoint.tokenizer, None, head)


def test_a_model_card_is_always_there(model_folder):
    card = (model_folder / "README.md").read_text()
    assert "3, each 16 wide" in card
    (model_folder / "README.md").write_text("edited by hand")  # the card is the one file meant to be edited
    assert Checkpoint.load(model_folder).card == "edited by hand"
    (model_folder / "README.md").unlink()
    assert Checkpoint.load(model_folder).card is None


def test_an_existing_folder_is_not_overwritten_unasked(elmo, model_folder):
    with pytest.raises(FileExistsError, match="exists already"):
        elmo.save(model_folder)
    other = make_elmo(small_config(layers=1))
    other.save(model_folder, overwrite=True)
    assert Elmo.from_pretrained(model_folder).layers == 2


def test_a_full_disk_while_saving_leaves_the_old_model(elmo, model_folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make_elmo(small_config(layers=1)).save(model_folder, overwrite=True)
    monkeypatch.undo()
    assert equal(Elmo.from_pretrained(model_folder).embed(SENTENCES), elmo.embed(SENTENCES))
    assert [path.name for path in model_folder.parent.iterdir()] == ["model"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_flipped_bit_or_a_missing_end_is_never_loaded(model_folder, data):
    names = [name for name in sorted(os.listdir(model_folder)) if name != "README.md"]
    path = model_folder / data.draw(st.sampled_from(names))
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 2))]
    else:
        bit = data.draw(st.integers(0, len(whole) * 8 - 1))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(damaged))
    try:
        Checkpoint.load(model_folder)
    except ValueError:
        pass
    else:  # white space in config.json, or another way to write the same JSON
        assert path.name == "config.json"
        assert json.loads(damaged) == json.loads(whole)
    finally:
        path.write_bytes(whole)


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    config["sha256"] = config_digest(config)
    (folder / "config.json").write_text(json.dumps(config))


def reseal(folder, name):
    import hashlib

    content = (folder / name).read_bytes()
    config = json.loads((folder / "config.json").read_text())
    config["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    edit_config(folder, files=config["files"])


def test_tensors_of_another_shape_type_or_name_are_refused(model_folder):
    path = model_folder / "model.safetensors"
    whole = safetensors.torch.load_file(path)

    def refused(tensors, message):
        safetensors.torch.save_file(tensors, path)
        reseal(model_folder, path.name)
        with pytest.raises(ValueError, match=message):
            Checkpoint.load(model_folder)

    name = "forward_lstms.0.bias"
    refused(
        {**whole, name: whole[name][:-1].clone()}, r"forward_lstms.0.bias: expected shape \(96,\), found \(95,\)"
    )
    refused({**whole, name: whole[name].half()}, "expected float32, found float16")
    refused({key: tensor for key, tensor in whole.items() if key != name}, "expected forward_lstms.0.bias")
    refused({**whole, "extra": torch.zeros(1)}, "found extra")


def test_a_config_that_does_not_fit_is_refused(model_folder, tmp_path):
    config = json.loads((model_folder / "config.json").read_text())
    for change, message in [
        ({"version": 99}, "reads version 1, found version 99"),
        ({"format": "other"}, "expected format 'elmokit', found 'other'"),
        ({"weights": "int8"}, "weights: expected float32 or float16, found 'int8'"),
        ({"weights": ["float32"]}, "weights: expected float32 or float16"),
        ({"files": ["a"]}, "files: expected a table of files"),
        ({"model": {**config["model"], "dept": 3}}, "unknown key 'model.dept'"),
        ({"files": {}}, "lists no model.safetensors"),
        (
            {"files": {**config["files"], "../../secret": {"sha256": "", "bytes": 1}}},
            "expected names of files in this folder",
        ),
    ]:
        edit_config(model_folder, **{**config, **change})
        with pytest.raises(ValueError, match=message):
            Checkpoint.load(model_folder)
    edit_config(model_folder, **config)
    path = model_folder / "config.json"
    path.write_text(path.read_text().replace('"forget_bias": 1.0', '"forget_bias": 1.1'))
    with pytest.raises(ValueError, match="its digest is not the one inside it"):
        Checkpoint.load(model_folder)
    (model_folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        Checkpoint.load(model_folder)


def test_a_missing_file_is_named(model_folder):
    (model_folder / "mapper.json").unlink()
    with pytest.raises(ValueError, match=r"mapper.json: listed in config.json, but missing"):
        Checkpoint.load(model_folder)


def test_a_pickle_in_place_of_the_weights_is_never_run(model_folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    (model_folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    reseal(model_folder, "model.safetensors")
    with pytest.raises(ValueError, match="not a valid safetensors file"):
        Checkpoint.load(model_folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [None, "file", "empty"])
def test_what_is_no_model_is_refused_with_what_was_expected(tmp_path, content):
    path = tmp_path / "thing"
    if content == "file":
        path.write_text("x")
    elif content == "empty":
        path.mkdir()
    with pytest.raises(ValueError, match=r"no folder|is a file|holds no model"):
        Elmo.from_pretrained(path)


def test_a_half_written_folder_of_a_killed_process_is_not_taken_for_a_model(model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / ".half.tmp")
    (tmp_path / ".half.tmp" / "config.json").unlink()  # it is written last
    with pytest.raises(ValueError, match="holds no model"):
        Elmo.from_pretrained(tmp_path / ".half.tmp")


def test_a_model_that_0_1_0_wrote_opens(elmo, model_folder):
    """It said precision where config.json says weights now, and tokeniser where it says tokenizer."""
    config = json.loads((model_folder / "config.json").read_text())
    assert config.pop("weights") == "float32"
    config["precision"] = "float32"
    config["files"]["tokeniser.json"] = config["files"].pop("tokenizer.json")
    (model_folder / "tokenizer.json").rename(model_folder / "tokeniser.json")
    config["sha256"] = config_digest(config)
    (model_folder / "config.json").write_text(json.dumps(config))
    assert equal(Elmo.from_pretrained(model_folder).embed(SENTENCES), elmo.embed(SENTENCES))
    config["precision"] = "int8"
    config["sha256"] = config_digest(config)
    (model_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="weights: expected float32 or float16, found 'int8'"):
        Checkpoint.load(model_folder)


def test_a_file_holds_no_weights_of_a_byte(elmo, tmp_path):
    with pytest.raises(ValueError, match="weights: expected float32 or float16 in a file, found 'int8'"):
        elmo.save(tmp_path / "model", weights="int8")


def test_weights_that_half_precision_cannot_hold_are_not_silently_infinite(elmo, tmp_path):
    with torch.no_grad():
        elmo.bilm.forward_lstms[0].bias[0] = 1e6
    with pytest.raises(ValueError, match=r"forward_lstms.0.bias holds values that float16 cannot hold"):
        elmo.save(tmp_path / "half", weights="float16")
    assert list(tmp_path.iterdir()) == []
    elmo.save(tmp_path / "full")


def test_a_mapper_whose_ids_the_encoder_has_no_rows_for_is_refused(model_folder):
    (model_folder / "mapper.json").write_text(json.dumps({"kind": "words", "words": ["a"]}))
    reseal(model_folder, "mapper.json")
    with pytest.raises(ValueError, match="tables of 262 characters and 0 words, its mapper makes ids for 0 and 5"):
        Checkpoint.load(model_folder)


def sealed_again(folder, name, *keys, value):
    """A value of config.json or another file changed, and all digests right."""
    config = json.loads((folder / "config.json").read_text())
    table = config if name == "config.json" else json.loads((folder / name).read_text())
    inner = table
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    if name != "config.json":
        content = json.dumps(table).encode()
        (folder / name).write_bytes(content)
        config["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "config.json").write_text(json.dumps({**config, "sha256": config_digest(config)}))


@pytest.mark.parametrize("value", [10**9, 2**62, 10**30, float("inf"), -1, True, "2", [2], {}])
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        *(("config.json", ("model", "lstm", key)) for key in ("layers", "cells", "width")),
        *(("config.json", ("model", "encoder", key)) for key in ("highway", "embedding", "filters", "words")),
        ("config.json", ("softmax_width",)),
        ("config.json", ("files",)),
        ("mapper.json", ("max_characters_per_token",)),
        ("tokenizer.json", ("name",)),
    ],
)
def test_sizes_and_types_that_cannot_be_are_refused_before_anything_is_made(model_folder, name, keys, value):
    """lstm.layers = 10^9 did not end, max_characters_per_token = 2^31 asked for 96 GB."""
    sealed_again(model_folder, name, *keys, value=value)
    with pytest.raises(UserError) as error:
        Elmo.from_pretrained(model_folder).embed(["a"])
    assert len(str(error.value)) < 400


def test_weights_larger_than_the_config_asks_for_are_not_read(model_folder):
    os.truncate(model_folder / "model.safetensors", 50 << 30)  # sparse: it takes no room
    sealed_again(model_folder, "config.json", "files", "model.safetensors", "bytes", value=50 << 30)
    with pytest.raises(UserError, match=r"model.safetensors: expected no more than .* found 53,687,091,200"):
        Checkpoint.load(model_folder)


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_json_nested_deep_is_a_message(model_folder, depth):
    for name in ("config.json", "mapper.json"):
        content = b'{"kind": ' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(UserError, match=f"{name}: .*within one another"):
            parse_json(content, model_folder / name)


@pytest.mark.parametrize(
    "mapper",
    [
        {"kind": []},
        {"kind": "bytes", "max_characters_per_token": 5.5},
        {"kind": "bytes", "published": "yes"},
        {"kind": "words", "words": [1, 2]},
        {"kind": "words", "words": "abc"},
        {"kind": "lexicon", "characters": ["a"], "words": None},
        {"kind": "lexicon", "characters": {"a": "b"}, "words": None},
        {"kind": "lexicon", "characters": None},
    ],
)
def test_wrong_types_in_a_mapper_are_a_message(mapper):
    with pytest.raises(UserError, match=r"mapper|max_characters"):
        make_mapper(mapper)

"""Models that come with the package: found by name, with no network, small, and with a card that says enough."""

from __future__ import annotations

import json
import runpy
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from elmokit import Elmo, sources
from elmokit.analysis.probes.pairs import probe_pairs
from elmokit.checkpoint import HEAD, read_config
from elmokit.sources import bundled as bundled_models
from elmokit.sources.catalogue import describe, languages, list_models
from helpers.models import SENTENCES, make_elmo

MEGABYTES = 25  # of a bundled model, its softmax head not counted


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a bundled model needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """Two models as if bundled, en-small and ko-small."""
    elmo = make_elmo()
    elmo.checkpoint.card = "# A model\n\n| | |\n|---|---|\n| Languages | English, Korean |\n"
    for name in ("en-small", "ko-small"):
        elmo.save(tmp_path / "models" / name, weights="float16")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(bundled_models, "MODELS", tmp_path / "models")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "models"


@pytest.fixture
def nothing_cached(monkeypatch):
    monkeypatch.setattr("elmokit.sources.hub.cached_models", list)


def test_a_name_is_enough(bundled):
    elmo = Elmo.from_pretrained("en-small")
    expected = Elmo.from_pretrained(bundled / "en-small")
    assert elmo.checkpoint.digest == expected.checkpoint.digest
    for ours, theirs in zip(elmo.embed(SENTENCES), make_elmo().embed(SENTENCES)):
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_a_folder_of_that_name_comes_first(bundled):
    assert sources.locate("en-small") == bundled / "en-small"
    make_elmo().save("en-small")
    assert sources.locate("en-small") == Path("en-small")


@pytest.mark.parametrize("name", ["en-smal", "en_small", "kosmall"])
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(bundled, name):
    with pytest.raises(ValueError, match=rf"{name} is no folder and no bundled model; did you mean '..-small'"):
        Elmo.from_pretrained(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert", r"known: en-small, ko-small \(on the Hugging Face Hub: owner/name\)"),
        ("", "is a|is no"),
        ("..", "holds no model"),
        ("en-small/../en-small", "is no folder and no Hugging Face Hub id"),
        ("en-small@v1", "no bundled model; did you mean 'en-small'"),
    ],
)
def test_other_names(bundled, name, message):
    with pytest.raises(ValueError, match=message):
        sources.open_checkpoint(name or "nothing")


def test_a_bundled_model_has_no_revisions(bundled):
    with pytest.raises(ValueError, match="revision='v1' goes with a Hugging Face Hub id; en-small is a model's"):
        Elmo.from_pretrained("en-small", revision="v1")


def test_info_and_models(bundled, elmo_command, nothing_cached):
    _, out, _ = elmo_command("info", "en-small", "--json")
    facts = json.loads(out)
    assert facts == describe("en-small")
    assert (facts["format"], facts["folder"]) == ("bundled", str(bundled / "en-small"))
    rows = json.loads(elmo_command("models", "--json")[1])
    assert rows == list_models()
    assert [row["model"] for row in rows] == ["en-small", "ko-small"]
    assert rows[0]["parameters"] == facts["parameters"]
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in (bundled / "en-small").iterdir())
    assert rows[0]["languages"] == ["English", "Korean"]
    assert (rows[0]["weights"], rows[0]["words predicted"]) == ("float16", 0)
    code, out, _ = elmo_command("models")
    assert code == 0
    line = next(line for line in out.splitlines() if "ko-small" in line)
    assert all(part in line for part in ("bundled", "3 x 16", "whitespace", "nothing", "MB", "English, Korean"))


def test_models_shows_a_damaged_one_beside_the_others(bundled, elmo_command, nothing_cached):
    config = bundled / "en-small" / "config.json"
    config.write_text(config.read_text().replace("float16", "float32"))
    code, out, _ = elmo_command("models")
    assert code == 0
    assert "damaged" in out
    assert "3 x 16" in next(line for line in out.splitlines() if "ko-small" in line)


def test_models_without_any(bundled, elmo_command, nothing_cached):
    shutil.rmtree(bundled)
    assert elmo_command("models")[1].startswith("this release bundles no model; MODEL may be a folder's path or")
    assert json.loads(elmo_command("models", "--json")[1]) == []


@pytest.mark.parametrize(
    ("card", "found"),
    [
        ("", []),
        ("# Card\nlanguage: en\n", []),
        ("---\nlanguage: en\nlicense: mit\n---\n# Card", ["en"]),
        ("---\nlicense: mit\nlanguage: [en, 'ko']\n---\n", ["en", "ko"]),
        ("---\r\nlanguage:\r\n  - en\r\n  - zh-Hant\r\ntags:\r\n- x\r\n---\r\n", ["en", "zh-Hant"]),
        ("---\nlicense: mit\n---\n| language | Korean |\n", ["Korean"]),
    ],
)
def test_the_languages_of_a_card(card, found):
    assert languages(card) == found


BUNDLED_NAMES = bundled_models.bundled_names()


@pytest.mark.skipif(not BUNDLED_NAMES, reason="this release bundles no model")
@pytest.mark.parametrize("name", BUNDLED_NAMES or ["none"])
def test_what_is_really_bundled(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = bundled_models.bundled_folder(name)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != HEAD)
    assert size <= MEGABYTES * 1e6
    assert read_config(folder).weights == "float16"
    checkpoint = sources.open_checkpoint(name)
    assert checkpoint.head is not None  # for perplexity, fill and finetune
    card = checkpoint.card or ""
    headings = " ".join(line.lower() for line in card.splitlines() if line.startswith("#"))
    assert all(word in headings for word in ("data", "licence", "limits")), headings
    assert languages(card)
    vectors = Elmo(checkpoint).embed(["He sat on the bank of the river .", "밥을 먹었다 ."], layers="mean")
    assert all(np.isfinite(vector).all() and vector.any() for vector in vectors)


def test_the_demo_counts_all_word_pairs_and_shows_the_first_right_and_the_first_wrong(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["contexts.py", "--output", str(tmp_path / "out")])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "contexts.py"), run_name="__main__")
    shown = capsys.readouterr().out
    for language in ("en", "ko"):
        result = probe_pairs(f"{language}-small", language)
        told = [word.margins[-1] > 0 for word in result.words]
        assert result.told_apart[-1] == sum(told) / len(told)
        assert f"{sum(told)} of {len(told)}" in shown
        right, wrong = (result.words[told.index(answer)].word for answer in (True, False))
        assert f"{right}, the first in the file that is told apart:" in shown
        assert f"{wrong}, the first in the file that is not:" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"en-small.h5", "ko-small.h5"}

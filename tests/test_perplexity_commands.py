"""elmo perplexity, elmo score and elmo fill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import elmokit
from elmokit import Elmo
from elmokit.cli.fill import fill as fill_command
from elmokit.cli.perplexity import perplexity as perplexity_command
from elmokit.cli.score import score as score_command
from elmokit.errors import UserError
from elmokit.pretrain.perplexity import fill, perplexity, score
from helpers.language_models import MODEL, TEXT, WORDS, without_head
from helpers.models import SENTENCES


@pytest.fixture
def elmo_command(tmp_path, monkeypatch):
    """Run `elmo ...` in a folder that holds a model with a head; gives (exit code or error, output, messages)."""
    app = typer.Typer()
    for name, command in (("perplexity", perplexity_command), ("score", score_command), ("fill", fill_command)):
        app.command(name)(command)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    MODEL.save("model")
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(SENTENCES) + "\n")

    def run(*arguments, **options):
        result = CliRunner().invoke(app, list(arguments), **options)
        failed = isinstance(result.exception, UserError)
        return result.exception if failed else result.exit_code, result.stdout, result.stderr

    return run


def test_a_text_of_unknown_words_is_remarked_on(elmo_command):
    Path("strange.txt").write_text("xyzzy plugh xyzzy\n")
    _, out, messages = elmo_command("perplexity", "-m", "model", "strange.txt", "--json")
    assert json.loads(out)["unknown"] == 1
    assert "100 % of the words are unknown" in messages
    assert "unknown" not in elmo_command("perplexity", "-m", "model", "text.txt", "--json")[2]


@pytest.mark.parametrize("state", ["carry", "zero"])
def test_perplexity_of_files(elmo_command, state):
    expected = perplexity(MODEL, [*TEXT, *TEXT], state=state)
    _, out, _ = elmo_command("perplexity", "-m", "model", "text.txt", "text.txt", "--state", state, "--json")
    facts = json.loads(out)
    assert facts["texts"] == ["text.txt", "text.txt"]
    assert [facts[name] for name in expected._fields] == pytest.approx(list(expected))
    code, out, _ = elmo_command("perplexity", "-m", "model", "text.txt", "text.txt", "--state", state)
    assert code == 0
    assert f"{expected.backward:,.2f}" in out
    assert f"{expected.predictions} predictions" in out


def test_perplexity_options(elmo_command):
    options = "--split --tokenizer words --on-bad-line skip --limit 2 --threads 1 --json".split()
    with open("paragraph.txt", "wb") as file:
        file.write(b"\xff\n\nHe sat. The bank of the river. A third.\n")
    _, out, err = elmo_command("perplexity", "-m", "model", "paragraph.txt", *options)
    facts = json.loads(out)
    assert (facts["sentences"], facts["predictions"]) == (2, 4 + 7)
    code, _, err = elmo_command("perplexity", "-m", "model", "paragraph.txt", "--on-bad-line", "skip")
    assert code == 0
    assert "skipped 1 lines that cannot be read" in err


def test_score_prints_columns_or_json_a_sentence(elmo_command):
    expected = list(score(MODEL, [sentence.split() for sentence in SENTENCES]))
    _, out, _ = elmo_command("score", "-m", "model", "text.txt")
    blocks = out.split("\n\n")
    rows = [line.split("\t") for line in blocks[0].split("\n")]
    assert [row[0] for row in rows] == ["<S>", *TEXT[0], "</S>"]
    assert (rows[0][1], rows[-1][2]) == ("", "")
    assert [float(row[1]) for row in rows[1:]] == pytest.approx([s.forward for s in expected[0][1:]], abs=1e-5)
    assert [float(row[2]) for row in rows[:-1]] == pytest.approx([s.backward for s in expected[0][:-1]], abs=1e-5)
    assert [bool(int(row[3])) for row in rows] == [s.unknown for s in expected[0]]

    _, out, _ = elmo_command("score", "-m", "model", "--json", input="\n".join(SENTENCES).encode())
    lines = [json.loads(line) for line in out.splitlines()]
    assert [[t["token"] for t in line["tokens"]] for line in lines] == [[t.token for t in s] for s in expected]
    assert lines[1]["forward"] == pytest.approx(sum(token.forward for token in expected[1][1:]), abs=1e-4)
    assert lines[3] == {"tokens": [], "forward": 0, "backward": 0}  # an empty line


@pytest.mark.parametrize(
    "model", ["model", Path("model"), MODEL, Elmo(MODEL)], ids=["name", "path", "open", "Elmo"]
)
def test_what_a_command_tells_is_one_call_for_any_model(elmo_command, model):
    assert elmokit.perplexity_of_files(model, ["text.txt", "text.txt"]) == perplexity(MODEL, [*TEXT, *TEXT])
    assert elmokit.perplexity(model, SENTENCES, tokenizer="whitespace") == perplexity(MODEL, TEXT)
    assert list(elmokit.score(model, SENTENCES)) == list(score(MODEL, map(str.split, SENTENCES)))
    assert elmokit.fill(model, "He sat on the ___ .", top=3) == fill(MODEL, "He sat on the ___ .".split(), top=3)


def test_files_are_told_of_as_they_are_read(elmo_command):
    Path("bad.txt").write_bytes(b"the bank .\n\xff\nHe sat .\n")
    events = []
    found = elmokit.perplexity_of_files("model", ["bad.txt"], on_bad_line="skip", on_progress=events.append)
    assert [event.perplexity.sentences for event in events[:-1]] == [1, 2]
    assert events[-2].perplexity == found
    assert events[-1].message == "skipped 1 lines that cannot be read"
    assert all(event.stage == "measuring" and 0 < event.fraction <= 1 for event in events)
    assert elmokit.perplexity_of_files("model", "bad.txt", on_bad_line="skip", limit=1) == events[0].perplexity


def test_fill_prints_candidates(elmo_command):
    expected = fill(MODEL, "He sat on the ___ .", top=3)
    _, out, _ = elmo_command("fill", "He sat on the ___ .", "-m", "model", "--top", "3", "--json")
    assert [row["word"] for row in json.loads(out)] == [candidate.word for candidate in expected]
    assert [row["probability"] for row in json.loads(out)] == pytest.approx([c.probability for c in expected])
    _, out, _ = elmo_command("fill", "He sat on the ___ .", "-m", "model", "--top", "99")
    assert all(word in out for word in WORDS)  # [x] as well: it is no markup
    _, out, _ = elmo_command("fill", "He ___ .", "-m", "model", "--top", "99", "--punctuation", "--json")
    assert {row["word"] for row in json.loads(out)} == set(WORDS)
    _, out, _ = elmo_command("fill", "He ___ .", "-m", "model", "--top", "99", "--json")
    assert {row["word"] for row in json.loads(out)} == set(WORDS) - {"."}


@pytest.mark.parametrize("command", ["perplexity", "score", "fill"])
def test_help_has_an_example(elmo_command, command):
    code, out, _ = elmo_command(command, "--help")
    assert code == 0
    assert f"elmo {command} " in out.split("Example")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("perplexity -m model text.txt none.txt", "no file none.txt"),
        ("perplexity -m bare text.txt", "predicts no words"),
        ("perplexity -m model empty.txt", "found no sentence with a token"),
        ("perplexity -m model text.txt --tokenizer word", "did you mean 'words'"),
        ("score -m model none.txt", "no file none.txt"),
        ("score -m nowhere text.txt", "nowhere is no folder and no bundled model"),
        ("score -m bare text.txt", "predicts no words"),
        ("fill gap -m model", "expected one gap"),
    ],
)
def test_what_a_user_got_wrong_is_a_value_error(elmo_command, arguments, message):
    without_head().save("bare")
    open("empty.txt", "w").close()
    error, out, _ = elmo_command(*arguments.split())
    assert message in str(error)
    assert not out

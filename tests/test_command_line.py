"""One command line: what holds for every command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from elmokit.cli import app
from elmokit.errors import UserError
from elmokit.progress import Progress, terminal_bar

WITHOUT_MODEL = {"models", "convert", "pretrain", "task list", "task evaluate", "task predict", "serve", "play"}


def commands() -> dict[str, object]:
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        parts = getattr(command, "commands", None)
        found |= {name: command} if parts is None else {f"{name} {part}": c for part, c in parts.items()}
    return found


COMMANDS = commands()


def options(command: str) -> dict[str, object]:
    return {option: param for param in COMMANDS[command].params for option in param.opts}


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - WITHOUT_MODEL))
def test_the_model_is_always_m_with_one_default(command):
    model = options(command)["--model"]
    assert model is options(command)["-m"]
    assert (model.default, model.envvar) == ("en-small", "ELMO_MODEL")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_what_is_written_is_always_out(command):
    names = options(command)
    assert "--output" not in names
    assert names.get("-o") is names.get("--out")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_limit_says_of_what(command):
    if limit := options(command).get("--limit"):
        assert limit.metavar in ("SENTENCES", "TOKENS", "WORDS", "OCCURRENCES", "EXAMPLES")
        assert limit.metavar.lower() in limit.help


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_state_has_one_default_or_a_reason(command):
    state = options(command).get("--state")
    if state is not None and state.default != "zero":
        assert f"--state is {state.default} here and zero elsewhere:" in COMMANDS[command].help


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_sentences_are_split_by_one_flag(command):
    names = options(command)
    assert "--sentences" not in names
    assert "--split" not in names or names["--split"].secondary_opts == ["--no-split"]


@pytest.mark.parametrize("command", ["", "index", "probe", "task", *sorted(COMMANDS)])
def test_a_page_of_help_shows_no_type_of_a_flag_and_swallows_nothing(elmo_command, command):
    code, page, _ = elmo_command(*command.split(), "--help")
    assert code == 0
    assert "<bool>" not in page
    written = COMMANDS[command].help if command in COMMANDS else ""
    for word in re.findall(r"</?[A-Z]+>", written):
        assert word in page


def test_finetune_help_names_the_unknown_word(elmo_command):
    assert "<UNK>" in elmo_command("finetune", "--help")[1]


@pytest.mark.parametrize(
    "line", ["finetune en-small text.txt --out o", "score en-small", "index build ko-small -o i"]
)
def test_a_model_among_the_texts_is_told_apart(elmo_command, line):
    code, _, err = elmo_command(*line.split())
    assert code == 1
    assert re.search(r"(en|ko)-small is a model, and a text was expected here: give the model by -m \1-small", err)


def test_a_run_resumes_with_its_own_model(elmo_command, monkeypatch):
    assert "leave -m out" in elmo_command("finetune", "--out", "o", "--resume", "-m", "en-small")[2]
    monkeypatch.setenv("ELMO_MODEL", "ko-small")  # does not count as given
    assert "leave -m" not in elmo_command("finetune", "--out", "o", "--resume")[2]


def test_no_bar_stays_above_an_error(capsys):
    def work(fails: bool) -> None:
        with terminal_bar() as on_progress:
            on_progress(Progress("reading", 1, 2))
            if fails:
                raise UserError("no file")

    work(fails=False)
    assert "reading" in capsys.readouterr().err
    with pytest.raises(UserError):
        work(fails=True)
    assert capsys.readouterr().err.strip() == ""


ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", *ROOT.glob("examples/*")]
WRITTEN = re.compile(r"(?:^|[`| ])elmo ((?:[a-z]+ )+[^`\n#|]*)")


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_file() and page.name != "CHANGELOG.md"])
def test_documented_commands_have_these_options(page):
    """In backticks or on a line of its own: each option exists, and no model stands among the texts."""
    for line in page.read_text(encoding="utf-8").splitlines():
        for words in (found.split() for found in WRITTEN.findall(line)):
            name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
            if name is None:
                continue
            known = options(name) | {part: None for p in options(name).values() for part in p.secondary_opts}
            for word in words[len(name.split()) :]:
                option = word.strip("[]().,:;'\"").split("=")[0]
                assert not re.fullmatch(r"--?[a-z][a-z-]*", option) or option in known, f"elmo {' '.join(words)}"
            if name in ("finetune", "perplexity", "score", "report"):
                assert words[1:2] not in (["MODEL"], ["en-small"], ["ko-small"]), f"elmo {' '.join(words)}"


def test_torchs_threads_are_told_to_rest_before_torch_is_imported(monkeypatch):
    """In a process of its own: whether torch was imported, and what OpenMP is told, once a command begins."""
    code = (
        "import os, sys, elmokit.cli as cli\n"
        "cli.app = lambda: print('torch' in sys.modules, os.environ.get('GOMP_SPINCOUNT'))\n"
        "cli.main()"
    )
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout]
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")  # somebody knows better
    said.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert said == ["False 1000\n", "False None\n"]

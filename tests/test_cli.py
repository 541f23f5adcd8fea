"""The command as a user meets it: in a process of its own where that matters, else through main()."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from elmokit import Elmo
from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from helpers.models import make_elmo


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("He sat on the bank .\n\n밥을 먹었다 .\n", encoding="utf-8")
    return "text.txt"


def test_help_shows_commands_and_each_has_an_example(elmo_command):
    code, out, _ = elmo_command("--help")
    assert code == 0
    for command in ("embed", "info", "convert", "similar"):
        assert command in out
        code, own, _ = elmo_command(command, "--help")
        assert code == 0
        assert f"elmo {command} " in own.split("Example")[1]


def test_version(elmo_command):
    assert elmo_command("--version")[1].startswith("elmokit 0.")


@pytest.mark.parametrize("suffix", ["h5", "npz", "safetensors", "parquet"])
def test_embed_then_info(elmo_command, model_folder, text, suffix):
    code, _, err = elmo_command("embed", text, "-o", f"out.{suffix}", "--model", model_folder)
    assert code == 0
    assert f"out.{suffix}: 3 sentences, 9 tokens" in err
    code, out, _ = elmo_command("info", f"out.{suffix}", "--json")
    facts = json.loads(out)
    assert (facts["sentences"], facts["shape of a vector"]) == (3, "3 x 16")
    assert facts == open_vectors(f"out.{suffix}").describe()
    expected = make_elmo().embed(["밥을 먹었다 ."])[0]
    np.testing.assert_allclose(open_vectors(f"out.{suffix}")[2].vectors, expected, atol=1e-6, rtol=0)


def test_embed_with_every_option(elmo_command, model_folder, text):
    Path("warm.txt").write_text("It was cold .\n")
    options = (
        "--layers 0.1,0.2,0.7 --pooling mean --dtype float16 --tokenizer words --split --on-bad-line skip "
        "--state warm --warm-text warm.txt --batch-tokens 64 --threads 1 --device cpu"
    )
    assert elmo_command("embed", text, "-o", "out.npz", "-m", model_folder, *options.split())[0] == 0
    elmo = make_elmo(state="warm", warm_text=["It was cold ."], tokenizer="words")
    expected = elmo.embed(["He sat on the bank ."], layers=[0.1, 0.2, 0.7], pooling="mean", dtype="float16")
    np.testing.assert_allclose(open_vectors("out.npz")[0].vectors, expected[0], atol=1e-3)  # float16


def test_embed_standard_input_and_the_model_from_the_environment(model_folder, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", "from elmokit.cli import main; main()", "embed", "-", "-o", tmp_path / "o.h5"],
        input="밥을 먹었다 .\n".encode(),
        env={**os.environ, "ELMO_MODEL": str(model_folder)},
        capture_output=True,
    )
    assert process.returncode == 0, process.stderr
    assert open_vectors(tmp_path / "o.h5")[0].tokens == ["밥을", "먹었다", "."]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_loses_nothing_and_says_how_to_go_on(tmp_path, model_folder, number):
    (tmp_path / "text.txt").write_text("".join(f"sentence number {i} of many\n" for i in range(30_000)))
    command = [
        sys.executable,
        "-c",
        "from elmokit.cli import main; main()",
        "embed",
        "text.txt",
        "-m",
        model_folder,
    ]
    command += ["--batch-tokens", "16", "--threads", "1", "-o"]
    process = subprocess.Popen([*command, "out.h5"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    vectors = tmp_path / "out.h5.partial" / "vectors.bin"
    elmo = Elmo.from_pretrained(model_folder, batch_tokens=16)
    window = elmo.window_tokens * elmo.layers * elmo.width * 4  # only whole windows are kept: wait for one
    while process.poll() is None and not (vectors.exists() and vectors.stat().st_size > 2 * window):
        time.sleep(0.01)
    process.send_signal(number)
    message = process.communicate()[1]
    assert process.returncode == 128 + number
    assert "run the same command to resume" in message
    done = json.loads((tmp_path / "out.h5.partial" / "journal.json").read_text())["sentences"]
    assert 0 < done < 30_000


def test_signals_are_put_back_after_a_command(elmo_command, model_folder, text):
    """Whatever they were: a shell starts what it runs in the background with SIGINT ignored."""
    ours = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    try:
        assert elmo_command("embed", text, "-o", "out.h5", "-m", model_folder)[0] == 0
        assert {number: signal.getsignal(number) for number in ours} == ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_convert_there_and_back(elmo_command, model_folder, published_pair):
    options, weights = published_pair
    assert elmo_command("convert", weights, "-o", "ours", "--options", options, "--weights", "float16")[0] == 0
    assert elmo_command("convert", model_folder, "-o", "pair", "--to", "bilm")[0] == 0
    assert sorted(os.listdir("pair")) == ["options.json", "weights.hdf5"]
    assert elmo_command("convert", "pair", "-o", "again")[0] == 0
    _, out, _ = elmo_command("info", "again", "--json")
    assert json.loads(out)["spelling"] == "as published (bytes may be cut)"
    assert elmo_command("convert", "pair", "-o", "again")[0] == 1
    assert elmo_command("convert", "pair", "-o", "again", "--overwrite")[0] == 0


def test_similar(elmo_command, model_folder):
    sentences = [
        "He sat on the [bank] of the river .",
        "She works at a [bank] .",
        r"A list \[1\] of [two words] .",
    ]
    _, out, _ = elmo_command("similar", *sentences, "-m", model_folder, "--json")
    rows = json.loads(out)
    assert len(rows) == 3
    assert rows[0]["cosine"][0] == 1.0  # the same word, without context
    assert rows[0]["cosine"][2] < 0.999
    _, out, _ = elmo_command("similar", *sentences, "-m", model_folder)
    assert "bank / two words" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("embed none.txt -o out.h5 -m {model}", "no file none.txt"),
        ("embed text.txt -o out.doc -m {model}", "expected a name that ends in .h5"),
        ("embed text.txt -o none/out.h5 -m {model}", "no folder none"),
        ("embed text.txt -o out.h5 -m nowhere", "nowhere is no folder and no bundled model"),
        ("embed text.txt -o out.h5 -m {model} --layers 9", "layers 0 to 2, found 9"),
        ("embed text.txt -o out.h5 -m {model} --layers x", "--layers: expected all, mean"),
        ("embed text.txt -o out.h5 -m {model} --tokenizer word", "did you mean 'words'"),
        ("embed text.txt -o out.h5 -m {model} --state warm", "warm_text go together"),
        ("embed text.txt -o out.h5 -m {model} --pooling sum", "--pooling"),
        ("embed text.txt -o out.h5 -m {model} --sate zero", "--state"),
        ("embed en-small -o out.h5", "give the model by -m en-small"),
        ("embed broken.txt -o out.h5 -m {model}", "line 1: not valid UTF-8"),
        ("info nowhere", "no bundled model"),
        ("info text.txt", "expected .h5"),
        ("convert text.txt -o out", "by --options"),
        ("convert {model} -o out --to bilm --weights float16", "float32 only"),
        ("similar [one] -m {model}", "two sentences or more"),
        ("similar [one] two -m {model}", "expected one word in [brackets], found 0"),
        ("similar [one] [] -m {model}", "hold no word"),
        ("embd text.txt", "embed"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_without_a_traceback(elmo_command, model_folder, text, arguments, message):
    Path("broken.txt").write_bytes(b"\xff\n")
    code, _, err = elmo_command(*arguments.format(model=model_folder).split())
    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err
    assert not Path("out.h5").exists()


def test_a_full_disk_is_said_plainly(elmo_command, model_folder, text, monkeypatch):
    from elmokit.embed.scratch import Scratch

    def full(self, record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "vectors.bin")

    monkeypatch.setattr(Scratch, "append", full)
    code, _, err = elmo_command("embed", text, "-o", "out.h5", "-m", model_folder)
    assert code == 1
    assert "No space left on device (vectors.bin): free some space, then run the same command again" in err


@pytest.fixture
def raising(elmo_command, monkeypatch):
    """`elmo models` where the list of models cannot be made."""

    def run(error):
        def broken():
            raise error

        monkeypatch.setattr("elmokit.sources.catalogue.list_models", broken)
        return elmo_command("models")

    return run


@pytest.mark.parametrize("kind", [TypeError, ValueError, OSError])  # a UserError is a ValueError, not the reverse
def test_a_bug_is_one_line_that_says_so_and_a_traceback_where_asked(raising, monkeypatch, kind):
    code, _, error = raising(kind("never\nhappens"))
    assert code == 1
    assert f"error: {kind.__name__}: never happens\n" in error
    assert "please report it" in error
    assert "Traceback" not in error
    monkeypatch.setenv("ELMOKIT_DEBUG", "1")
    with pytest.raises(kind, match="never"):
        raising(kind("never\nhappens"))


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("expected this, found that: do so"), "expected this, found that: do so"),
        (FileExistsError("my-elmo exists already"), "my-elmo exists already"),
    ],
)
def test_what_a_user_did_wrong_is_one_line_and_no_bug(raising, monkeypatch, debug, error, line):
    monkeypatch.setenv("ELMOKIT_DEBUG", debug if isinstance(error, UserError) else "0")
    assert raising(error) == (1, "", f"error: {line}\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x.txt"),
            "No such file or directory (x.txt)",
        ),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "not enough mem",
        ),
    ],
)
def test_what_the_machine_refused_is_one_line_and_no_bug(raising, error, line):
    code, out, message = raising(error)
    assert (code, out) == (1, "")
    assert message.startswith(f"error: {line}")
    assert "bug" not in message


@pytest.mark.filterwarnings("default")
def test_a_tokenizer_that_the_model_was_not_trained_with_is_warned_of_once(elmo_command, tmp_path):
    (tmp_path / "text.txt").write_text("He sat .\nShe ran .\n")
    command = ("embed", "text.txt", "-m", "en-small", "-o")
    code, _, err = elmo_command(*command, "korean.npz", "--tokenizer", "korean")
    assert code == 0, err
    assert err.count("warning: tokenizer 'korean': this model was trained with 'words'") == 1
    assert "UserWarning" not in err
    code, _, err = elmo_command(*command, "tokenized.npz", "--tokenizer", "whitespace")
    assert code == 0
    assert "warning" not in err

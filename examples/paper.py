"""The paper from end to end, by the commands of the guides: a biLM pretrained from scratch, tasks with it and
without, what its layers know, every table on one page.

    python examples/paper.py [--out paper-output] [--data FOLDER --text TEXT --tokens N]

Without --data the text and the tagged sentences are made up by a small grammar: every step is seen in a few
minutes, and the figures say nothing of language. With a folder of real data (docs/guides/study.md says how it is
laid out) the same commands give the paper's tables.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

from elmokit.study.data import open_data

# A word's tag depends on its context: "watch" and "play" are nouns after an article and verbs after a name.
NAMES = {"Ada": "PER", "Bob": "PER", "Mina": "PER", "Seoul": "LOC", "Paris": "LOC", "Busan": "LOC"}
NOUNS = ["river", "bank", "play", "watch", "garden", "letter", "train"]
VERBS = ["saw", "liked", "found", "left", "play", "watch"]
ADJECTIVES = ["old", "green", "quiet", "small"]
STUDY = """
corpus = "text.txt"
queries = ["Ada liked the old [play] ."]
words = ["play"]
[tasks.pos]
title = "parts of speech"
train = "train.conllu"
dev = "dev.conllu"
[tasks.ner]
title = "named entities"
train = "train.conll"
dev = "dev.conll"
[tags]
train = "train.conllu"
dev = "dev.conllu"
"""
QUICK = ("--set", "train.epochs=3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("paper-output"), help="the folder to write to")
    parser.add_argument("--data", type=Path, help="real data, laid out as docs/guides/study.md says")
    parser.add_argument("--text", nargs="+", help="text to pretrain on, with --data")
    parser.add_argument("--tokens", type=int, default=60_000, help="tokens to pretrain on")
    chosen = parser.parse_args()
    if (chosen.data is None) != (chosen.text is None):
        parser.error("--data and --text go together")
    chosen.out.mkdir(parents=True, exist_ok=True)
    data = chosen.data or make_up(chosen.out / "data")
    text = chosen.text or [str(data / "text.txt")]
    begun = time.monotonic()
    tasks = "pos,ner" if chosen.data is None else None
    for why, command in commands(chosen.out, data, text, chosen.tokens, tasks):
        print(f"\n# {why}\n$ elmo {shlex.join(command)}", flush=True)
        subprocess.run([sys.executable, "-m", "elmokit", *command], check=True)
    print(f"\n{time.monotonic() - begun:.0f} s; the page: {chosen.out / 'report.html'}")


def commands(
    out: Path, data: Path, text: list[str], tokens: int, tasks: str | None
) -> list[tuple[str, list[str]]]:
    """What each is for, and its arguments. tasks: of made-up data, in a small size; None: all of real data."""
    tags = open_data(data).tags
    assert tags is not None
    model, runs, page = str(out / "bilm"), str(out / "runs"), str(out / "report.html")
    study = ["--data", str(data), "-m", model, "--out", runs, "--cache", str(out / "cache")]
    study += ["--seeds", "1", "--tasks", tasks, *QUICK] if tasks else []
    size = ["--recipe", "tiny" if tasks else "small"]
    return [
        (
            "Section 3.1: two language models, left to right and right to left. Run again, it resumes.",
            ["pretrain", *text, "--out", model, *size, "--tokens", str(tokens), "--evaluations", "3"],
        ),
        ("How well does it predict?", ["perplexity", *text, "-m", model, "--limit", "500"]),
        (
            "Section 5.3, Table 6: what does each layer know of parts of speech?",
            ["probe", "pos", tags.train, tags.dev, "-m", model],
        ),
        ("Section 4, Table 1: tasks with ELMo and without.", ["study", "tasks", *study]),
        ("Section 5.2, Table 3: ELMo at the input, the output or both.", ["study", "placement", *study]),
        ("Everything on one page.", ["report", "--data", str(data), "-m", model, "--runs", runs, "-o", page]),
    ]


def make_up(folder: Path, seed: int = 0) -> Path:
    """A text, and tagged sentences of the same grammar, for all that the experiments need."""
    folder.mkdir(parents=True, exist_ok=True)
    choose = random.Random(seed)
    text = "".join(" ".join(token for token, _, _ in sentence(choose)) + "\n" for _ in range(4000))
    (folder / "text.txt").write_text(text)
    for name, size in (("train", 120), ("dev", 60)):
        tagged = [sentence(choose) for _ in range(size)]
        (folder / f"{name}.conllu").write_text("".join(map(as_conllu, tagged)))
        columns = ("".join(f"{token}\t{entity}\n" for token, _, entity in s) + "\n" for s in tagged)
        (folder / f"{name}.conll").write_text("".join(columns))
    (folder / "study.toml").write_text(STUDY)
    return folder


def sentence(choose: random.Random) -> list[tuple[str, str, str]]:
    """Tokens with their part of speech and their entity."""
    person, place = (choose.choice([n for n, kind in NAMES.items() if kind == k]) for k in ("PER", "LOC"))
    tokens = [(person, "PROPN", "B-PER"), (choose.choice(VERBS), "VERB", "O"), ("the", "DET", "O")]
    tokens += [(choose.choice(ADJECTIVES), "ADJ", "O")] * choose.randint(0, 1)
    tokens += [(choose.choice(NOUNS), "NOUN", "O")]
    if choose.random() < 0.5:
        tokens += [("in", "ADP", "O"), (place, "PROPN", "B-LOC")]
    return [*tokens, (".", "PUNCT", "O")]


def as_conllu(tokens: list[tuple[str, str, str]]) -> str:
    lines = (f"{i}\t{token}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n" for i, (token, tag, _) in enumerate(tokens, start=1))
    return "".join(lines) + "\n"


if __name__ == "__main__":
    main()

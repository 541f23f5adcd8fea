"""One word in several contexts, by the bundled models: how near its vectors are layer by layer, its nearest
contexts among the sentences beside this file, and all vectors in a file. This is what `make demo` runs.

    python examples/contexts.py [--output demo-output]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elmokit import Elmo, embed_file
from elmokit.analysis.contexts.marked import MarkedSentence, cosines, nearest, read_marked, word_vectors

HERE = Path(__file__).parent
# The first two of each word are of one sense.
CONTEXTS = {
    "en-small": {
        "play": [
            "They saw a [play] by Chekhov at the theatre.",
            "Her first [play] was performed in London.",
            "The children [play] in the garden.",
        ],
        "bank": [
            "He sat on the [bank] of the river and fished.",
            "The boat drifted towards the muddy [bank].",
            "She works at a [bank] in the city.",
        ],
        "stick": [
            "The old man leaned on a [stick].",
            "The dog ran after the [stick] and brought it back.",
            "We should [stick] to the plan.",
        ],
    },
    "ko-small": {
        "눈이": [
            "밤새 [눈이] 많이 내렸다.",
            "산에는 아직 [눈이] 쌓여 있다.",
            "책을 오래 읽어서 [눈이] 아프다.",
        ],
        "배가": ["항구에 [배가] 들어왔다.", "섬으로 가는 [배가] 떠났다.", "점심을 많이 먹어서 [배가] 부르다."],
    },
}


def show(sentence: MarkedSentence) -> str:
    before, word, after = (
        escape(" ".join(part))
        for part in (
            sentence.tokens[: sentence.start],
            sentence.tokens[sentence.start : sentence.end],
            sentence.tokens[sentence.end :],
        )
    )
    return f"{before} [bold cyan]{word}[/] {after}".strip()


def compare(console: Console, elmo: Elmo, word: str, sentences: list[str], others: list[list[str]]) -> None:
    marked = [read_marked(elmo, sentence) for sentence in sentences]
    by_layer = cosines(word_vectors(elmo, marked))  # [layers, S, S]
    for i, sentence in enumerate(marked, start=1):
        console.print(f"  {i}  {show(sentence)}", highlight=False)
    table = Table("cosine of", *(f"layer {layer}" for layer in range(elmo.layers)))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        sense = "same sense" if (i, j) == (0, 1) else "another sense"
        table.add_row(f"{word} {i + 1}, {word} {j + 1}  ({sense})", *(f"{c:.3f}" for c in by_layer[:, i, j]))
    console.print(table)
    top = elmo.layers - 1
    for i in (0, 2):
        console.print(f"  nearest to {word} {i + 1}, layer {top}:", highlight=False)
        for near in nearest(elmo, marked[i], others, layer=top):
            console.print(f"    {near.cosine:.3f}  {show(near.sentence)}", highlight=False)
    console.print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    folder = parser.parse_args().output
    console = Console(soft_wrap=True)
    folder.mkdir(exist_ok=True)
    for name, words in CONTEXTS.items():
        elmo = Elmo.from_pretrained(name)
        console.print(f"[bold]{name}[/]: layer 0 knows the word alone, layers 1 and 2 know its context.\n")
        text = HERE / f"sentences.{name[:2]}.txt"
        others = [elmo.tokens(line) for line in text.read_text(encoding="utf-8").splitlines()]
        for word, sentences in words.items():
            compare(console, elmo, word, sentences, others)
        vectors = folder / f"{name}.h5"
        summary = embed_file(elmo, text, vectors, overwrite=True)
        console.print(
            f"Wrote {summary.tokens} tokens x {elmo.layers} layers x {elmo.width} numbers to {vectors}.\n",
            highlight=False,
        )
    console.print(
        "Go on by hand:\n\n"
        '  .venv/bin/elmo similar "a \\[bank] of clouds" "a \\[bank] account" -m en-small\n'
        "  .venv/bin/elmo embed examples/sentences.ko.txt -o mine.parquet -m ko-small\n",
        highlight=False,
    )


if __name__ == "__main__":
    main()

"""One word in several contexts: embeds a handful of sentences, compares the word's vectors layer by layer, and
writes all vectors to a file. This is what `make demo` runs.

    python examples/contexts.py [--output demo-output]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elmokit import Elmo
from elmokit.embed.contexts import cosines, read_marked, word_vectors
from elmokit.embed.job import EmbedJob

CONTEXTS = {
    "bank": [
        "He sat on the [bank] of the river and fished.",
        "The boat drifted towards the muddy [bank].",
        "She works at a [bank] in the city.",
    ],
    "play": [
        "The children [play] in the garden.",
        "They saw a [play] by Chekhov at the theatre.",
        "He made a spectacular [play] in the ninth inning.",
    ],
    "배가": ["항구에 [배]가 들어왔다.", "가을에는 [배]가 달고 시원하다.", "점심을 많이 먹어서 [배]가 부르다."],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    folder = parser.parse_args().output
    console = Console()

    elmo = Elmo.from_recipe("tiny", seed=0)
    console.print(
        "[bold yellow]This model has never been trained.[/] Its weights are random (recipe tiny, seed 0):\n"
        "the numbers show that the machinery runs, not what words mean. A trained model\n"
        "will be bundled later; to use one you have: Elmo.from_pretrained(folder).\n",
        soft_wrap=True,
    )
    for word, sentences in CONTEXTS.items():
        marked = [read_marked(elmo, sentence) for sentence in sentences]
        by_layer = cosines(word_vectors(elmo, marked))  # [layers, S, S]
        for i, sentence in enumerate(sentences, start=1):
            console.print(f"  {i}  {sentence}", markup=False, highlight=False)
        table = Table("cosine of", *(f"layer {layer}" for layer in range(elmo.layers)))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            table.add_row(f"{word} {i + 1}, {word} {j + 1}", *(f"{c:.3f}" for c in by_layer[:, i, j]))
        console.print(table)

    folder.mkdir(exist_ok=True)
    elmo.save(folder / "model", overwrite=True)
    text = folder / "sentences.txt"
    sentences = [sentence for group in CONTEXTS.values() for sentence in group]
    text.write_text("".join(s.replace("[", "").replace("]", "") + "\n" for s in sentences), encoding="utf-8")
    summary = EmbedJob(elmo, text, folder / "vectors.h5").run(overwrite=True)
    console.print(
        f"Wrote {summary.tokens} tokens x {elmo.layers} layers x {elmo.width} numbers to {folder / 'vectors.h5'}\n"
        f"and the model to {folder / 'model'}. Go on by hand:\n\n"
        f'  .venv/bin/elmo similar "a [bank] of clouds" "a [bank] account" -m {folder / "model"}\n'
        f"  .venv/bin/elmo embed {text} -o mine.parquet -m {folder / 'model'}\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()

"""One word in two senses, by the bundled models: how often they tell them apart, and an example of each.

The sentences are not chosen for their figures. They are those of `elmo probe pairs`, 100 English words and 60
Korean ones. All of them are counted; those that are shown are, in the order of the file, the first word that the
top layer tells apart and the first that it does not. This is what `make demo` runs.

    python examples/contexts.py [--output demo-output]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elmokit import Elmo, embed_file
from elmokit.analysis.contexts.marked import read_marked
from elmokit.analysis.probes.pairs import PairScore, SensePair, probe_pairs, read_pairs

HERE = Path(__file__).parent
MODELS = {"en": "en-small", "ko": "ko-small"}


def count(console: Console, elmo: Elmo, language: str) -> tuple[PairScore, ...]:
    """How many of the words are told apart, by layer: chance is 50 %, and layer 0 cannot be better."""
    result = probe_pairs(elmo, language)
    table = Table("", *(f"layer {layer}" for layer in range(elmo.layers)))
    told = [f"{sum(word.margins[la] > 0 for word in result.words)} of {len(result.words)}" for la in layers(elmo)]
    table.add_row("words told apart", "(by chance: half)", *told)
    right = [f"{share:.0%} of {result.questions}" for share in result.by_layer[1:]]
    table.add_row("contexts nearer to their own sense", "(by chance: half)", *right)
    console.print(table)
    return result.words


def layers(elmo: Elmo) -> range:
    """Those that see the context; layer 0 sees the word alone, which is the same in all sentences."""
    return range(1, elmo.layers)


def show(console: Console, elmo: Elmo, pair: SensePair, score: PairScore, verdict: str) -> None:
    console.print(f"\n[bold]{escape(pair.word)}[/], the first in the file that is {verdict}:", highlight=False)
    for gloss, contexts in zip(pair.glosses, pair.contexts):
        console.print(f"  {escape(gloss)}", highlight=False)
        for context in contexts:
            marked = escape(read_marked(elmo, context).marked)
            console.print(f"    {marked}", highlight=False)
    found = ", ".join(f"{score.margins[layer]:+.3f} at layer {layer}" for layer in layers(elmo))
    console.print(f"  mean cosine within a sense, less that between the two: {found}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    folder = parser.parse_args().output
    console = Console(soft_wrap=True)
    folder.mkdir(exist_ok=True)
    for language, name in MODELS.items():
        elmo = Elmo.from_pretrained(name)
        console.print(f"[bold]{name}[/]: does it know which sense of a word is meant?\n")
        words, pairs = count(console, elmo, language), read_pairs(language)
        for verdict, right in (("told apart", True), ("not", False)):
            chosen = next((i for i, word in enumerate(words) if (word.margins[-1] > 0) is right), None)
            if chosen is not None:
                show(console, elmo, pairs[chosen], words[chosen], verdict)
        vectors = folder / f"{name}.h5"
        summary = embed_file(elmo, HERE / f"sentences.{language}.txt", vectors, overwrite=True)
        console.print(
            f"\nWrote {summary.tokens} tokens x {elmo.layers} layers x {elmo.width} numbers to {vectors}.\n",
            highlight=False,
        )
    console.print(
        "Go on by hand:\n\n"
        '  .venv/bin/elmo similar "a \\[bank] of clouds" "a \\[bank] account" -m en-small\n'
        "  .venv/bin/elmo probe pairs en -m en-small\n"
        "  .venv/bin/elmo embed examples/sentences.ko.txt -o mine.parquet -m ko-small\n",
        highlight=False,
    )


if __name__ == "__main__":
    main()

"""Which sizes and settings learn most, by tokens and by CPU seconds? Variants of one recipe, each trained on the
same text with the same held-out lines, one after the other; what is done already is not done again.

    .venv/bin/python benchmarks/variants.py CORPUS --recipe small --tokens 1000000 --out FOLDER \\
        --variant base --variant narrow model.lstm.cells=512 --variant "no dropout" train.dropout=0

The budget of each is --tokens or --minutes. Two of these may run beside each other on the same FOLDER.

CORPUS is the corpus/ of a run, as `elmo pretrain` prepares it. FOLDER/runs gets a run for each variant.
Perplexities compare only between variants that predict the same words.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import write_file
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.recipe import load_recipe
from elmokit.pretrain.run import CHECKPOINTS, CORPUS, RUN, Budget, Run, RunConfig

MEGABYTE = 1e6


def measure(
    folder: Path, corpus: Path, recipe: str, settings: list[str], budget: Budget, sentences: int
) -> dict[str, Any]:
    """Train one variant, or go on with it where it was stopped."""
    if (folder / RUN).is_file():
        run = Run.open(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CORPUS).symlink_to(corpus.resolve())
        config = RunConfig(load_recipe(recipe, settings), budget, evaluations=4, held_out_sentences=sentences)
        run = Run.create(folder, config)
    try:
        outcome = run.train()
        assert outcome.perplexity is not None, "the corpus has no held-out lines"
        model, perplexity = run.trainer.model, outcome.perplexity
        assert model.head is not None
        parameters = [sum(p.numel() for p in module.parameters()) for module in (model.bilm, model.head)]
        return {
            "settings": settings,
            "words": len(model.vocabulary or ()),
            "megabytes": [2 * count / MEGABYTE for count in parameters],  # float16
            "tokens": run.trainer.tokens,
            "cpu_seconds": run.cpu_seconds,
            "curve": [row["perplexity"] for row in read_metrics(folder) if "perplexity" in row],
            "perplexity": list(perplexity)[:3],
            "mean": perplexity.mean,
        }
    finally:
        run.close()


def show(name: str, row: dict[str, Any]) -> None:
    model, head = row["megabytes"]
    curve = " / ".join(f"{value:.1f}" for value in row["curve"])
    print(
        f"| {name} | {' '.join(row['settings']) or '-'} | {model:.1f} + {head:.1f} | {row['tokens'] / 1e6:.2f} "
        f"| {row['cpu_seconds']:.0f} | {row['tokens'] / row['cpu_seconds']:,.0f} | {curve} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--recipe", default="small")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--tokens", type=int)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for all variants")
    parser.add_argument(
        "--variant", nargs="+", action="append", required=True, metavar="...", help="a name, then KEY=VALUE"
    )
    parser.add_argument("--sentences", type=int, default=500, help="held out, in one measurement")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    budget = Budget(arguments.tokens, arguments.minutes / 60 if arguments.minutes else None)
    print(
        "| variant | settings | MB, biLM + softmax | million tokens | CPU s | tokens/CPU s "
        "| perplexity at 1/4, 1/2, 3/4, end |\n" + "|---" * 7 + "|"
    )
    for name, *settings in arguments.variant:
        folder = arguments.out / "runs" / name.replace(" ", "-")
        done = folder / "variant.json"
        if not done.is_file():
            whole = [*arguments.set, *settings]
            row = measure(folder, arguments.corpus, arguments.recipe, whole, budget, arguments.sentences)
            write_file(done, json.dumps({**row, "settings": settings}, indent=1).encode())
            for checkpoint in (folder / CHECKPOINTS).glob("*/training.safetensors"):
                checkpoint.unlink()  # large, and the variant is done
        show(name, json.loads(done.read_bytes()))


if __name__ == "__main__":
    main()

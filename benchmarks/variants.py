"""Which sizes and settings learn most in a given time? Variants of one recipe, each trained for the same minutes
on the same text with the same held-out lines, one after the other; what is done already is not done again.

    .venv/bin/python benchmarks/variants.py CORPUS --recipe small --minutes 4 --out FOLDER \\
        --variant base --variant narrow model.lstm.cells=512 --variant "no dropout" train.dropout=0

CORPUS is the corpus/ of a run, as `elmo pretrain` prepares it. FOLDER gets variants.json, and a run a variant.
Perplexities compare only between variants that predict the same words.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import write_file
from elmokit.pretrain.recipe import load_recipe
from elmokit.pretrain.run import CHECKPOINTS, CORPUS, RUN, Budget, Run, RunConfig

MEGABYTE = 1e6


def measure(
    folder: Path, corpus: Path, recipe: str, settings: list[str], minutes: float, sentences: int
) -> dict[str, Any]:
    """Train one variant, or go on with it where it was stopped."""
    if (folder / RUN).is_file():
        run = Run.open(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CORPUS).symlink_to(corpus.resolve())
        config = RunConfig(
            load_recipe(recipe, settings), Budget(hours=minutes / 60), evaluations=4, held_out_sentences=sentences
        )
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
            "seconds": run.seconds,
            "perplexity": list(perplexity)[:3],
            "mean": perplexity.mean,
        }
    finally:
        run.close()


def show(name: str, row: dict[str, Any]) -> None:
    model, head = row["megabytes"]
    pace = row["tokens"] / row["seconds"]
    print(
        f"| {name} | {' '.join(row['settings']) or '-'} | {model:.1f} + {head:.1f} | {pace:,.0f} "
        f"| {row['tokens'] / 1e6:.2f} | {row['mean']:.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for all variants")
    parser.add_argument(
        "--variant", nargs="+", action="append", required=True, metavar="...", help="a name, then KEY=VALUE"
    )
    parser.add_argument("--sentences", type=int, default=500, help="held out, in one measurement")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    path = arguments.out / "variants.json"
    rows: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    print(
        "| variant | settings | MB, biLM + softmax | tokens/s | million tokens | perplexity |\n" + "|---" * 6 + "|"
    )
    for name, *settings in arguments.variant:
        if name not in rows:
            folder = arguments.out / "runs" / name.replace(" ", "-")
            row = measure(
                folder,
                arguments.corpus,
                arguments.recipe,
                [*arguments.set, *settings],
                arguments.minutes,
                arguments.sentences,
            )
            row["settings"] = settings
            rows[name] = row
            write_file(path, json.dumps(rows, indent=1).encode())
            for checkpoint in (folder / CHECKPOINTS).glob("*/training.safetensors"):
                checkpoint.unlink()  # large, and the variant is done
        show(name, rows[name])


if __name__ == "__main__":
    main()

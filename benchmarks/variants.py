"""Which sizes and settings learn most, by tokens and by CPU seconds? Variants of one recipe, each trained on the
same text with the same held-out lines, one after the other; what is done already is not done again.

    .venv/bin/python benchmarks/variants.py CORPUS --recipe small --tokens 1000000 --out FOLDER --seeds 0 1 \\
        --variant base --variant narrow model.lstm.cells=512 --variant "no dropout" train.dropout=0

The budget of each is --tokens or --minutes. CORPUS is the corpus/ of a run, as `elmo pretrain` prepares it.
FOLDER/runs gets a run for each variant and seed; two of these commands may work beside each other in one FOLDER.
With --plot, the curves of the variants that are named are drawn against tokens and against CPU seconds.

Beside each variant stands how it compares with the first one at equal CPU seconds: its perplexity at the moment
at which the first one's run ends, read off its curve, or the other way round if it ends earlier. A curve that is
still to be cooled down there is at a disadvantage. Perplexities compare only between variants that predict the
same words.
"""

from __future__ import annotations

import argparse
import json
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from elmokit.atomic import write_file
from elmokit.pretrain.checkpoints import CHECKPOINTS
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.recipe import load_recipe
from elmokit.pretrain.run import CORPUS, Run
from elmokit.pretrain.run_config import RUN, Budget, RunConfig

MEGABYTE = 1e6
# Okabe and Ito's colours, told apart by every kind of colour vision; markers for those who print in grey.
COLOURS, MARKERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), "os^Dv"
HEAD = "| variant | settings | MB, biLM + softmax | million tokens | CPU s | tokens/s | perplexity | equal CPU s |"


def measure(folder: Path, corpus: Path, config: RunConfig) -> dict[str, Any]:
    """Train one variant, or resume it where it was stopped."""
    if (folder / RUN).is_file():
        run = Run.open(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CORPUS).symlink_to(corpus.resolve())
        run = Run.create(folder, config)
    try:
        outcome = run.train()
        assert outcome.perplexity is not None, "the corpus has no held-out lines"
        model = run.trainer.model
        assert model.head is not None
        parameters = [sum(p.numel() for p in module.parameters()) for module in (model.bilm, model.head)]
        measured = [row for row in read_metrics(folder) if "perplexity" in row]
        return {
            "words": len(model.vocabulary or ()),
            "megabytes": [2 * count / MEGABYTE for count in parameters],  # float16
            "precision": run.trainer.precision,
            "curve": [[row[key] for key in ("tokens", "cpu_seconds", "perplexity")] for row in measured],
        }
    finally:
        run.close()


def at_equal_time(base: list[list[float]], other: list[list[float]]) -> float:
    """How much lower the other's perplexity is where the shorter of both curves ends, as a share."""
    (_, base_seconds, base_values), (_, seconds, values) = (np.array(curve).T for curve in (base, other))
    end = min(base_seconds[-1], seconds[-1])
    one, two = np.interp(end, base_seconds, np.log(base_values)), np.interp(end, seconds, np.log(values))
    return float(1 - np.exp(two - one))


def show(name: str, settings: list[str], rows: list[dict[str, Any]], base: list[dict[str, Any]]) -> None:
    """A line for all seeds together: means, and what each seed came to."""
    model, head = rows[0]["megabytes"]
    tokens, seconds, _ = (mean(row["curve"][-1][i] for row in rows) for i in range(3))
    curves = zip(*([point[2] for point in row["curve"]] for row in rows))
    values = " / ".join(f"{mean(points):.1f}" for points in curves)
    ends = ", ".join(f"{row['curve'][-1][2]:.1f}" for row in rows)
    each = f" ({ends})" if len(rows) > 1 else ""
    lower = mean(at_equal_time(one["curve"], other["curve"]) for one, other in zip(base, rows))
    compared = "-" if rows is base else f"{-100 * lower:+.1f} %"
    print(
        f"| {name} | {' '.join(settings) or '-'} | {model:.1f} + {head:.1f} | {tokens / 1e6:.2f} | {seconds:.0f} "
        f"| {tokens / seconds:,.0f} | {values}{each} | {compared} |",
        flush=True,
    )


def draw(variants: dict[str, list[dict[str, Any]]], path: Path) -> None:
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column, unit, label in zip(
        panels, (0, 1), (1e6, 1), ("tokens seen (millions)", "CPU seconds of one thread")
    ):
        for (name, rows), colour, marker in zip(variants.items(), cycle(COLOURS), cycle(MARKERS)):
            for seed, row in enumerate(rows):
                x, y = [point[column] / unit for point in row["curve"]], [point[2] for point in row["curve"]]
                label_once = None if seed else name
                axes.plot(x, y, color=colour, marker=marker, markersize=3, lw=1, alpha=0.8, label=label_once)
        axes.set(xlabel=label, yscale="log")
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.yaxis.set_minor_formatter("{x:.0f}")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("held-out perplexity (full softmax)")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


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
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--evaluations", type=int, default=4, help="on the way, evenly")
    parser.add_argument("--sentences", type=int, default=500, help="held out, in one measurement")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--plot", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    budget = Budget(arguments.tokens, arguments.minutes / 60 if arguments.minutes else None)
    print(HEAD + "\n" + "|---" * (HEAD.count("|") - 1) + "|")
    variants: dict[str, list[dict[str, Any]]] = {}
    for name, *settings in arguments.variant:
        rows = variants[name] = []
        for seed in arguments.seeds:
            folder = arguments.out / "runs" / f"{name.replace(' ', '-')}-{seed}"
            done = folder / "variant.json"
            if not done.is_file():
                recipe = load_recipe(arguments.recipe, [*arguments.set, *settings, f"train.seed={seed}"])
                config = RunConfig(
                    recipe, budget, evaluations=arguments.evaluations, held_out_sentences=arguments.sentences
                )
                write_file(done, json.dumps(measure(folder, arguments.corpus, config), indent=1).encode())
                for checkpoint in (folder / CHECKPOINTS).glob("*/training.safetensors"):
                    checkpoint.unlink()  # large, and the variant is done
            rows.append(json.loads(done.read_bytes()))
        show(name, settings, rows, next(iter(variants.values())))
    if arguments.plot:
        draw(variants, arguments.plot)


if __name__ == "__main__":
    main()

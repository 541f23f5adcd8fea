"""How fast are vectors made, and with how much memory? Ours beside the definition in torch, in one run.

    .venv/bin/python benchmarks/embed.py [--recipe small] [--text FILE] [--parts lstm text batch memory]

lstm    The LSTMs alone, both directions and all layers, weights in every format; beside them the loop over time
        that defines them (all inputs by one product), the same with AllenNLP's two products a step,
        torch.nn.LSTM(proj_size=...), which does not clip, and the largest rate of torch's products. "of limit" is
        the share of that rate, in the precision that a contender is computed in.
text    Sentences to NumPy, all layers: many at once, and one at a time. "cold": no word has been seen before.
batch   Throughput, cold, by batch, sentence length, corpus size and threads. The definition: once, after ours.
memory  Of a process that embeds and keeps nothing.

Contenders take turns, round by round; a pace is that of the best round. Tokens are those of the text, without <S>
and </S>; FLOPs are matrix products of real tokens, so padding that is computed shows as a lower rate. "definition"
is elmokit with neither its native library nor what replaces that. Without --text, sentences are made up by Zipf's
law. Writes FOLDER/embed.json, and embed.png if there was a `batch`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from elmokit import Elmo
from elmokit.atomic import write_file
from elmokit.bench import lstms
from elmokit.bench.contenders import Contender, farthest
from elmokit.bench.flops import lstm_flops
from elmokit.bench.lstms import Apart, Batch, Run
from elmokit.bench.machine import Machine, versions
from elmokit.bench.rates import Precision, best_seconds, largest_rate, seconds
from elmokit.bench.sentences import Sentences, first_tokens, made_up, read_text, real_lengths, tokens_of
from elmokit.checkpoint import Checkpoint
from elmokit.embed.reader import BATCH_TOKENS
from elmokit.model.kernels import variant
from elmokit.model.kernels.library import VARIABLE, arithmetic
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.show.figures import COLOURS, MARKERS

Row = dict[str, Any]  # of a table: its heading -> value

OURS, LOOP, TORCH, PACKED = "ours", "definition", "nn.LSTM, padded", "nn.LSTM, packed"
STEPS = "loop, as AllenNLP's"
SHORT = 0.05  # seconds: what takes less is run several times in its turn
ONE_ROUND = 3_000  # sentences: a larger corpus is long enough to be read once
BATCHES, LENGTHS = (64, 256, 1024, 2048, 4096, 8192), (5, 10, 20, 40, 80)
FORMATS = {
    ",.0f": ("tokens/s", "definition"),
    ".2f": ("ms", "first ms", "p50 ms", "p99 ms", "ratio", "to AllenNLP's", "seconds"),
    ".1f": ("GFLOP/s", "imported", "model", "after", "peak"),
    ".1%": ("of limit",),
    ".1e": ("difference",),
    ".6f": ("cosine",),
}


def show(caption: str, rows: Sequence[Row]) -> None:
    """A table: what a row is about to the left, figures to the right."""
    formats = {heading: style for style, headings in FORMATS.items() for heading in headings}
    cells = [list(rows[0])]
    for row in rows:
        plain = {heading: "" if isinstance(value, str) else "," for heading, value in row.items()}
        cells.append([format(value, formats.get(heading, plain[heading])) for heading, value in row.items()])
    widths = [max(map(len, column)) for column in zip(*cells)]
    print(f"\n{caption}")
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0]), *(text.rjust(n) for text, n in zip(others, widths[1:]))]))
    sys.stdout.flush()


# lstm


@torch.no_grad()
def lstm(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    bilm, many = checkpoint.bilm, real_lengths(64).tolist()
    contenders: dict[str, Run] = {f"{OURS}, {weights}": lstms.ours(bilm, weights) for weights in WEIGHT_FORMATS}
    precisions: dict[str, Precision] = {
        f"{OURS}, {weights}": arithmetic(weights).precision for weights in WEIGHT_FORMATS
    }
    contenders |= {LOOP: lstms.definition(bilm), STEPS: lstms.step_by_step(bilm)}
    contenders |= {TORCH: lstms.torch_padded(bilm), PACKED: lstms.torch_packed(bilm)}
    cases = {  # lengths, the longest first
        "1 sentence of 25 tokens": [25],
        "32 sentences": sorted(many[:32], reverse=True),
        "64 sentences": sorted(many, reverse=True),
    }
    batches = {case: Batch.make(bilm, lengths) for case, lengths in cases.items()}
    works = {(case, name): partial(contenders[name], batches[case]) for case in cases for name in contenders}
    values = {key: work() for key, work in works.items()}  # and all is packed
    limits: dict[Precision, float] = {}

    def measure_limits() -> float:
        for precision in ("float32", *precisions.values()):
            limits[precision] = max(limits.get(precision, 0.0), largest_rate(precision))
        return 0.0

    timed: dict[Any, Callable[[], float]] = {key: partial(seconds, work) for key, work in works.items()}
    best, table = best_seconds(timed | {"limit": measure_limits}, arguments.rounds, SHORT), {}
    for case, lengths in cases.items():
        tokens, mask = sum(lengths), batches[case].mask
        flops = lstm_flops(bilm.config.lstm, tokens)
        table[case] = rows = []
        for name in contenders:
            took, limit = best[case, name], limits[precisions.get(name, "float32")]
            row = {"LSTMs": name, "ms": 1e3 * took, "tokens/s": tokens / took, "GFLOP/s": flops / took / 1e9}
            row |= {"of limit": flops / took / limit, "ratio": best[case, LOOP] / took}
            row["to AllenNLP's"] = best[case, STEPS] / took
            rows.append(row | Apart.of(values[case, name][:, mask], values[case, LOOP][:, mask])._asdict())
        show(f"{case}, {tokens:,} tokens", rows)
    rates = ", ".join(f"{precision} {rate / 1e9:.1f}" for precision, rate in limits.items())
    print(f"largest product, GFLOP/s: {rates}; ratio, difference and cosine are from the {LOOP}")
    return {"limits": limits, "cases": table}


# text


def readers(checkpoint: Checkpoint) -> tuple[Contender, Contender]:
    """Ours and the definition, which know no word yet; all is packed."""
    both = (
        Contender.of(checkpoint, f"{OURS}, cold, float32"),
        Contender.of(checkpoint, f"{LOOP}, cold", native=False),
    )
    for each in both:
        each.seconds([["x"]])
    return both


def text(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    sentences = sentences[: arguments.sentences]
    ours, definition = readers(checkpoint)
    apart = farthest(ours.vectors(sentences), definition.vectors(sentences))
    contenders = []
    for weights in WEIGHT_FORMATS:
        cold = Contender.of(checkpoint, f"{OURS}, cold, {weights}", weights)
        contenders += [cold, cold.warm(f"{OURS}, warm, {weights}", sentences)]
    contenders.append(definition)
    works = {each: partial(each.seconds, sentences, keep=True) for each in contenders}
    best, tokens = best_seconds(works, arguments.rounds), tokens_of(sentences)
    rows = [
        {"at once": each.name, "seconds": took, "tokens/s": tokens / took, "ratio": best[definition] / took}
        for each, took in best.items()
    ]
    show(f"{len(sentences):,} sentences, {tokens:,} tokens", rows)
    print(f"largest difference of {OURS}, float32, from the {LOOP}: {apart.difference:.1e}")
    single = one_at_a_time(contenders, sentences[: max(1, len(sentences) // 5)], arguments)
    return {"at once": rows, "difference": apart.difference, "one at a time": single}


def one_at_a_time(contenders: list[Contender], sentences: Sentences, arguments: argparse.Namespace) -> list[Row]:
    taken: dict[Contender, list[float]] = {each: [] for each in contenders}  # of all rounds

    def work(each: Contender) -> float:
        latencies = each.latencies(sentences)
        taken[each] += latencies
        return sum(latencies)

    best = best_seconds({each: partial(work, each) for each in contenders}, arguments.rounds)
    definition, tokens, rows = contenders[-1], tokens_of(sentences), []
    for each, took in best.items():
        p50, p99 = 1e3 * np.percentile(taken[each], [50, 99])
        unseen = Contender.of(Elmo.from_recipe(arguments.recipe).checkpoint, each.name, each.weights, each.native)
        row = {"one at a time": each.name, "tokens/s": tokens / took, "ratio": best[definition] / took}
        row |= {"p50 ms": float(p50), "p99 ms": float(p99), "first ms": 1e3 * unseen.latencies(sentences[:1])[0]}
        rows.append(row)
    show(f"the first {len(sentences):,} of them, {tokens:,} tokens", rows)
    print("first: of a new model, whose weights are packed and whose tables are made; no word is known")
    return rows


# batch


def batch(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    some, result = sentences[: 2 * arguments.sentences], {}
    reader, slow = readers(checkpoint)

    def best(each: Contender, texts: dict[int, Sentences], rounds: int, option: str | None) -> dict[int, float]:
        options: dict[int, Row] = {n: {option: n} if option else {} for n in texts}
        works = {n: partial(each.seconds, chosen, **options[n]) for n, chosen in texts.items()}
        return best_seconds(works, rounds)

    def compare(heading: str, texts: dict[int, Sentences], definition: bool, option: str | None = None) -> None:
        long = {n: chosen for n, chosen in texts.items() if len(chosen) > ONE_ROUND}
        short = {n: chosen for n, chosen in texts.items() if n not in long}
        ours = best(reader, short, arguments.rounds, option) | best(reader, long, 1, option)
        theirs = best(slow, texts, 1, option) if definition else {}
        rows = []
        for n, took in ours.items():
            row: Row = {heading: n, "sentences": len(texts[n]), "tokens": tokens_of(texts[n])}
            row["tokens/s"] = row["tokens"] / took
            if n in theirs:
                row |= {"definition": row["tokens"] / theirs[n], "ratio": theirs[n] / took}
            rows.append(row)
        show(f"throughput by {heading}", rows)
        result[heading] = rows

    compare("batch tokens", dict.fromkeys(BATCHES, some), True, option="batch_tokens")
    compare("sentence length", {n: made_up([n] * max(1, 20 * arguments.sentences // n)) for n in LENGTHS}, True)
    most = min(arguments.corpus, tokens_of(sentences))
    sizes = [10**i for i in range(3, 8) if 10**i <= most] or [most]
    compare("corpus", {n: first_tokens(sentences, n) for n in sizes}, False)
    result["threads"] = by_threads(reader, some, arguments)
    draw(result, arguments.out / "embed.png")
    return result


def by_threads(reader: Contender, sentences: Sentences, arguments: argparse.Namespace) -> list[Row]:
    before, most = torch.get_num_threads(), arguments.threads or os.cpu_count() or 1

    def work(threads: int) -> float:
        torch.set_num_threads(threads)
        return reader.seconds(sentences)

    counts = sorted({most, *(2**n for n in range(most.bit_length()))})
    best, tokens = best_seconds({n: partial(work, n) for n in counts}, arguments.rounds), tokens_of(sentences)
    torch.set_num_threads(before)
    rows = [{"threads": n, "tokens/s": tokens / took, "ratio": best[1] / took} for n, took in best.items()]
    show("throughput by threads", rows)
    return rows


def draw(result: dict[str, list[Row]], path: Path) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    labels = {"batch tokens": "tokens in a batch, with padding", "sentence length": "tokens in a sentence"}
    labels["corpus"] = "tokens in the corpus"
    for axes, (heading, label) in zip(figure.subplots(1, 3), labels.items()):
        rows = result[heading]
        for key, name, colour, marker in zip(("tokens/s", "definition"), (OURS, LOOP), COLOURS, MARKERS):
            if key in rows[0]:
                x, y = [row[heading] for row in rows], [row[key] / 1e3 for row in rows]
                axes.plot(x, y, color=colour, marker=marker, markersize=5, lw=1.4, label=name)
        axes.set(xlabel=label, xscale="log")
        axes.set_ylim(0, 1.1e-3 * max(row["tokens/s"] for row in rows))
        axes.grid(alpha=0.3)
        if heading != "corpus":
            axes.set_xticks([row[heading] for row in rows], [f"{row[heading]:,}" for row in rows])
            axes.minorticks_off()
    figure.axes[0].set_ylabel("thousand tokens a second, cold cache")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


# memory

# By itself: nothing but what embedding needs is imported. The kernel's own peak (VmHWM): that of getrusage begins
# with the memory of the process that started this one.
EMBEDDING = """
import json, sys
from collections import deque
from pathlib import Path
import torch
from elmokit import Elmo

def megabytes(field):
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) / 1024

given = json.load(sys.stdin)
torch.set_num_threads(given["threads"])
imported = megabytes("VmRSS")
elmo = Elmo.from_recipe(given["recipe"], weights=given["weights"])
model = megabytes("VmRSS")
deque(elmo.stream(given["sentences"]), maxlen=0)
print(json.dumps(dict(imported=imported, model=model, after=megabytes("VmRSS"), peak=megabytes("VmHWM"))))
"""


def memory(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> list[Row]:
    sentences, rows = sentences[: arguments.sentences], []
    without_library = {VARIABLE: "torch"}
    for name, weights, chosen in (
        (LOOP, "float32", without_library),
        *((f"{OURS}, {weights}", weights, {}) for weights in WEIGHT_FORMATS),
    ):
        given = {"recipe": arguments.recipe, "weights": weights, "sentences": sentences}
        given["threads"] = torch.get_num_threads()
        options: Any = {"env": os.environ | chosen, "stdout": subprocess.PIPE, "text": True, "check": True}
        done = subprocess.run([sys.executable, "-c", EMBEDDING], input=json.dumps(given), **options)
        rows.append({"memory": name, **json.loads(done.stdout)})
    show(
        f"resident memory in MB: elmokit imported, with a model, after {len(sentences):,} sentences, at most", rows
    )
    return rows


PARTS = {"lstm": lstm, "text": text, "batch": batch, "memory": memory}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--recipe", default="small", help="a fresh model of these sizes; small if not given")
    parser.add_argument("--text", type=Path, metavar="FILE", help="one sentence a line; may be compressed")
    parser.add_argument("--sentences", type=int, default=500, metavar="N", help="of text; 500 if not given")
    parser.add_argument("--corpus", type=int, default=10**5, metavar="N", help="tokens of the largest corpus")
    parser.add_argument("--large", dest="corpus", action="store_const", const=10**6, help="--corpus 1000000")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="5 if not given")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--out", type=Path, default=Path("build/embed"), metavar="FOLDER")
    arguments = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message=lstms.NO_WARNING)
    if variant() == "torch":
        raise SystemExit("the native library is not there: there is nothing to compare")
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    elmo = Elmo.from_recipe(arguments.recipe)
    count = max(2 * arguments.sentences, arguments.corpus // 10 if "batch" in arguments.parts else 0)
    sentences = read_text(arguments.text, elmo, count) if arguments.text else made_up(real_lengths(count))
    about = {name: getattr(arguments, name) for name in ("recipe", "rounds", "sentences")}
    about |= {"text": str(arguments.text or "made up"), "batch_tokens": BATCH_TOKENS}
    about |= {"machine": Machine.here().processor, "threads": torch.get_num_threads(), **versions()}
    print("; ".join(f"{key} {value}" for key, value in about.items()))
    arguments.out.mkdir(parents=True, exist_ok=True)
    result: Row = {"about": about}
    for part in arguments.parts:
        result[part] = PARTS[part](elmo.checkpoint, sentences, arguments)
        write_file(arguments.out / "embed.json", json.dumps(result, indent=1).encode())  # so far


if __name__ == "__main__":
    main()

"""How fast are vectors made, and with how much memory? Ours beside the definition in torch, in one run.

    .venv/bin/python benchmarks/embed.py [--recipe small] [--text FILE] [--parts lstm text batch memory]

lstm    The LSTMs alone, both directions and all layers, weights in three formats; beside them the loop over time
        that defines them (all inputs by one product), the same with AllenNLP's two products a step,
        torch.nn.LSTM(proj_size=...), which does not clip, and the largest rate of torch.mm.
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
import copy
import json
import os
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrain import COLOURS, MARKERS, TorchLSTM, largest_rate, made_up_words, seconds, step_flops
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elmokit import Elmo
from elmokit.atomic import write_file
from elmokit.checkpoint import Checkpoint
from elmokit.embed.reader import BATCH_TOKENS
from elmokit.embed.token_layer import TokenLayer
from elmokit.model.bilm import BiLM, BiLMState, reverse
from elmokit.model.kernels import use, variant
from elmokit.model.kernels.layers import WEIGHT_FORMATS, WeightFormat
from elmokit.model.kernels.library import VARIABLE
from elmokit.model.kernels.recurrent import stack
from elmokit.model.lstm import LSTMState, ProjectedLSTM
from elmokit.text.corpus import LineReader

K = TypeVar("K", bound=Hashable)
Row = dict[str, Any]  # of a table: its heading -> value
Sentences = list[list[str]]

OURS, LOOP, TORCH, PACKED = "ours", "definition", "nn.LSTM, padded", "nn.LSTM, packed"
STEPS = "loop, as AllenNLP's"
VOCABULARY = 100_000
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


def best_seconds(works: dict[K, Callable[[], float]], rounds: int, least: float = 0.0) -> dict[K, float]:
    """The least seconds that each work says it took. They take turns: what disturbs the machine meets them all."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            end = time.perf_counter() + least
            best[name] = min(best[name], work())
            while time.perf_counter() < end:
                best[name] = min(best[name], work())
    return best


def real_lengths(count: int, seed: int = 0) -> NDArray[np.int64]:
    """As sentences of an encyclopaedia are: 22 tokens on average, now and then 60."""
    return 2 + np.random.default_rng(seed).gamma(3.0, 6.9, count).round().astype(np.int64)


@cache
def zipf() -> tuple[list[str], NDArray[np.float64]]:
    weights = (np.arange(1, VOCABULARY + 1) + 2.7) ** -1.1  # as in pretrain.py
    return made_up_words(VOCABULARY), weights / weights.sum()


def made_up(lengths: Sequence[int] | NDArray[np.int64], seed: int = 0) -> Sentences:
    words, shares = zipf()
    drawn = np.random.default_rng(seed).choice(len(words), int(np.sum(lengths)), p=shares).tolist()
    ends = np.cumsum(lengths).tolist()
    return [[words[i] for i in drawn[start:end]] for start, end in zip([0, *ends], ends)]


def read_text(path: Path, elmo: Elmo, count: int) -> Sentences:
    """The first lines, as the model's tokenizer reads them; the same word is the same object, to save memory."""
    with LineReader(path, "skip") as lines:
        sentences = ([sys.intern(token) for token in elmo.tokens(line.text)] for line in lines)
        return list(islice(filter(None, sentences), count))


def first_tokens(sentences: Sentences, count: int) -> Sentences:
    ends = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: 1 + int(np.searchsorted(ends, count))]


def tokens_of(sentences: Sentences) -> int:
    return sum(map(len, sentences))


# lstm


class Batch(NamedTuple):
    x: Tensor  # [B, T, P], zero where padded
    mask: Tensor  # [B, T]
    state: BiLMState

    @classmethod
    def make(cls, bilm: BiLM, lengths: Sequence[int]) -> Batch:  # the longest first
        mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
        x = torch.randn(*mask.shape, bilm.config.lstm.width, generator=torch.Generator().manual_seed(0))
        return cls(x * mask.unsqueeze(-1), mask, bilm.zero_state(len(lengths)))


def by_library(bilm: BiLM, batch: Batch, weights: WeightFormat) -> Tensor:  # [L, B, T, D], as the others
    lstms: Any = [list(bilm.forward_lstms), list(bilm.backward_lstms)]
    return stack(lstms, batch.x, batch.mask.sum(dim=1), *batch.state, weights=weights).layers[1:]


def by_modules(bilm: BiLM, batch: Batch) -> Tensor:
    """Whatever LSTM modules the biLM has, one after the other."""
    lengths = batch.mask.sum(dim=1)
    with use("definition"):
        (left, right), _ = bilm.run((batch.x, reverse(batch.x, lengths)), batch.mask, batch.state)
    return torch.stack([torch.cat([a, reverse(b, lengths)], dim=-1) for a, b in zip(left, right)])


class StepByStep(nn.Module):
    """The loop of AllenNLP's LstmCellWithProjection: two linear maps a step, of its input and of its state."""

    def __init__(self, ours: ProjectedLSTM) -> None:
        super().__init__()
        self.ours = ours

    def forward(self, x: Tensor, mask: Tensor, state: LSTMState, begins: Tensor | None = None) -> Any:
        ours, outputs, now = self.ours, [], state
        for step, real in zip(x.unbind(1), mask.unbind(1)):
            h, now = ours(step.unsqueeze(1), real.unsqueeze(1), now)
            outputs.append(h)
        return torch.cat(outputs, dim=1), now


def by_packed(bilm: BiLM, batch: Batch) -> Tensor:
    """torch's LSTMs without computing padding."""
    lengths, sides = batch.mask.sum(dim=1), []
    inputs = (batch.x, reverse(batch.x, lengths))
    for x, lstms in zip(inputs, (bilm.forward_lstms, bilm.backward_lstms)):
        now, side = pack_padded_sequence(x, lengths, batch_first=True), []
        for layer, module in enumerate(lstms):
            h, _ = module.lstm(now)
            skips = bilm.config.lstm.skip and layer > 0
            now = PackedSequence(h.data + now.data, h.batch_sizes) if skips else h
            side.append(pad_packed_sequence(now, batch_first=True)[0])
        sides.append(side)
    return torch.stack([torch.cat([a, reverse(b, lengths)], dim=-1) for a, b in zip(*sides)])


def apart(found: Tensor, expected: Tensor, mask: Tensor) -> Row:
    """The largest difference of a value, and the lowest cosine of a token's vectors."""
    found, expected = found[:, mask], expected[:, mask]
    cosine = F.cosine_similarity(found.double(), expected.double(), dim=-1)
    return {"difference": float((found - expected).abs().max()), "cosine": float(cosine.min())}


@torch.no_grad()
def lstm(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    bilm, config = checkpoint.bilm, checkpoint.bilm.config
    with_torch = copy.deepcopy(bilm)
    with_torch.forward_lstms = nn.ModuleList(map(TorchLSTM, bilm.forward_lstms))
    with_torch.backward_lstms = nn.ModuleList(map(TorchLSTM, bilm.backward_lstms))
    by_step = copy.deepcopy(bilm)
    by_step.forward_lstms = nn.ModuleList(map(StepByStep, bilm.forward_lstms))
    by_step.backward_lstms = nn.ModuleList(map(StepByStep, bilm.backward_lstms))
    many = real_lengths(64).tolist()
    cases = {  # lengths, the longest first
        "1 sentence of 25 tokens": [25],
        "32 sentences": sorted(many[:32], reverse=True),
        "64 sentences": sorted(many, reverse=True),
    }
    works: dict[tuple[str, str], Callable[[], Tensor]] = {}
    batches = {case: Batch.make(bilm, lengths) for case, lengths in cases.items()}
    for case, batch in batches.items():
        works |= {
            (case, f"{OURS}, {weights}"): partial(by_library, bilm, batch, weights) for weights in WEIGHT_FORMATS
        }
        works[case, LOOP] = partial(by_modules, bilm, batch)
        works[case, STEPS] = partial(by_modules, by_step, batch)
        works[case, TORCH] = partial(by_modules, with_torch, batch)
        works[case, PACKED] = partial(by_packed, with_torch, batch)
    values = {key: work() for key, work in works.items()}  # and all is packed
    limits: list[float] = []
    timed: dict[Any, Callable[[], float]] = {key: partial(seconds, work) for key, work in works.items()}
    timed["limit"] = lambda: limits.append(largest_rate()) or 0.0
    best, table = best_seconds(timed, arguments.rounds, SHORT), {}
    limit = max(limits)
    for case, lengths in cases.items():
        tokens = sum(lengths)
        flops = sum(step_flops(config, 0, 0, tokens, 0, 0).values()) / 3  # forward alone
        table[case] = rows = []
        for name in (name for other, name in works if other == case):
            took = best[case, name]
            row = {"LSTMs": name, "ms": 1e3 * took, "tokens/s": tokens / took, "GFLOP/s": flops / took / 1e9}
            row |= {"of limit": flops / took / limit, "ratio": best[case, LOOP] / took}
            row["to AllenNLP's"] = best[case, STEPS] / took
            rows.append(row | apart(values[case, name], values[case, LOOP], batches[case].mask))
        show(f"{case}, {tokens:,} tokens", rows)
    print(f"largest torch.mm: {limit / 1e9:.1f} GFLOP/s; ratio, difference and cosine are from the {LOOP}")
    return {"limit": limit, "cases": table}


# text


class Contender(NamedTuple):
    name: str
    weights: WeightFormat = "float32"
    native: bool = True
    warm: TokenLayer | None = None  # words that are known already

    def reader(self, checkpoint: Checkpoint, **options: Any) -> Elmo:
        elmo = Elmo(checkpoint, weights=self.weights, **options)
        if self.warm is not None:
            elmo.token_layer = self.warm
        return elmo

    def kernels(self) -> AbstractContextManager[object]:
        return nullcontext() if self.native else use("definition")

    def seconds(self, checkpoint: Checkpoint, sentences: Sentences, keep: bool = False, **options: Any) -> float:
        """Of reading the sentences with a new reader."""
        elmo = self.reader(checkpoint, **options)
        with self.kernels():
            return seconds(lambda: elmo.embed(sentences) if keep else deque(elmo.stream(sentences), maxlen=0))

    def latencies(self, checkpoint: Checkpoint, sentences: Sentences) -> list[float]:
        elmo = self.reader(checkpoint)
        with self.kernels():
            return [seconds(partial(elmo.embed, [sentence])) for sentence in sentences]


READER, DEFINITION = Contender(f"{OURS}, cold"), Contender(f"{LOOP}, cold", native=False)


def text(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    sentences = sentences[: arguments.sentences]
    known = READER.reader(checkpoint)
    ours = known.embed(sentences)
    with use("definition"):
        expected = DEFINITION.reader(checkpoint).embed(sentences)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(ours, expected))
    warm = [Contender(f"{OURS}, warm, {name}", name, warm=known.token_layer) for name in WEIGHT_FORMATS]
    contenders = [READER, *warm, DEFINITION]
    for each in contenders:
        each.seconds(checkpoint, sentences[:1])  # all is packed
    works = {each: partial(each.seconds, checkpoint, sentences, keep=True) for each in contenders}
    best, tokens = best_seconds(works, arguments.rounds), tokens_of(sentences)
    rows = [
        {"at once": each.name, "seconds": took, "tokens/s": tokens / took, "ratio": best[DEFINITION] / took}
        for each, took in best.items()
    ]
    show(f"{len(sentences):,} sentences, {tokens:,} tokens", rows)
    print(f"largest difference of {OURS} from the {LOOP}: {difference:.1e}")
    single = one_at_a_time(checkpoint, contenders, sentences[: max(1, len(sentences) // 5)], arguments)
    return {"at once": rows, "difference": difference, "one at a time": single}


def one_at_a_time(
    checkpoint: Checkpoint, contenders: list[Contender], sentences: Sentences, arguments: argparse.Namespace
) -> list[Row]:
    taken: dict[Contender, list[float]] = {each: [] for each in contenders}  # of all rounds

    def work(each: Contender) -> float:
        latencies = each.latencies(checkpoint, sentences)
        taken[each] += latencies
        return sum(latencies)

    best = best_seconds({each: partial(work, each) for each in contenders}, arguments.rounds)
    tokens, rows = tokens_of(sentences), []
    for each, took in best.items():
        p50, p99 = 1e3 * np.percentile(taken[each], [50, 99])
        unseen = Elmo.from_recipe(arguments.recipe).checkpoint
        first = 1e3 * each._replace(warm=None).latencies(unseen, sentences[:1])[0]
        row = {"one at a time": each.name, "tokens/s": tokens / took, "ratio": best[DEFINITION] / took}
        rows.append(row | {"p50 ms": float(p50), "p99 ms": float(p99), "first ms": first})
    show(f"the first {len(sentences):,} of them, {tokens:,} tokens", rows)
    print("first: of a new model, whose weights are packed and whose tables are made; no word is known")
    return rows


# batch


def batch(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> Row:
    some, result = sentences[: 2 * arguments.sentences], {}
    for each in (READER, DEFINITION):
        each.seconds(checkpoint, some[:32])  # all is packed

    def best(each: Contender, texts: dict[int, Sentences], rounds: int, option: str | None) -> dict[int, float]:
        options: dict[int, Row] = {n: {option: n} if option else {} for n in texts}
        works = {n: partial(each.seconds, checkpoint, chosen, **options[n]) for n, chosen in texts.items()}
        return best_seconds(works, rounds)

    def compare(heading: str, texts: dict[int, Sentences], definition: bool, option: str | None = None) -> None:
        long = {n: chosen for n, chosen in texts.items() if len(chosen) > ONE_ROUND}
        short = {n: chosen for n, chosen in texts.items() if n not in long}
        ours = best(READER, short, arguments.rounds, option) | best(READER, long, 1, option)
        theirs = best(DEFINITION, texts, 1, option) if definition else {}
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
    result["threads"] = by_threads(checkpoint, some, arguments)
    draw(result, arguments.out / "embed.png")
    return result


def by_threads(checkpoint: Checkpoint, sentences: Sentences, arguments: argparse.Namespace) -> list[Row]:
    before, most = torch.get_num_threads(), arguments.threads or os.cpu_count() or 1

    def work(threads: int) -> float:
        torch.set_num_threads(threads)
        return READER.seconds(checkpoint, sentences)

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
    for each in (
        Contender(LOOP, native=False),
        *(Contender(f"{OURS}, {weights}", weights) for weights in WEIGHT_FORMATS),
    ):
        given = {"recipe": arguments.recipe, "weights": each.weights, "sentences": sentences}
        given["threads"] = torch.get_num_threads()
        chosen = {} if each.native else {VARIABLE: "torch"}
        options: Any = {"env": os.environ | chosen, "stdout": subprocess.PIPE, "text": True, "check": True}
        done = subprocess.run([sys.executable, "-c", EMBEDDING], input=json.dumps(given), **options)
        rows.append({"memory": each.name, **json.loads(done.stdout)})
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
    warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
    if variant() == "torch":
        raise SystemExit("the native library is not there: there is nothing to compare")
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    elmo = Elmo.from_recipe(arguments.recipe)
    count = max(2 * arguments.sentences, arguments.corpus // 10 if "batch" in arguments.parts else 0)
    sentences = read_text(arguments.text, elmo, count) if arguments.text else made_up(real_lengths(count))
    if not sentences:
        raise SystemExit(f"{arguments.text}: expected sentences, found none")
    about = {name: getattr(arguments, name) for name in ("recipe", "rounds", "sentences")}
    about |= {"text": str(arguments.text or "made up"), "batch_tokens": BATCH_TOKENS}
    about |= {"threads": torch.get_num_threads(), "kernels": variant(), "torch": torch.__version__}
    print("; ".join(f"{key} {value}" for key, value in about.items()))
    arguments.out.mkdir(parents=True, exist_ok=True)
    result: Row = {"about": about}
    for part in arguments.parts:
        result[part] = PARTS[part](elmo.checkpoint, sentences, arguments)
        write_file(arguments.out / "embed.json", json.dumps(result, indent=1).encode())  # so far


if __name__ == "__main__":
    main()

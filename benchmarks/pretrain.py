"""How fast does pretraining go, and what does a recipe learn? Two questions, each measured in one run.

    .venv/bin/python benchmarks/pretrain.py speed [--recipe small] [--vocabulary 100000] [--threads 2]
    .venv/bin/python benchmarks/pretrain.py learn TEXT... [--recipes published small] [--out FOLDER]

speed   Whole training steps (forward, backward, update) on made-up Zipfian text: ours; the same with products of
        bfloat16, where the processor has them (--only elmokit: these two alone); with other LSTMs; and a step
        that is written plainly (every token through the CNN). Beside them, the best torch.mm of float32.
        Then float32 and bfloat16 beside the peak of their own products (torch.mm), with what a step consists of.
        Steps take turns, window by window; a pace is that of its best round. FLOPs are those of matrix products
        over distinct tokens, with and without the character CNN, which tables save us.
learn   Recipes, one after the other, on the same text, vocabulary, held-out lines and number of tokens. Ctrl-C
        saves; the same command resumes. Writes FOLDER/comparison.json and .png; FOLDER/runs/RECIPE holds a run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.atomic import write_file
from elmokit.bench.flops import step_flops
from elmokit.bench.lstms import TorchLSTM, with_lstms
from elmokit.bench.rates import largest_rate, seconds
from elmokit.bench.sentences import made_up_words, zipf_shares
from elmokit.checkpoint import Checkpoint
from elmokit.model.bilm import BiLM
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.kernels.bfloat16 import Precision, available
from elmokit.model.kernels.library import variant
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import LSTMState, ProjectedLSTM
from elmokit.pretrain.corpus import Corpus, CorpusParts
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.preparation import prepare
from elmokit.pretrain.progress import TrainingProgress
from elmokit.pretrain.recipe import Recipe, load_recipe
from elmokit.pretrain.run import CORPUS, Run
from elmokit.pretrain.run_config import RUN, Budget, RunConfig
from elmokit.pretrain.step import Trainer
from elmokit.pretrain.windows import WindowStream
from elmokit.show.figures import COLOURS, MARKERS
from elmokit.text.corpus import expand_sources
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import SPECIALS, Vocabulary

OURS = "elmokit"
BFLOAT16 = "elmokit, bfloat16"
# The same with other LSTMs: torch's own, which does not clip, and the loop over time that is their definition.
TORCH, LOOP = "its LSTMs as nn.LSTM", "its LSTMs as a loop"
# All of it as anybody would write it.
PLAIN_TORCH, PLAIN = "plain, nn.LSTM", "plain autograd loop"


class LoopLSTM(nn.Module):
    """The definition, a loop over time that autograd follows, whatever faster path there is."""

    def __init__(self, ours: ProjectedLSTM) -> None:
        super().__init__()
        self.lstm = ours

    def forward(
        self, x: Tensor, mask: Tensor, state: LSTMState, begins: Tensor | None
    ) -> tuple[Tensor, LSTMState]:
        return self.lstm(x, mask, state, begins)


class PlainEncoder(nn.Module):
    """The character CNN as it is written down: every token of the batch, every position of a token."""

    def __init__(self, ours: CharEncoder) -> None:
        super().__init__()
        self.ours = ours

    def encode(self, ids: Tensor) -> Tensor:  # [N, C] -> [N, P]
        characters = self.ours.character_embedding(ids).transpose(1, 2)
        x = torch.cat(
            [torch.relu(filters(characters).max(dim=-1).values) for filters in self.ours.convolutions], -1
        )
        for highway in self.ours.highway:
            x = highway(x)
        return self.ours.projection(x)


class PlainTrainer(Trainer):
    """Tells no token from another: each is encoded wherever it stands. The softmax and the updates are ours."""

    def encode(self, inputs: NDArray[np.int64]) -> Tensor:
        ids = torch.from_numpy(self.spelling[inputs.reshape(-1)].astype(np.int64))
        return self.bilm.encoder.encode(ids).view(*inputs.shape, -1)


def plainly(kind: Callable[[ProjectedLSTM], nn.Module], bilm: BiLM) -> BiLM:
    bilm.encoder = PlainEncoder(bilm.encoder)
    return with_lstms(kind, bilm)


def made_up_corpus(folder: Path, words: Sequence[str], tokens: int) -> Corpus:
    """Sentences of 20 words on average, by Zipf and Mandelbrot: p(rank) ~ (rank + 2.7) ** -1.1.

    So steep, a step of 64 x 20 has as many distinct tokens as in English Wikipedia: about 960.
    """
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(words), tokens, p=zipf_shares(len(words)))
    ends = np.cumsum(1 + rng.poisson(19, 1 + tokens // 10))
    text = "".join(" ".join(words[i] for i in line) + "\n" for line in np.split(drawn, ends[ends < tokens]))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return prepare([folder / "text.txt"], folder / CORPUS, TokenizerConfig("whitespace"), split=False).train


def speed(arguments: argparse.Namespace) -> None:
    from step_parts import StepFigures  # beside this script

    warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
    chosen = [f"train.{name}={getattr(arguments, name)}" for name in ("rows", "steps", "vocabulary", "negatives")]
    # The softmax is sampled wherever it can be, and the state is carried: torch's LSTM cannot forget midway.
    recipe = load_recipe(arguments.recipe, [*chosen, "train.full_softmax=1", "train.state=carry"])
    train = recipe.train
    columns = train.negatives + 1 if train.vocabulary > train.negatives else train.vocabulary
    words = made_up_words(train.vocabulary - len(SPECIALS))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        corpus = made_up_corpus(Path(folder), words, max(50_000, 2 * train.rows * train.steps * arguments.rounds))

        def trainer(
            change: Callable[[BiLM], BiLM], kind: type[Trainer] = Trainer, precision: Precision = "float32"
        ) -> Trainer:
            torch.manual_seed(0)
            head = LanguageHead(train.vocabulary, recipe.model.lstm.width, train.softmax_width)
            bilm = change(BiLM(recipe.model))
            model = Checkpoint(bilm, recipe.mapper, recipe.tokenizer, Vocabulary(words), head)
            settings = dataclasses.replace(train, precision=precision)
            return stack.enter_context(closing(kind(model, corpus, settings, recipe.optimizer)))

        trainers = {OURS: trainer(lambda bilm: bilm)}
        if available():
            trainers[BFLOAT16] = trainer(lambda bilm: bilm, precision="bfloat16")
        if arguments.only != OURS:
            trainers |= {
                TORCH: trainer(partial(with_lstms, TorchLSTM)),
                LOOP: trainer(partial(with_lstms, LoopLSTM)),
                PLAIN_TORCH: trainer(partial(plainly, TorchLSTM), PlainTrainer),
                PLAIN: trainer(partial(plainly, LoopLSTM), PlainTrainer),
            }
        # The windows that both are going to see, to count what is in them.
        windows = WindowStream(corpus, rows=train.rows, steps=train.steps, seed=train.seed)
        next(windows)
        first = [trainer.train_step(0.5).loss for trainer in trainers.values()]  # and warm
        best, limit = dict.fromkeys(trainers, 0.0), 0.0  # FLOP/s
        own = StepFigures({name: trainers[name] for name in (OURS, BFLOAT16) if name in trainers})
        parts, tokens = Counter[str](), 0  # of all rounds
        for _, window in zip(range(arguments.rounds), windows):
            distinct = np.unique([window.forward_inputs, window.backward_inputs]).size
            sizes = (distinct, window.begins.size, window.tokens, columns)
            counted = step_flops(recipe.model, recipe.mapper.width, *sizes, train.softmax_width)
            parts.update(counted)
            tokens += window.tokens
            for name in trainers:
                step = partial(trainers[name].train_step, 0.5)
                took = own.step(name, window) if name in own.trainers else seconds(step)
                best[name] = max(best[name], sum(counted.values()) / took)
            limit = max(limit, largest_rate())
            own.measure_peaks()
    total = sum(parts.values())
    print(f"recipe {arguments.recipe}; {', '.join(chosen)}; {recipe.optimizer.kind}")
    print(f"threads: {torch.get_num_threads()}; best of {arguments.rounds} rounds; torch {torch.__version__}")
    print(f"kernels: {variant()}; products of bfloat16 in hardware: {'yes' if available() else 'no'}")
    print(f"loss of the first step: {', '.join(f'{loss:.5f}' for loss in first)}")
    print(f"\n{'of a step':<20} {'GFLOP':>8} {'share':>7}")
    for part, flops in [*parts.items(), ("together", total)]:
        print(f"{part:<20} {flops / 1e9 / arguments.rounds:>8.2f} {flops / total:>7.1%}")
    # The character CNN's products are looked up, not computed: what is left is what the machine multiplies.
    real = total - parts["character CNN"]
    print(f"\n{'':<21} {'ms/step':>8} {'tokens/s':>9} {'of limit':>9} {'with CNN':>9} {'elmokit is':>11}")
    for name, rate in best.items():
        pace = f"{1e3 * total / rate / arguments.rounds:>8.1f} {tokens * rate / total:>9,.0f}"
        shares = (
            f"{rate * real / total / limit:>9.1%} {rate / limit:>9.1%}"
            if name in (OURS, BFLOAT16, TORCH, LOOP)
            else " " * 19
        )
        print(f"{name:<21} {pace} {shares} {best[OURS] / rate:>9.2f} x")
    print(f"largest torch.mm: {limit / 1e9:.1f} GFLOP/s")
    if BFLOAT16 in best:
        print(f"bfloat16: a step is {best[BFLOAT16] / best[OURS]:.2f} x as fast as in float32")
    own.show()


class Point(NamedTuple):
    tokens: int
    seconds: float  # of training, without measuring
    perplexity: float  # held out, full softmax, both directions


def reaches(curve: Sequence[Point], perplexity: float) -> tuple[float, float] | None:
    """Tokens and seconds at which the curve first comes down to a perplexity; None where it never does."""
    for before, point in zip([None, *curve], curve):
        if point.perplexity <= perplexity:
            if before is None:  # what was before it is not known
                return point.tokens, point.seconds
            # The logarithm, taken as straight between two points.
            share = math.log(before.perplexity / perplexity) / math.log(before.perplexity / point.perplexity)
            return tuple(a + share * (b - a) for a, b in zip(before[:2], point[:2]))
    return None


def compare(curves: dict[str, list[Point]]) -> dict[str, dict[str, Any]]:
    """Each recipe beside the first: its end, and its share of what the first one took to get to its own end."""
    goal = next(iter(curves.values()))[-1]
    table = {}
    for name, curve in curves.items():
        at = reaches(curve, goal.perplexity)
        shares = {"goal_tokens": at and at[0] / goal.tokens, "goal_seconds": at and at[1] / goal.seconds}
        table[name] = {**curve[-1]._asdict(), "ratio": curve[-1].perplexity / goal.perplexity, **shares}
    return table


def shared_recipes(names: Sequence[str], settings: Sequence[str]) -> dict[str, Recipe]:
    """The recipes, with the first one's words: perplexities over other vocabularies could not be compared."""
    first = load_recipe(names[0], settings)
    same = [f"train.{key}={getattr(first.train, key)}" for key in ("vocabulary", "min_count")]
    tell(f"all recipes, as {names[0]} and --set have it: {', '.join(same)}, tokenizer {first.tokenizer.name}")
    recipes = {Path(name).stem: load_recipe(name, [*same, *settings]) for name in names}
    if len(recipes) < len(names):
        raise ValueError(f"expected recipes of different names, found {' '.join(names)}")
    return {name: dataclasses.replace(recipe, tokenizer=first.tokenizer) for name, recipe in recipes.items()}


def shared_corpus(folder: Path, texts: list[str], tokenizer: TokenizerConfig, held_out: float) -> Corpus:
    if not folder.exists():
        tell("reading the text")
        folder.parent.mkdir(parents=True, exist_ok=True)
        prepare(texts, folder, tokenizer, held_out=held_out)
    corpus, held_out_corpus = CorpusParts.open(folder)
    found = corpus.meta["sources"], corpus.tokenizer, corpus.meta["held_out"]
    if found != ([str(path) for path in expand_sources(texts)], tokenizer, held_out):
        raise ValueError(f"{folder} was made from {', '.join(found[0])}, or otherwise: choose another --out")
    if held_out_corpus is None:
        raise ValueError("no line was held out, so there is nothing to measure on: give more text, or --held-out")
    return corpus


def open_run(folder: Path, config: RunConfig) -> Run:
    """A new run, or the one that lies there; its corpus is a link to the shared one."""
    if (folder / RUN).is_file():
        run = Run.open(folder)
        if run.config != config:
            raise ValueError(f"{folder} was begun with other settings: give those, or choose another --out")
        return run
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CORPUS).is_symlink():
        (folder / CORPUS).symlink_to(Path("..", "..", CORPUS), target_is_directory=True)
    return Run.create(folder, config)


def train(folder: Path, config: RunConfig, stop: Callable[[], bool]) -> list[Point]:
    """To the end of the budget: the curve. Or until `stop`, which ends the program."""
    run = open_run(folder, config)

    def show(now: TrainingProgress) -> None:
        if now.message is not None:
            tell(now.message)
        if now.perplexity is not None:
            tell(
                f"{folder.name}: {now.tokens:,} tokens, {run.seconds:,.0f} s, perplexity {now.perplexity.mean:.2f}"
            )
        if now.seconds_left is not None and sys.stderr.isatty():
            pace = f"{now.tokens_per_second:,.0f} tokens/s, {now.seconds_left / 60:.0f} min left"
            print(f"\r{folder.name}: {now.fraction:.1%}, {pace}  ", end="", file=sys.stderr, flush=True)

    with closing(run):
        if not run.train(show, stop).finished:
            raise SystemExit(f"stopped at {run.progress:.1%} of {folder.name}; the same command resumes")
    rows = [row for row in read_metrics(folder) if "perplexity" in row]
    return [Point(int(row["tokens"]), row["seconds"], row["perplexity"]) for row in rows]


def learn(arguments: argparse.Namespace) -> None:
    out, recipes = arguments.out, shared_recipes(arguments.recipes, arguments.set)
    tokenizer = next(iter(recipes.values())).tokenizer
    corpus = shared_corpus(out / CORPUS, arguments.texts, tokenizer, arguments.held_out)
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *caught: stopped.append(caught[0]))
    budget, texts = Budget(tokens=arguments.tokens), tuple(arguments.texts)
    measuring = {"evaluations": arguments.evaluations, "held_out_sentences": arguments.sentences}
    configs = {name: RunConfig(recipe, budget, texts, **measuring) for name, recipe in recipes.items()}
    curves = {name: train(out / "runs" / name, configs[name], lambda: bool(stopped)) for name in configs}
    table = compare(curves)
    result = {name: {**table[name], "curve": [point._asdict() for point in curves[name]]} for name in curves}
    about = {"corpus_tokens": corpus.tokens, "settings": arguments.set, "threads": torch.get_num_threads()}
    write_file(out / "comparison.json", json.dumps({**about, "recipes": result}, indent=1).encode())
    draw(curves, out / "comparison.png")
    print(f"{corpus.tokens:,} tokens of text, {arguments.tokens:,} tokens of training for each recipe")
    print(f"{'':<14} perplexity   ratio  tokens/s   seconds   to {next(iter(curves))}'s end: tokens, seconds")
    for name, row in table.items():
        figures = f"{row['perplexity']:>10.2f} {row['ratio']:>7.3f} {row['tokens'] / row['seconds']:>9,.0f}"
        goal = row["goal_tokens"] and f"x {row['goal_tokens']:.3f}, x {row['goal_seconds']:.3f}"
        print(f"{name:<14} {figures} {row['seconds']:>9,.1f}   {goal or 'never'}")


def draw(curves: dict[str, list[Point]], path: Path) -> None:
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    scales = {"tokens": (1e6, "tokens seen (millions)"), "seconds": (60, "training time (minutes)")}
    for axes, (key, (unit, label)) in zip(panels, scales.items()):
        for (name, curve), colour, marker in zip(curves.items(), cycle(COLOURS), cycle(MARKERS)):
            x, y = [getattr(point, key) / unit for point in curve], [point.perplexity for point in curve]
            axes.plot(x, y, color=colour, marker=marker, markersize=4, lw=1.2, label=name)
        axes.set(xlabel=label, yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("held-out perplexity (full softmax)")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def tell(message: str) -> None:
    print(f"\r{message}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("speed", help="how fast does a training step go?")
    one.set_defaults(run=speed)
    one.add_argument("--recipe", default="small")
    for name, default in {"vocabulary": 100_000, "negatives": 8192, "rows": 64, "steps": 20, "rounds": 5}.items():
        one.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{default} if not given")
    one.add_argument("--only", choices=[OURS], help="leave out what is compared with: float32 and bfloat16 alone")
    two = commands.add_parser("learn", help="what does a recipe learn?")
    two.set_defaults(run=learn)
    two.add_argument("texts", nargs="+", metavar="TEXT")
    two.add_argument("--recipes", nargs="+", default=["published", "small"], metavar="RECIPE")
    two.add_argument("--tokens", type=int, default=5_000_000, help="of training, for each recipe")
    two.add_argument("--out", type=Path, default=Path("build/pretrain-comparison"), metavar="FOLDER")
    two.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for all recipes")
    two.add_argument("--held-out", type=float, default=0.005, help="share of the lines to measure on")
    two.add_argument("--sentences", type=int, default=2000, help="of them, at most, in one measurement")
    two.add_argument("--evaluations", type=int, default=20)
    for command in (one, two):
        command.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    arguments.run(arguments)


if __name__ == "__main__":
    main()

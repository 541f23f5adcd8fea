"""How fast does pretraining go, and what does a recipe learn? Two questions, each measured in one run.

    .venv/bin/python benchmarks/pretrain.py speed [--recipe small] [--vocabulary 100000] [--threads 2]
    .venv/bin/python benchmarks/pretrain.py learn TEXT... [--recipes published small] [--tokens 5000000] [--out FOLDER]

speed   Whole training steps (forward, backward, update) on made-up Zipfian text: ours, and the same with the LSTMs
        replaced by torch.nn.LSTM(proj_size=...), which does not clip; beside them, the largest rate of torch.mm.
        Steps take turns, window by window; a pace is that of its best round. FLOPs are those that the published
        definition asks for: work that is saved, such as convolving padding, shows as a larger share of the limit.
learn   Recipes, one after the other, on the same text, vocabulary, held-out lines and number of tokens. Ctrl-C
        saves; the same command goes on. Writes FOLDER/comparison.json and .png; FOLDER/runs/RECIPE holds a run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.atomic import write_file
from elmokit.checkpoint import Checkpoint
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import LSTMState, ProjectedLSTM
from elmokit.pretrain.metrics import NEED_EXTRA, read_metrics
from elmokit.pretrain.prepared import PreparedCorpus, prepare
from elmokit.pretrain.recipe import Recipe, load_recipe
from elmokit.pretrain.run import CORPUS, RUN, Budget, Report, Run, RunConfig
from elmokit.pretrain.train import Trainer
from elmokit.pretrain.windows import Window, WindowStream
from elmokit.text.corpus import expand_sources
from elmokit.text.tokens import TokeniserConfig
from elmokit.text.vocabulary import SPECIALS, Vocabulary

OURS, TORCH = "elmokit", "nn.LSTM, unclipped"
MATRICES = (1024, 2048, 3072)  # sides of the square products whose best rate is the limit
# Okabe and Ito's colours, told apart by every kind of colour vision; markers for those who print in grey.
STYLES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "x"),
]


# speed


class TorchLSTM(nn.Module):
    """torch's own projected LSTM with the weights, and the call, of ours."""

    def __init__(self, ours: ProjectedLSTM) -> None:
        super().__init__()
        config = ours.config
        self.lstm = nn.LSTM(ours.input_weight.shape[1], config.cells, proj_size=config.width, batch_first=True)
        gates = torch.tensor([0.0, config.forget_bias, 0.0, 0.0]).repeat_interleave(config.cells)
        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(ours.input_weight)
            self.lstm.weight_hh_l0.copy_(ours.hidden_weight)
            self.lstm.weight_hr_l0.copy_(ours.projection_weight)
            self.lstm.bias_ih_l0.copy_(ours.bias + gates)
            self.lstm.bias_hh_l0.zero_()

    def forward(
        self, x: Tensor, mask: Tensor, state: LSTMState, begins: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        assert begins is None  # it knows neither padding nor beginnings; windows of a carried stream have none
        h, (hidden, cell) = self.lstm(x, (state.hidden.unsqueeze(0), state.cell.unsqueeze(0)))
        return h, LSTMState(hidden[0], cell[0])


def with_torch_lstms(bilm: BiLM) -> BiLM:
    bilm.forward_lstms = nn.ModuleList(TorchLSTM(lstm) for lstm in bilm.forward_lstms)
    bilm.backward_lstms = nn.ModuleList(TorchLSTM(lstm) for lstm in bilm.backward_lstms)
    return bilm


def made_up_words(count: int, rng: np.random.Generator) -> list[str]:
    """Different words, by rank: the frequent ones are short, the rare ones 8 or 9 letters on average."""
    lengths = 2 + rng.poisson(0.4 * np.log2(np.arange(1, count + 1)))
    words: dict[str, None] = {}
    for length in lengths:
        word = ""
        while not word or word in words:  # a letter more each time: there are few short words
            word = "".join(map(chr, rng.integers(ord("a"), ord("z") + 1, max(length, len(word) + 1))))
        words[word] = None
    return list(words)


def made_up_corpus(folder: Path, words: Sequence[str], tokens: int, rng: np.random.Generator) -> PreparedCorpus:
    """Sentences of 20 words on average, whose words follow Zipf and Mandelbrot: p(rank) ~ 1 / (rank + 2.7)."""
    weights = 1 / (np.arange(1, len(words) + 1) + 2.7)
    drawn = rng.choice(len(words), tokens, p=weights / weights.sum())
    ends = np.cumsum(1 + rng.poisson(19, 1 + tokens // 10))
    sentences = np.split(drawn, ends[ends < tokens])
    text = "".join(" ".join(words[i] for i in sentence) + "\n" for sentence in sentences)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return prepare([folder / "text.txt"], folder / CORPUS, TokeniserConfig("whitespace"), split=False)[0]


def step_flops(
    config: BiLMConfig, characters: int, *, distinct: int, inputs: int, predictions: int, columns: int
) -> dict[str, float]:
    """Of a training step, by part: matrix products alone, 2 a multiply-add; backward costs twice what forward does.

    distinct      tokens that the encoder sees, each at all `characters` positions
    inputs        steps of all rows, of one direction; so are `predictions`, those that have a target
    columns       words that a prediction is chosen from: the sampled ones and the target, or the vocabulary
    """
    encoder, lstm = config.encoder, config.lstm
    if not isinstance(encoder, CharEncoderConfig):
        raise ValueError("FLOPs are counted for encoders of characters; this recipe has none")
    filters = sum(count for _, count in encoder.filters)
    positions = sum(width * count * (characters - width + 1) for width, count in encoder.filters)
    products = {  # multiply-adds, forward
        "character CNN": distinct * encoder.embedding * positions,
        "highway": distinct * encoder.highway * 2 * filters**2,
        "projection": distinct * encoder.features * lstm.width * encoder.projection,
        "LSTM, input": 2 * lstm.layers * inputs * 4 * lstm.cells * lstm.width,
        "LSTM, recurrent": 2 * lstm.layers * inputs * 4 * lstm.cells * lstm.width,
        "LSTM, projection": 2 * lstm.layers * inputs * lstm.cells * lstm.width,
        "softmax": 2 * predictions * columns * lstm.width,
    }
    return {part: 3.0 * 2.0 * count for part, count in products.items()}


def window_flops(trainer: Trainer, window: Window) -> dict[str, float]:
    return step_flops(
        trainer.bilm.config,
        trainer.model.mapper.width,
        distinct=np.unique([window.forward_inputs, window.backward_inputs]).size,
        inputs=window.forward_inputs.size,
        predictions=window.tokens,
        columns=trainer.config.negatives + 1 if trainer.sampler else len(trainer.model.vocabulary or ()),
    )


def product_rate(side: int) -> float:
    """FLOP/s of one big fp32 product."""
    a, b, out = (torch.ones(side, side) for _ in range(3))
    return 2.0 * side**3 / min(seconds(lambda: torch.mm(a, b, out=out)) for _ in range(2))


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(arguments: argparse.Namespace) -> None:
    warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
    chosen = [f"train.{name}={getattr(arguments, name)}" for name in ("rows", "steps", "vocabulary", "negatives")]
    # The softmax is sampled wherever it can be, and the state is carried: torch's LSTM cannot forget midway.
    recipe = load_recipe(arguments.recipe, [*chosen, "train.full_softmax=1", "train.state=carry"])
    rng = np.random.default_rng(0)
    words = made_up_words(arguments.vocabulary - len(SPECIALS), rng)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        tokens = max(50_000, 2 * arguments.rows * arguments.steps * (arguments.rounds + 1))
        corpus = made_up_corpus(Path(name), words, tokens, rng)

        def trainer(change: Callable[[BiLM], BiLM]) -> Trainer:
            torch.manual_seed(0)
            bilm, head = BiLM(recipe.model), LanguageHead(arguments.vocabulary, recipe.model.lstm.width)
            model = Checkpoint(change(bilm), recipe.mapper, recipe.tokeniser, Vocabulary(words), head)
            return stack.enter_context(closing(Trainer(model, corpus, recipe.train, recipe.optimiser)))

        trainers = {OURS: trainer(lambda bilm: bilm), TORCH: trainer(with_torch_lstms)}
        # The windows that both are going to see, to count what is in them.
        windows = WindowStream(corpus, rows=recipe.train.rows, steps=recipe.train.steps, seed=recipe.train.seed)
        next(windows)
        first = {name: trainer.train_step(0.5).loss for name, trainer in trainers.items()}
        best, limit = dict.fromkeys(trainers, 0.0), 0.0  # FLOP/s
        counted, predicted = [], []
        for window, _ in zip(windows, range(arguments.rounds)):
            counted.append(window_flops(trainers[OURS], window))
            predicted.append(window.tokens)
            for name, trainer_ in trainers.items():
                took = seconds(lambda trainer_=trainer_: trainer_.train_step(0.5))
                best[name] = max(best[name], sum(counted[-1].values()) / took)
            limit = max(limit, *map(product_rate, MATRICES))
    parts = {part: float(np.mean([flops[part] for flops in counted])) for part in counted[0]}
    train, total, tokens_a_step = recipe.train, sum(parts.values()), float(np.mean(predicted))
    print(
        f"recipe {arguments.recipe}: {train.rows} rows x {train.steps} steps, {train.vocabulary:,} words, "
        f"{train.negatives:,} negatives, {recipe.optimiser.kind}\n"
        f"{torch.get_num_threads()} threads, best of {arguments.rounds} rounds, torch {torch.__version__}\n"
        f"loss of the first step: {first[OURS]:.5f}, with nn.LSTM {first[TORCH]:.5f}\n"
    )
    print(f"{'of a step':<20} {'GFLOP':>8} {'share':>7}")
    for part, flops in [*parts.items(), ("together", total)]:
        print(f"{part:<20} {flops / 1e9:>8.2f} {flops / total:>7.1%}")
    print(f"\n{'':<20} {'ms/step':>8} {'tokens/s':>9} {'GFLOP/s':>8} {'of limit':>9} {'ratio':>6}")
    for name, rate in best.items():
        pace = f"{1e3 * total / rate:>8.1f} {tokens_a_step * rate / total:>9,.0f}"
        print(f"{name:<20} {pace} {rate / 1e9:>8.1f} {rate / limit:>9.1%} {rate / best[TORCH]:>6.2f}")
    print(f"{'largest torch.mm':<20} {'':>8} {'':>9} {limit / 1e9:>8.1f} {1:>9.1%}")


# learn


class Point(NamedTuple):
    tokens: int
    seconds: float  # of training, without measuring
    perplexity: float  # held out, full softmax, both directions


def read_curve(folder: Path) -> list[Point]:
    rows = [row for row in read_metrics(folder) if "perplexity" in row]
    return [Point(int(row["tokens"]), row["seconds"], row["perplexity"]) for row in rows]


def reaches(curve: Sequence[Point], perplexity: float) -> tuple[float, float] | None:
    """Tokens and seconds at which the curve first comes down to a perplexity; None where it never does.

    Between two points, the logarithm is taken as straight. Before the first one nothing is known: it counts.
    """
    before = None
    for point in curve:
        if point.perplexity <= perplexity:
            if before is None:
                return point.tokens, point.seconds
            share = math.log(before.perplexity / perplexity) / math.log(before.perplexity / point.perplexity)
            return (
                before.tokens + share * (point.tokens - before.tokens),
                before.seconds + share * (point.seconds - before.seconds),
            )
        before = point
    return None


def compare(curves: dict[str, list[Point]]) -> dict[str, dict[str, float | None]]:
    """Each recipe beside the first: its end, and what it takes to get to where the first one ended."""
    goal = next(iter(curves.values()))[-1]
    table: dict[str, dict[str, float | None]] = {}
    for name, curve in curves.items():
        at = reaches(curve, goal.perplexity)
        table[name] = {
            **curve[-1]._asdict(),
            "ratio": curve[-1].perplexity / goal.perplexity,
            "goal_tokens": at and at[0] / goal.tokens,
            "goal_seconds": at and at[1] / goal.seconds,
        }
    return table


def shared_recipes(names: Sequence[str], settings: Sequence[str]) -> dict[str, Recipe]:
    """The recipes, with the first one's words: perplexities over other vocabularies could not be compared."""
    first = load_recipe(names[0], settings)
    same = [f"train.{key}={getattr(first.train, key)}" for key in ("vocabulary", "min_count")]
    tell(f"all recipes: {', '.join(same)}, tokeniser {first.tokeniser.name} (from {names[0]}, --set)")
    recipes = {Path(name).stem: load_recipe(name, [*same, *settings]) for name in names}
    if len(recipes) < len(names):
        raise ValueError(f"expected recipes of different names, found {' '.join(names)}")
    return {name: dataclasses.replace(recipe, tokeniser=first.tokeniser) for name, recipe in recipes.items()}


def shared_corpus(
    folder: Path, texts: Sequence[str], tokeniser: TokeniserConfig, held_out: float
) -> PreparedCorpus:
    if not folder.exists():
        tell("reading the text")
        folder.parent.mkdir(parents=True, exist_ok=True)
        prepare(texts, folder, tokeniser, held_out=held_out)
    corpus = PreparedCorpus.open(folder / "train")
    found = corpus.meta["sources"], corpus.tokeniser, corpus.meta["held_out"]
    if found != ([str(path) for path in expand_sources(texts)], tokeniser, held_out):
        raise ValueError(f"{folder} was made from {', '.join(found[0])}, or otherwise: choose another --out")
    if not (folder / "held-out").is_dir():
        raise ValueError("no line was held out, so there is nothing to measure on: give more text, or --held-out")
    return corpus


def open_run(folder: Path, config: RunConfig) -> Run:
    if not (folder / RUN).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / CORPUS
        if not link.is_symlink():
            link.symlink_to(Path("..", "..", CORPUS), target_is_directory=True)
        return Run.create(folder, config)
    run = Run.open(folder)
    if run.config != config:
        run.close()
        raise ValueError(f"{folder} was begun with other settings: give the same ones, or choose another --out")
    return run


def train(name: str, run: Run, stop: Callable[[], bool]) -> bool:
    """To the end of its budget, or until `stop`; whether it is the end."""

    def report(now: Report) -> None:
        if sys.stderr.isatty():
            line = f"{name}: {now.progress:.1%}  {now.tokens_per_second:,.0f} tokens/s  loss {now.result.loss:.3f}"
            print(f"\r{line}  {now.seconds_left / 60:.0f} min left ", end="", file=sys.stderr, flush=True)

    def measured(perplexity: Any) -> None:
        tell(f"{name}: {run.trainer.tokens:,} tokens, {run.seconds:,.0f} s: perplexity {perplexity.mean:.2f}")

    # A run that has ended already would measure its end once more.
    return run.progress >= 1 or run.train(report, measured, tell, stop).finished


def learn(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    recipes = shared_recipes(arguments.recipes, arguments.set)
    tokeniser = next(iter(recipes.values())).tokeniser
    corpus = shared_corpus(out / CORPUS, arguments.texts, tokeniser, arguments.held_out)
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.append(number))
    curves: dict[str, list[Point]] = {}
    for name, recipe in recipes.items():
        config = RunConfig(
            recipe,
            Budget(tokens=arguments.tokens),
            tuple(arguments.texts),
            evaluations=arguments.evaluations,
            held_out_sentences=arguments.sentences,
        )
        with closing(open_run(out / "runs" / name, config)) as run:
            if not train(name, run, stop=lambda: bool(stopped)):
                raise SystemExit(f"stopped at {run.progress:.1%} of {name}; the same command goes on")
            vocabulary = len(run.trainer.model.vocabulary or ())
        curves[name] = read_curve(out / "runs" / name)
    table = compare(curves)
    result = {
        "text": [Path(text).name for text in arguments.texts],
        "corpus_tokens": corpus.tokens,
        "vocabulary": vocabulary,
        "threads": torch.get_num_threads(),
        "settings": arguments.set,
        "recipes": {name: {**table[name], "curve": [p._asdict() for p in curves[name]]} for name in curves},
    }
    write_file(out / "comparison.json", (json.dumps(result, indent=1) + "\n").encode())
    draw(curves, out / "comparison.png")
    first = next(iter(curves))
    print(f"{corpus.tokens:,} tokens of text, {vocabulary:,} words, {arguments.tokens:,} tokens of training each")
    print(
        f"{'':<14} {'perplexity':>10} {'ratio':>7} {'tokens/s':>9} {'seconds':>9}   to {first}'s end: tokens, seconds"
    )
    for name, row in table.items():
        goal = (
            "never" if row["goal_tokens"] is None else f"x {row['goal_tokens']:.3f}, x {row['goal_seconds']:.3f}"
        )
        pace = f"{row['tokens'] / row['seconds']:>9,.0f} {row['seconds']:>9,.0f}"
        print(f"{name:<14} {row['perplexity']:>10.2f} {row['ratio']:>7.3f} {pace}   {goal}")


def draw(curves: dict[str, list[Point]], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return tell(f"no {path.name}: it needs matplotlib ({NEED_EXTRA})")
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    scales = {"tokens": (1e6, "tokens seen (millions)"), "seconds": (60, "training time (minutes)")}
    for axes, (key, (unit, label)) in zip(panels, scales.items()):
        for (name, curve), (colour, marker) in zip(curves.items(), STYLES * len(curves)):
            x = [getattr(point, key) / unit for point in curve]
            y = [point.perplexity for point in curve]
            axes.plot(x, y, color=colour, marker=marker, markersize=4, lw=1.2, label=name)
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("held-out perplexity (full softmax)")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    return None


def tell(message: str) -> None:
    print(f"\r{message}", file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("speed", help="how fast does a training step go?")
    command.add_argument("--recipe", default="small")
    command.add_argument("--vocabulary", type=int, default=100_000, help="words that are predicted")
    command.add_argument("--negatives", type=int, default=8192)
    command.add_argument("--rows", type=int, default=64)
    command.add_argument("--steps", type=int, default=20, help="of a window")
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--threads", type=int)
    command.set_defaults(run=speed)
    command = commands.add_parser("learn", help="what does a recipe learn?")
    command.add_argument("texts", nargs="+", metavar="TEXT")
    command.add_argument("--recipes", nargs="+", default=["published", "small"], metavar="RECIPE")
    command.add_argument("--tokens", type=int, default=5_000_000, help="of training, for each recipe")
    command.add_argument("--out", type=Path, default=Path("build/pretrain-comparison"), metavar="FOLDER")
    command.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for all recipes")
    command.add_argument("--held-out", type=float, default=0.005, help="share of the lines to measure on")
    command.add_argument("--sentences", type=int, default=2000, help="of them, at most, in one measurement")
    command.add_argument("--evaluations", type=int, default=20)
    command.add_argument("--threads", type=int)
    command.set_defaults(run=learn)
    arguments = parser.parse_args(given)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        arguments.run(arguments)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()

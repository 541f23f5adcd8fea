"""elmo probe: what each layer of a model knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import AsJson, Model, Threads, Tokeniser, use_threads

if TYPE_CHECKING:
    from elmokit.analysis.layers import Report
    from elmokit.analysis.tagging import TagProbeResult

probe = typer.Typer(
    name="probe",
    help="What each layer of a model knows: parts of speech, word senses, classes of sentences.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="Example: `elmo probe pos train.conllu dev.conllu -m MODEL`. Each probe has its own --help.",
)

Train = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="What the probe learns from; also .gz .bz2 .xz .zst.")
]
Dev = Annotated[Path, typer.Argument(metavar="DEV", help="What it is measured on, always whole.")]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Learn from so many sentences at most, chosen by the seed.")
]
Seed = Annotated[int, typer.Option(help="Which training sentences --limit chooses; nothing else is random.")]
Penalty = Annotated[float, typer.Option(help="The penalty on the probe's squared weights: 1/C of scikit-learn.")]
Vectors = Annotated[
    Path | None,
    typer.Option(help="Static word vectors (GloVe, word2vec, fastText; also .gz .xz) to compare with."),
]


@probe.command()
def pos(
    train: Train,
    dev: Dev,
    *,
    model: Model,
    vectors: Vectors = None,
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Parts of speech (UPOS of CoNLL-U files), by a linear probe on each layer: accuracy on DEV.

    Examples:

    `elmo probe pos train.conllu.xz dev.conllu -m MODEL`

    `elmo probe pos train.conllu dev.conllu -m MODEL --vectors glove.txt --limit 2000 --json`
    """
    _tags(train, dev, "upos", model, vectors, limit, seed, l2, threads, as_json)


@probe.command()
def tags(
    train: Train,
    dev: Dev,
    *,
    model: Model,
    column: Annotated[
        str, typer.Option(help="The tags' column: a number from 1, or upos or xpos of CoNLL-U.")
    ] = "2",
    vectors: Vectors = None,
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Any tags of tokens (`token TAB tag` or CoNLL-U), by a linear probe on each layer: accuracy on DEV.

    Examples:

    `elmo probe tags train.conll dev.conll -m MODEL`

    `elmo probe tags train.conllu dev.conllu --column xpos -m MODEL`
    """
    _tags(train, dev, column, model, vectors, limit, seed, l2, threads, as_json)


@probe.command()
def wsd(
    train: Train,
    tests: Annotated[list[Path], typer.Argument(metavar="TEST...", help="What it is measured on; one or more.")],
    *,
    model: Model,
    index: Annotated[
        Path | None,
        typer.Option(help="WordNet's index.sense: the first sense for words that TRAIN does not have."),
    ] = None,
    limit: Limit = None,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Word senses by the nearest mean vector of a sense in TRAIN, for each layer: F1.

    TRAIN and TEST are X.data.xml of the unified WSD framework, with X.gold.key.txt beside each.

    Examples:

    `elmo probe wsd semcor.data.xml.xz semeval2007.data.xml --index index.sense.xz -m MODEL`

    `elmo probe wsd semcor.data.xml senseval2.data.xml semeval2007.data.xml -m MODEL --limit 5000 --json`
    """
    use_threads(threads)
    from elmokit.analysis.framework import read_senses, read_wordnet_index
    from elmokit.analysis.senses import SenseProbe
    from elmokit.embed.embedder import Elmo

    elmo = Elmo.from_pretrained(model)
    questions = [read_senses(test) for test in tests]  # first: they are small, and may be wrong
    first = None if index is None else read_wordnet_index(index)
    with _progress() as report:
        learned = SenseProbe(elmo, read_senses(train), first, limit=limit, seed=seed, report=report)
        results = [learned.evaluate(question, report) for question in questions]
    if as_json:
        scores = [_named_scores(asdict(result)) for result in results]
        _print_json({"model": model, "train": str(train), "index": index and str(index), "tests": scores})
        return
    rows = [_layers([r.by_layer[i].f1 for r in results], i) for i in range(elmo.layers)]
    rows.append(("mean of the layers", [r.mean.f1 for r in results]))
    rows.append(("most frequent sense in training", [r.most_frequent.f1 for r in results]))
    if first is not None:
        rows.append(("first sense of WordNet", [r.first_sense.f1 for r in results if r.first_sense]))
    _print_table("F1", [result.test for result in results], rows)
    one = results[0]
    typer.echo(
        f"{one.train_sentences:,} training sentences, {one.train_instances:,} instances, {one.senses:,} senses"
    )
    for result in results:
        typer.echo(f"{result.test}: {result.instances:,} instances, {result.unseen:,} of a lemma not in training")


@probe.command()
def text(
    train: Train,
    dev: Dev,
    *,
    model: Model,
    text_column: Annotated[str, typer.Option(help="The name of the texts' column.")] = "document",
    label_column: Annotated[str, typer.Option(help="The name of the labels' column.")] = "label",
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    tokeniser: Tokeniser = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Classes of sentences (TSV files with a header), by a linear probe on the mean vector: accuracy on DEV.

    Examples:

    `elmo probe text ratings_train.txt.xz ratings_dev.txt -m MODEL --limit 10000`

    `elmo probe text train.tsv dev.tsv --text-column sentence --label-column label -m MODEL --json`
    """
    use_threads(threads)
    from elmokit.analysis.classification import probe_text
    from elmokit.embed.embedder import Elmo

    elmo = Elmo.from_pretrained(model, tokeniser=tokeniser)
    columns = {"text_column": text_column, "label_column": label_column}
    with _progress() as report:
        result = probe_text(elmo, train, dev, **columns, l2=l2, limit=limit, seed=seed, report=report)
    if as_json:
        _print_json({"model": model, "train": str(train), "dev": str(dev), **asdict(result)})
        return
    rows = [_layers([accuracy], layer) for layer, accuracy in enumerate(result.by_layer)]
    rows += [("all layers side by side", [result.concatenated]), ("the most frequent class", [result.baseline])]
    _print_table("", ["accuracy"], rows)
    typer.echo(
        f"{result.classes} classes, {result.train_examples:,} examples to learn, {result.dev_examples:,} to test"
    )


@probe.command()
def pairs(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON: words, their two senses, contexts of each.")],
    *,
    model: Model,
    tokeniser: Tokeniser = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """How often a [marked] word is nearer to its own sense than to the other, by layer. 50 % is chance.

    FILE is a list of `{"word": "bank", "senses": [{"gloss": "...", "contexts": ["the [bank] .", ...]}, {...}]}`.

    Example:

    `elmo probe pairs senses.json -m MODEL`
    """
    use_threads(threads)
    from elmokit.analysis.pairs import probe_pairs
    from elmokit.embed.embedder import Elmo

    result = probe_pairs(Elmo.from_pretrained(model, tokeniser=tokeniser), file)
    if as_json:
        _print_json({"model": model, "file": str(file), **asdict(result)})
        return
    columns = [*(f"layer {layer}" for layer in range(len(result.by_layer))), "mean of the layers"]
    rows = [(score.word, [*score.by_layer, score.mean]) for score in result.words]
    rows.append(("contexts nearer to their own sense", [*result.by_layer, result.mean]))
    rows.append(("words told apart", [*result.told_apart, result.told_apart_mean]))
    _print_table("", columns, rows)
    typer.echo(f"{len(result.words):,} words, {result.questions:,} contexts")


def _tags(
    train: Path,
    dev: Path,
    column: str,
    model: str,
    vectors: Path | None,
    limit: int | None,
    seed: int,
    l2: float,
    threads: int | None,
    as_json: bool,
) -> None:
    use_threads(threads)
    from elmokit.analysis.tagging import probe_tags
    from elmokit.embed.embedder import Elmo

    elmo = Elmo.from_pretrained(model)
    with _progress() as report:
        result = probe_tags(
            elmo, train, dev, column, vectors=vectors, l2=l2, limit=limit, seed=seed, report=report
        )
    if as_json:
        _print_json({"model": model, "train": str(train), "dev": str(dev), **asdict(result)})
    else:
        _print_tags(result)


def _print_tags(result: TagProbeResult) -> None:
    rows = [_layers([accuracy], layer) for layer, accuracy in enumerate(result.by_layer)]
    rows.append(("mean of the layers", [result.mean]))
    if result.vectors is not None:
        rows.append(("static word vectors", [result.vectors]))
    rows.append(("each word's most frequent tag", [result.baseline]))
    _print_table("", ["accuracy"], rows)
    typer.echo(
        f"{result.tags} tags; {result.train_tokens:,} tokens to learn, {result.dev_tokens:,} to test", nl=False
    )
    typer.echo(f", {result.unknown:.1%} of them new")
    if result.without_vector is not None:
        typer.echo(f"{result.without_vector:.1%} of the tokens to test have no static vector")


def _layers(values: list[float], layer: int) -> tuple[str, list[float]]:
    return f"layer {layer}" + (" (context-free)" if layer == 0 else ""), values


def _print_table(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, list[float]]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(corner)
    for column in columns:
        table.add_column(escape(column), justify="right")
    for name, values in rows:
        table.add_row(escape(name), *(f"{100 * value:.2f}" for value in values))
    Console().print(table)


def _named_scores(facts: dict[str, object]) -> dict[str, object]:
    """Named tuples are lists in JSON; here they keep their names."""
    from elmokit.analysis.senses import Score

    def named(value: object) -> object:
        if isinstance(value, Score):
            return value._asdict()
        return [named(each) for each in value] if isinstance(value, tuple) else value

    return {key: named(value) for key, value in facts.items()}


def _print_json(facts: dict[str, object]) -> None:
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))


@contextmanager
def _progress() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=None)

        def report(stage: str, done: int, total: int) -> None:
            if bar.tasks[0].description != stage:
                bar.reset(task, description=stage, total=total)  # a stage has a pace of its own
            bar.update(task, completed=done, total=total)

        yield report

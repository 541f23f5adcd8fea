"""elmo probe: what each layer of a model knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.exhibits import Save, show
from elmokit.cli.shared.help import Command, Group
from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Header,
    LabelColumn,
    Model,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    Weights,
    WeightsName,
    opened,
    use_threads,
)
from elmokit.progress import terminal_bar

probe = typer.Typer(
    name="probe",
    cls=Group,
    help="What each layer of a model knows: parts of speech, word senses, classes of sentences.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="Example: `elmo probe pos train.conllu dev.conllu`. Each probe has its own --help.",
)

Train = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="What the probe learns from; also .gz .bz2 .xz .zst.")
]
Dev = Annotated[Path, typer.Argument(metavar="DEV", help="What it is measured on, always whole.")]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="SENTENCES", help="Learn from this number of sentences at most, chosen by the seed."
    ),
]
Seed = Annotated[int, typer.Option(help="Which training sentences --limit chooses; nothing else is random.")]
Penalty = Annotated[float, typer.Option(help="The penalty on the probe's squared weights: 1/C of scikit-learn.")]
Vectors = Annotated[
    Path | None,
    typer.Option(help="Static word vectors (GloVe, word2vec, fastText; also .gz .xz) to compare with."),
]


@probe.command(cls=Command)
def pos(
    train: Train,
    dev: Dev,
    *,
    model: Model = DEFAULT_MODEL,
    weights: Weights = "float32",
    vectors: Vectors = None,
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Parts of speech (UPOS of CoNLL-U files), by a linear probe on each layer: accuracy on DEV.

    Examples:

    `elmo probe pos train.conllu.xz dev.conllu`

    `elmo probe pos train.conllu dev.conllu --vectors glove.txt --limit 2000 --save figures`
    """
    _tags(train, dev, "upos", model, weights, vectors, limit, seed, l2, threads, save, as_json)


@probe.command(cls=Command)
def tags(
    train: Train,
    dev: Dev,
    *,
    model: Model = DEFAULT_MODEL,
    weights: Weights = "float32",
    column: Annotated[
        str, typer.Option(help="The tags' column: a number from 1, or upos or xpos of CoNLL-U.")
    ] = "2",
    vectors: Vectors = None,
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Any tags of tokens (`token TAB tag` or CoNLL-U), by a linear probe on each layer: accuracy on DEV.

    Examples:

    `elmo probe tags train.conll dev.conll`

    `elmo probe tags train.conllu dev.conllu --column xpos`
    """
    _tags(train, dev, column, model, weights, vectors, limit, seed, l2, threads, save, as_json)


@probe.command(cls=Command)
def wsd(
    train: Train,
    tests: Annotated[list[Path], typer.Argument(metavar="TEST", help="What it is measured on; one or more.")],
    *,
    model: Model = DEFAULT_MODEL,
    weights: Weights = "float32",
    index: Annotated[
        Path | None,
        typer.Option(help="WordNet's index.sense: the first sense for words that TRAIN does not have."),
    ] = None,
    limit: Limit = None,
    seed: Seed = 0,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Word senses by the nearest mean vector of a sense in TRAIN, for each layer: F1.

    TRAIN and TEST are X.data.xml of the unified WSD framework, with X.gold.key.txt beside each.

    Examples:

    `elmo probe wsd semcor.data.xml.xz semeval2007.data.xml --index index.sense.xz`

    `elmo probe wsd semcor.data.xml senseval2.data.xml semeval2007.data.xml --limit 5000 --json`
    """
    use_threads(threads)
    from elmokit.analysis.probes.senses import probe_senses

    with terminal_bar() as on_progress:
        result = probe_senses(
            opened(model, weights), train, tests, index=index, limit=limit, seed=seed, on_progress=on_progress
        )
    facts = {
        "model": model,
        "weights": weights,
        "train": str(train),
        "index": index and str(index),
        **result.to_dict(),
    }
    show(result.exhibit(), facts, save, as_json)


@probe.command(cls=Command)
def text(
    train: Train,
    dev: Dev,
    *,
    model: Model = DEFAULT_MODEL,
    weights: Weights = "float32",
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    limit: Limit = None,
    seed: Seed = 0,
    l2: Penalty = 1.0,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Classes of sentences (tables: CSV, TSV, JSON lines), by a linear probe on the mean vector: accuracy on DEV.

    Examples:

    `elmo probe text ratings_train.txt.xz ratings_dev.txt --limit 10000`

    `elmo probe text train.csv dev.csv --text-column review --label-column stars --json`
    """
    use_threads(threads)
    from elmokit.analysis.probes.classification import probe_text

    with terminal_bar() as on_progress:
        result = probe_text(
            opened(model, weights, tokenizer),
            train,
            dev,
            text_column=text_column,
            label_column=label_column,
            header=header,
            table_format=table_format,
            l2=l2,
            limit=limit,
            seed=seed,
            on_progress=on_progress,
        )
    facts = {"model": model, "weights": weights, "train": str(train), "dev": str(dev), **result.to_dict()}
    show(result.exhibit(), facts, save, as_json)


@probe.command(cls=Command)
def pairs(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON: words, their two senses, contexts of each. Or en or ko: bundled ones."
        ),
    ],
    *,
    model: Model = DEFAULT_MODEL,
    weights: Weights = "float32",
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """How often a [marked] word is nearer to its own sense than to the other, by layer. 50 % is chance.

    FILE is a list of `{"word": "bank", "senses": [{"gloss": "...", "contexts": ["the [bank] .", ...]}, {...}]}`.

    Examples:

    `elmo probe pairs ko -m ko-small`

    `elmo probe pairs senses.json`
    """
    use_threads(threads)
    from elmokit.analysis.probes.pairs import probe_pairs

    with terminal_bar() as on_progress:
        result = probe_pairs(opened(model, weights, tokenizer), file, on_progress=on_progress)
    show(
        result.exhibit(),
        {"model": model, "weights": weights, "file": str(file), **result.to_dict()},
        save,
        as_json,
    )


def _tags(
    train: Path,
    dev: Path,
    column: str,
    model: str,
    weights: WeightsName,
    vectors: Path | None,
    limit: int | None,
    seed: int,
    l2: float,
    threads: int | None,
    save: Path | None,
    as_json: bool,
) -> None:
    use_threads(threads)
    from elmokit.analysis.probes.tagging import probe_tags

    with terminal_bar() as on_progress:
        result = probe_tags(
            opened(model, weights),
            train,
            dev,
            column,
            vectors=vectors,
            l2=l2,
            limit=limit,
            seed=seed,
            on_progress=on_progress,
        )
    facts = {"model": model, "weights": weights, "train": str(train), "dev": str(dev), **result.to_dict()}
    show(result.exhibit(), facts, save, as_json)

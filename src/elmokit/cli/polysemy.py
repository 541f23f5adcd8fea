"""elmo polysemy: one word's occurrences in two dimensions, by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.exhibits import Save, progress, save_exhibits, show
from elmokit.cli.shared.options import AsJson, Model, Threads, Tokenizer, use_threads
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.analysis.contexts.polysemy import Occurrence, PolysemyResult
    from elmokit.embed.embedder import Elmo


def polysemy(
    word: Annotated[str, typer.Argument(metavar="WORD", help="For --tagged, as a dictionary has it.")],
    *,
    model: Model,
    corpus: Annotated[
        Path | None, typer.Option(metavar="TEXT", help="Plain text, also .gz .bz2 .xz .zst: senses unknown.")
    ] = None,
    senses: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Two senses a word: JSON as of elmo probe pairs, or en or ko."),
    ] = None,
    tagged: Annotated[
        Path | None, typer.Option(metavar="XML", help="A sense-tagged corpus: X.data.xml, its keys beside it.")
    ] = None,
    form: Annotated[
        list[str] | None, typer.Option(help="In --corpus, also a token of this form; as often as you like.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(min=2, help="So many occurrences at most: of --corpus the first, of --tagged by the seed."),
    ] = 200,
    seed: Annotated[int, typer.Option(help="Which occurrences of --tagged the limit chooses.")] = 0,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """A word's occurrences in two dimensions by layer, coloured by sense; and how well the senses part.

    Examples:

    `elmo polysemy play --tagged semcor.data.xml.xz -m MODEL --save figures`

    `elmo polysemy bank --corpus text.txt.xz --form banks -m MODEL --save figures`

    `elmo polysemy 배가 --senses ko --corpus text.txt.xz -m ko-small --save figures`
    """
    sources = [source for source in (corpus, senses, tagged) if source is not None]
    if len(sources) != 1 and (not sources or tagged is not None):
        raise UserError(
            f"expected --tagged, or --corpus or --senses or these two, found {len(sources) or 'none of them'}"
        )
    if form and corpus is None:
        raise UserError("--form goes with --corpus: the others say themselves where the word is")
    use_threads(threads)
    from elmokit.analysis.contexts.polysemy import view_word
    from elmokit.embed.embedder import Elmo

    elmo = Elmo.from_pretrained(model, tokenizer=tokenizer)
    with progress() as report:
        found = _occurrences(elmo, word, corpus, senses, tagged, form or [], limit, seed)
        source = " and ".join(source.name for source in sources) + (f", seed {seed}" if tagged else "")
        result = view_word(elmo, word, found, source=source, report=report)
    facts = {"model": model, "files": [str(source) for source in sources], "seed": seed, **_facts(result)}
    show(result.exhibit(), facts, save, as_json)
    save_exhibits([result.listing()], save)


def _occurrences(
    elmo: Elmo,
    word: str,
    corpus: Path | None,
    senses: Path | None,
    tagged: Path | None,
    forms: list[str],
    limit: int,
    seed: int,
) -> list[Occurrence]:
    from elmokit.analysis.contexts.polysemy import occurrences_in_pairs, occurrences_in_tagged, occurrences_in_text
    from elmokit.analysis.probes.sense_corpus import read_senses

    if tagged is not None:
        return occurrences_in_tagged(read_senses(tagged), word, limit=limit, seed=seed)
    known = [] if senses is None else occurrences_in_pairs(elmo, senses, word)
    unknown = [] if corpus is None else occurrences_in_text(elmo, corpus, word, forms=forms, limit=limit)
    return known + unknown


def _facts(result: PolysemyResult) -> dict[str, object]:
    occurrences = [
        {"sentence": o.sentence, "form": o.form, "sense": o.sense, "points": [layer[i] for layer in result.points]}
        for i, o in enumerate(result.occurrences)
    ]
    return {
        "word": result.word,
        "separation": result.separation,
        "chance": result.chance,
        "variance": result.variance,
        "senses": dict(result.senses),
        "occurrences": occurrences,
    }

"""The sections of a report on layers: neighbours, senses, tags, pairs and occurrences, made now.

Each raises UserError where the data lacks what it is made from; what only a part of it lacks is a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elmokit.analysis.contexts.index import ContextIndex
from elmokit.analysis.contexts.neighbours import neighbours
from elmokit.analysis.contexts.polysemy import polysemy
from elmokit.analysis.probes.pairs import pairs_file, probe_pairs, read_pairs
from elmokit.analysis.probes.senses import probe_senses
from elmokit.analysis.probes.tagging import probe_tags
from elmokit.errors import UserError
from elmokit.show.html import Section
from elmokit.study.report_plan import Material, need


def neighbours_section(heading: str, material: Material) -> Section:
    data, plan = material.data, material.plan
    if not data.queries:
        raise UserError("the data has no queries, sentences with a [marked] word")
    vectors, notes = material.static_vectors()
    if plan.index is None:
        need("corpus", data.corpus)
        where: dict[str, Any] = {"corpus": [data.corpus], "split": True, "limit": plan.contexts}
        options: tuple[object, ...] = ("--corpus", data.corpus, "--split", "--limit", plan.contexts)
    else:
        where = {"index": ContextIndex.open(plan.index, material.elmo)}
        options = ("--index", plan.index)
    if vectors is not None:
        options += ("--vectors", vectors)
    exhibits, commands = [], []
    for number, query in enumerate(data.queries, start=1):
        try:
            found = neighbours(material.elmo, query, vectors=vectors, on_progress=material.on_progress, **where)
        except UserError as error:
            notes.append(f"Query {number} is left out: {error}.")
            continue
        exhibits.append(found.exhibit(number))
        commands.append(plan.command("neighbours", query, *options, "-m", plan.model))
    return Section(
        heading,
        "Static vectors know one word of all its senses. The biLM's upper layers find contexts in which it means "
        "the same.",
        exhibits,
        missing=" ".join(notes),
        command="\n".join(commands),
    )


def senses_section(heading: str, material: Material) -> Section:
    senses, plan = material.data.senses, material.plan
    if senses is None:
        raise UserError("the data has no [senses], a sense-tagged corpus")
    need("sense-tagged corpus", senses.train, *senses.tests, senses.index)
    result = probe_senses(
        material.elmo,
        material.sense_corpus,
        senses.tests,
        index=senses.index,
        limit=plan.limit,
        seed=plan.seed,
        on_progress=material.on_progress,
    )
    index = ("--index", senses.index) if senses.index else ()
    return Section(
        heading,
        "The nearest of the senses' mean vectors in a sense-tagged corpus; a word that it does not have is given "
        "its first sense.",
        [result.exhibit()],
        command=plan.command(
            *("probe", "wsd", senses.train, *senses.tests, "-m", plan.model), *index, *plan.limited
        ),
    )


def tags_section(heading: str, material: Material) -> Section:
    tags, plan = material.data.tags, material.plan
    if tags is None:
        raise UserError("the data has no [tags], tagged sentences")
    need("tagged sentences", tags.train, tags.dev)
    vectors, notes = material.static_vectors()
    result = probe_tags(
        material.elmo,
        tags.train,
        tags.dev,
        tags.column,
        vectors=vectors,
        limit=plan.limit,
        seed=plan.seed,
        on_progress=material.on_progress,
    )
    static = ("--vectors", vectors) if vectors else ()
    return Section(
        heading,
        "A linear classifier on each layer: what it can tell, the layer has ready at hand.",
        [result.exhibit()],
        missing=" ".join(notes),
        command=plan.command(
            *("probe", "tags", tags.train, tags.dev, "--column", tags.column, "-m", plan.model),
            *static,
            *plan.limited,
        ),
    )


def pairs_section(heading: str, material: Material) -> Section:
    pairs, plan = material.data.pairs, material.plan
    need("pairs, words in two senses", pairs and str(pairs_file(pairs)))
    assert pairs is not None
    return Section(
        heading,
        "Is a word nearer to contexts of its own sense than to those of the other? Layer 0 cannot know.",
        [probe_pairs(material.elmo, pairs, on_progress=material.on_progress).exhibit()],
        command=plan.command("probe", "pairs", pairs, "-m", plan.model),
    )


def occurrences_section(heading: str, material: Material) -> Section:
    data, plan, notes = material.data, material.plan, list[str]()
    if not data.words:
        raise UserError("the data names no words")
    paired: set[str] = set()
    if data.senses is not None:
        need("sense-tagged corpus", data.senses.train)
    else:
        need("sense-tagged corpus and no plain text", data.corpus)
        paired = _paired_words(material, notes)
    exhibits, commands = [], []
    for word in data.words:
        if data.senses is not None:
            where: dict[str, Any] = {"tagged": material.sense_corpus, "seed": plan.seed}
            options: tuple[object, ...] = ("--tagged", data.senses.train, *plan.seeded)
        else:
            senses = data.pairs if word in paired else None
            where = {"corpus": data.corpus, "senses": senses}
            options = ("--corpus", data.corpus, *(("--senses", senses) if senses else ()))
        try:
            found = polysemy(material.elmo, word, on_progress=material.on_progress, **where)
        except UserError as error:
            notes.append(str(error))
            continue
        exhibits.append(found.exhibit())
        commands.append(plan.command("polysemy", word, *options, "-m", plan.model))
    return Section(
        heading,
        "Each point is an occurrence, each colour a sense where it is known, in the two dimensions that show most "
        "of a layer.",
        exhibits,
        missing="; ".join(notes),
        command="\n".join(commands),
    )


def _paired_words(material: Material, notes: list[str]) -> set[str]:
    """Words of which the pairs know contexts in two senses: of others, plain text does not tell the sense."""
    pairs = material.data.pairs
    if pairs is None:
        return set()
    try:
        need("pairs", str(pairs_file(pairs)))
        return {pair.word for pair in read_pairs(pairs)}
    except UserError as error:
        notes.append(f"no sense is known: {error}")
        return set()


LAYER_SECTIONS: dict[str, Callable[[str, Material], Section]] = {
    "Nearest neighbours": neighbours_section,
    "Word senses": senses_section,
    "Parts of speech": tags_section,
    "One word in two senses": pairs_section,
    "A word's occurrences": occurrences_section,
}

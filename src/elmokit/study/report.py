"""Everything that the paper shows of its biLM, for any model, on one page. What cannot be made leaves a note."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit import __version__
from elmokit.analysis.contexts.index import ContextIndex
from elmokit.analysis.contexts.marked import read_marked
from elmokit.analysis.contexts.neighbours import Neighbours, corpus_neighbours, index_neighbours
from elmokit.analysis.contexts.polysemy import (
    Occurrence,
    occurrences_in_pairs,
    occurrences_in_tagged,
    occurrences_in_text,
    view_word,
)
from elmokit.analysis.probes.pairs import pairs_file, probe_pairs, read_pairs
from elmokit.analysis.probes.sense_corpus import SenseCorpus, read_senses, read_wordnet_index
from elmokit.analysis.probes.senses import SenseProbe, senses_exhibit
from elmokit.analysis.probes.tagging import probe_tags
from elmokit.embed.arrays import Report, silent
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit
from elmokit.show.html import Section, render_page
from elmokit.study.data import StudyData, missing
from elmokit.study.experiments import EXPERIMENTS
from elmokit.study.sweep import BASELINE, ELMO, Measured, check_data, read_results, read_study
from elmokit.tasks import TASKS

RECIPE, RUNS = "laptop", "runs"  # the default of `elmo study`, and a folder for who has none


@dataclass(frozen=True)
class ReportPlan:
    """All that a page is made from."""

    model: str
    folder: str  # of the data, as it was given: for the commands
    data: StudyData
    layout: str | None = None  # as it was given
    runs: Path | None = None  # what `elmo study` has done
    index: Path | None = None  # of contexts, in place of reading the corpus
    contexts: int = 200_000  # words of the corpus that are compared, where there is no index
    limit: int | None = None  # training sentences of the probes
    shares: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    seed: int = 0


def make_report(plan: ReportPlan, elmo: Elmo, date: str, report: Report = silent) -> tuple[str, list[Exhibit]]:
    """The page, and what is on it. Only the probes are trained here: the tasks' runs are taken as they are."""
    corpus: list[SenseCorpus] = []  # read once, where two sections want it
    sections = [
        *(_study(plan, elmo, name) for name in EXPERIMENTS),
        _guarded("Nearest neighbours", _neighbours, plan, elmo, report),
        _guarded("Word senses", lambda p, e, r: _senses(p, e, r, corpus), plan, elmo, report),
        _guarded("Parts of speech", _tags, plan, elmo, report),
        _guarded("One word in two senses", _pairs, plan, elmo, report),
        _guarded("A word's occurrences", lambda p, e, r: _words(p, e, r, corpus), plan, elmo, report),
    ]
    page = render_page(f"What the layers of {plan.model} know", _facts(plan, elmo, date), sections)
    return page, [exhibit for section in sections for exhibit in section.exhibits]


def _guarded(
    heading: str, make: Callable[[ReportPlan, Elmo, Report], Section], plan: ReportPlan, elmo: Elmo, report: Report
) -> Section:
    """One analysis that cannot be made does not take the others with it."""
    report(heading, 0, 1)
    try:
        return make(plan, elmo, report)
    except (ValueError, OSError) as error:
        return Section(heading, missing=f"Not made: {error}.")


def _needs(what: str, *paths: str | None) -> None:
    absent = missing(*paths)
    if not paths or paths[0] is None:
        raise UserError(f"the data names no {what}")
    if absent:
        raise UserError(f"there is no file {absent[0]}")


def _command(*parts: object) -> str:
    return "elmo " + " ".join(shlex.quote(str(part)) for part in parts if part is not None)


def _limited(plan: ReportPlan) -> tuple[object, ...]:
    """The options of the probes that learn from some of the sentences."""
    return (*(("--limit", plan.limit) if plan.limit else ()), *_seeded(plan))


def _seeded(plan: ReportPlan) -> tuple[object, ...]:
    return ("--seed", plan.seed) if plan.seed else ()


def _study(plan: ReportPlan, elmo: Elmo, name: str) -> Section:
    heading, text = STUDIES[name]
    notes: list[str] = []
    exhibits: list[Exhibit] = []
    command = _study_command(plan, name)
    try:
        if plan.runs is not None and plan.runs.is_dir():
            results, notes = _results(plan, plan.runs, elmo, name)
            exhibits = [e for e in EXPERIMENTS[name].exhibits(results, plan.data, plan.shares) if e.rows]
            command = _study_command(plan, name, read_study(plan.runs), exhibits)
    except (ValueError, OSError) as error:
        notes = [f"Not made: {error}."]
    if not exhibits and not notes:
        notes = [f"Not run yet. The command below does it; then make the page with --runs {plan.runs or RUNS}."]
    return Section(heading, text, exhibits, " ".join(notes), command)


def _results(plan: ReportPlan, runs: Path, elmo: Elmo, name: str) -> tuple[list[Measured], list[str]]:
    """Of every task that has runs of this study's own, not only those which all studies share; and notes."""
    variants = EXPERIMENTS[name].variants(plan.shares)
    own = {variant.name for variant in variants} - {BASELINE.name, ELMO.name}
    kept, notes = [], []
    for task in _all_tasks(plan.data):
        results = read_results(runs, [task], variants, elmo.checkpoint.digest)
        if not results or (own and not any(result.variant in own for result in results)):
            continue
        try:
            check_data(runs, task, plan.data)
            kept += results
        except ValueError as error:
            notes.append(f"Without {task}: {error}.")
    return kept, notes


def _all_tasks(data: StudyData) -> list[str]:
    """The data's first, in its order; a folder of runs may know others."""
    return list(dict.fromkeys([*data.tasks, *TASKS]))


def _study_command(
    plan: ReportPlan, name: str, study: Mapping[str, Any] | None = None, exhibits: Sequence[Exhibit] = ()
) -> str:
    """What does these runs again: what differs from the defaults is said."""
    options: list[object] = ["--layout", plan.layout] if plan.layout else []
    if exhibits:
        options += _shown_options(plan, name, exhibits[0])
    if name == "samples" and plan.shares != ReportPlan.shares:
        options += ["--shares", ",".join(f"{share:g}" for share in plan.shares)]
    if study and study.get("recipe", RECIPE) != RECIPE:
        options += ["--recipe", study["recipe"]]
    for setting in (study or {}).get("settings", ()):
        options += ["--set", setting]
    return _command("study", name, "--data", plan.folder, *options, "-m", plan.model, "--out", plan.runs or RUNS)


def _shown_options(plan: ReportPlan, name: str, exhibit: Exhibit) -> list[object]:
    """Which tasks and how many seeds a table of a study has."""
    options: list[object] = []
    titles = {row[0] for row in exhibit.rows}
    tasks = [task for task in _all_tasks(plan.data) if plan.data.title(task) in titles]
    if tasks != EXPERIMENTS[name].usual(plan.data.choose(None)):
        options += ["--tasks", ",".join(tasks)]
    seeds = max(int(row[exhibit.columns.index("seeds")] or 0) for row in exhibit.rows)
    if seeds != EXPERIMENTS[name].seeds:
        options += ["--seeds", seeds]
    return options


STUDIES = {
    "tasks": (
        "The tasks with ELMo and without",
        "Does ELMo help? Each task's model with static word vectors, and with the biLM's layers joined to them.",
    ),
    "weighting": (
        "Which layers, and how free their weights",
        "The last layer alone, or a learned mix of all; a large lambda keeps the weights nearly even.",
    ),
    "placement": (
        "Where ELMo enters",
        "Joined to what the task's RNN reads, to what it gives, or to both with weights of their own.",
    ),
    "samples": (
        "Sample efficiency",
        "With how little training data a task is learned, and in how few epochs, with ELMo and without.",
    ),
}


def _neighbours(plan: ReportPlan, elmo: Elmo, report: Report) -> Section:
    data = plan.data
    if not data.queries:
        raise UserError("the data has no queries, sentences with a [marked] word")
    vectors, notes = _static(data)
    index = None if plan.index is None else ContextIndex.open(plan.index, elmo)
    if index is None:
        _needs("corpus", data.corpus)

    def find(query: str) -> Neighbours:
        marked = read_marked(elmo, query)
        if index is not None:
            return index_neighbours(elmo, marked, index, vectors=vectors)
        assert data.corpus is not None
        return corpus_neighbours(
            elmo, marked, [data.corpus], vectors=vectors, split=True, limit=plan.contexts, report=report
        )

    where = (
        ("--index", plan.index) if plan.index else ("--corpus", data.corpus, "--split", "--limit", plan.contexts)
    )
    given = ("--vectors", vectors) if vectors else ()
    exhibits, commands = [], []
    for number, query in enumerate(data.queries, start=1):
        try:
            exhibits.append(find(query).exhibit(number))
            commands.append(_command("neighbours", query, *where, *given, "-m", plan.model))
        except ValueError as error:
            notes.append(f"Query {number} is left out: {error}.")
    return Section(
        "Nearest neighbours",
        "Static vectors know one word of all its senses. The biLM's upper layers find contexts in which it means "
        "the same.",
        exhibits,
        missing=" ".join(notes),
        command="\n".join(commands),
    )


def _static(data: StudyData) -> tuple[str | None, list[str]]:
    """The static vectors to compare with; where there are none, a note of it."""
    try:
        _needs("vectors", data.vectors)
    except ValueError as error:
        return None, [f"Without static vectors: {error}."]
    return data.vectors, []


def _senses(plan: ReportPlan, elmo: Elmo, report: Report, corpus: list[SenseCorpus]) -> Section:
    senses = plan.data.senses
    if senses is None:
        raise UserError("the data has no [senses], a sense-tagged corpus")
    _needs("sense-tagged corpus", senses.train, *senses.tests, senses.index)
    first = None if senses.index is None else read_wordnet_index(senses.index)
    corpus.append(read_senses(senses.train))
    probe = SenseProbe(elmo, corpus[0], first, limit=plan.limit, seed=plan.seed, report=report)
    results = [probe.evaluate(read_senses(test), report) for test in senses.tests]
    return Section(
        "Word senses",
        "The nearest of the senses' mean vectors in a sense-tagged corpus; a word that it does not have is given "
        "its first sense.",
        [senses_exhibit(results)],
        command=_command(
            *("probe", "wsd", senses.train, *senses.tests, "-m", plan.model),
            *(("--index", senses.index) if senses.index else ()),
            *_limited(plan),
        ),
    )


def _tags(plan: ReportPlan, elmo: Elmo, report: Report) -> Section:
    tags = plan.data.tags
    if tags is None:
        raise UserError("the data has no [tags], tagged sentences")
    _needs("tagged sentences", tags.train, tags.dev)
    vectors, notes = _static(plan.data)
    result = probe_tags(
        elmo,
        tags.train,
        tags.dev,
        tags.column,
        vectors=vectors,
        limit=plan.limit,
        seed=plan.seed,
        report=report,
    )
    return Section(
        "Parts of speech",
        "A linear classifier on each layer: what it can tell, the layer has ready at hand.",
        [result.exhibit()],
        missing=" ".join(notes),
        command=_command(
            *("probe", "tags", tags.train, tags.dev, "--column", tags.column, "-m", plan.model),
            *(("--vectors", vectors) if vectors else ()),
            *_limited(plan),
        ),
    )


def _pairs(plan: ReportPlan, elmo: Elmo, report: Report) -> Section:
    pairs = plan.data.pairs
    _needs("pairs, words in two senses", pairs and str(pairs_file(pairs)))
    assert pairs is not None
    return Section(
        "One word in two senses",
        "Is a word nearer to contexts of its own sense than to those of the other? Layer 0 cannot know.",
        [probe_pairs(elmo, pairs).exhibit()],
        command=_command("probe", "pairs", pairs, "-m", plan.model),
    )


def _words(plan: ReportPlan, elmo: Elmo, report: Report, corpus: list[SenseCorpus]) -> Section:
    if not plan.data.words:
        raise UserError("the data names no words")
    notes: list[str] = []
    if plan.data.senses is None:
        find = _in_text(plan, elmo, notes)
    else:
        find = _in_tagged(plan, plan.data.senses.train, corpus)
    exhibits, commands = [], []
    for word in plan.data.words:
        try:
            found = find(word)
            view = view_word(elmo, word, found.occurrences, source=found.source, report=report)
            exhibits.append(view.exhibit())
            commands.append(_command("polysemy", word, *found.options, "-m", plan.model))
        except ValueError as error:
            notes.append(str(error))
    return Section(
        "A word's occurrences",
        "Each point is an occurrence, each colour a sense where it is known, in the two dimensions that show most "
        "of a layer.",
        exhibits,
        missing="; ".join(notes),
        command="\n".join(commands),
    )


class Found(NamedTuple):
    occurrences: list[Occurrence]
    source: str
    options: tuple[object, ...]  # of `elmo polysemy`, which finds the same


def _in_tagged(plan: ReportPlan, train: str, corpus: list[SenseCorpus]) -> Callable[[str], Found]:
    _needs("sense-tagged corpus", train)
    tagged = corpus[0] if corpus else read_senses(train)
    source, options = f"{Path(train).name}, seed {plan.seed}", ("--tagged", train, *_seeded(plan))
    return lambda word: Found(occurrences_in_tagged(tagged, word, seed=plan.seed), source, options)


def _in_text(plan: ReportPlan, elmo: Elmo, notes: list[str]) -> Callable[[str], Found]:
    """Senses are not known, but for the contexts of a word that is among the pairs."""
    text, pairs = plan.data.corpus, plan.data.pairs
    _needs("sense-tagged corpus and no plain text", text)
    assert text is not None
    paired: set[str] = set()
    try:
        if pairs is not None:
            _needs("pairs", str(pairs_file(pairs)))
            paired = {pair.word for pair in read_pairs(pairs)}
    except ValueError as error:
        notes.append(f"no sense is known: {error}")

    def find(word: str) -> Found:
        found = Found(occurrences_in_text(elmo, text, word), Path(text).name, ("--corpus", text))
        if pairs is None or word not in paired:
            return found
        known, source = occurrences_in_pairs(elmo, pairs, word), f"{found.source} and {Path(pairs).name}"
        return Found(known + found.occurrences, source, (*found.options, "--senses", pairs))

    return find


def _facts(plan: ReportPlan, elmo: Elmo, date: str) -> dict[str, object]:
    parameters = sum(parameter.numel() for parameter in elmo.bilm.parameters())
    return {
        "model": plan.model,
        "digest": elmo.checkpoint.digest,
        "layers": f"{elmo.layers}, {elmo.width} wide",
        "parameters": f"{parameters:,}, the softmax not counted",
        "data": plan.folder,
        "seed": plan.seed,
        "made": f"{date}, by elmokit {__version__}",
    }

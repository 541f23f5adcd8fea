"""The sections of a report on tasks: the tables of the runs that `elmo study` has done, taken as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit
from elmokit.show.html import Section
from elmokit.study.data import StudyData
from elmokit.study.experiments import EXPERIMENTS, RECIPE, SHARES
from elmokit.study.report_plan import Material, ReportPlan
from elmokit.study.runs import Measured, check_data, read_results, read_study
from elmokit.study.variants import BASELINE, ELMO
from elmokit.tasks import TASKS

RUNS = "runs"  # a folder, in the command of a user who has named none


class Text(NamedTuple):
    heading: str
    text: str


TEXTS = {
    "tasks": Text(
        "The tasks with ELMo and without",
        "Does ELMo help? Each task's model with static word vectors, and with the biLM's layers joined to them.",
    ),
    "weighting": Text(
        "Which layers, and how free their weights",
        "The last layer alone, or a learned mix of all; a large lambda keeps the weights nearly even.",
    ),
    "placement": Text(
        "Where ELMo enters",
        "Joined to what the task's RNN reads, to what it gives, or to both with weights of their own.",
    ),
    "samples": Text(
        "Sample efficiency",
        "With how little training data a task is learned, and in how few epochs, with ELMo and without.",
    ),
}


def task_section(name: str, material: Material) -> Section:
    """One of the experiments; a note where its runs are missing, of another model or of other data."""
    plan, notes = material.plan, list[str]()
    exhibits: list[Exhibit] = []
    command = _command(plan, name)
    try:
        if plan.runs is not None and plan.runs.is_dir():
            results, notes = _results(material, plan.runs, name)
            exhibits = [e for e in EXPERIMENTS[name].exhibits(results, plan.data, plan.shares) if e.rows]
            command = _command(plan, name, read_study(plan.runs), exhibits)
    except (UserError, OSError) as error:
        notes = [f"Not made: {error}."]
    if not exhibits and not notes:
        notes = [f"Not run yet. The command below does it; then make the page with --runs {plan.runs or RUNS}."]
    return Section(*TEXTS[name], exhibits, " ".join(notes), command)


def _results(material: Material, runs: Path, name: str) -> tuple[list[Measured], list[str]]:
    """Of every task that has runs of this study's own, not only those which all studies share; and notes."""
    variants = EXPERIMENTS[name].variants(material.plan.shares)
    own = {variant.name for variant in variants} - {BASELINE.name, ELMO.name}
    kept, notes = [], []
    for task in _all_tasks(material.data):
        results = read_results(runs, [task], variants, material.elmo.digest)
        if not results or (own and not any(result.variant in own for result in results)):
            continue
        try:
            check_data(runs, task, material.data)
            kept += results
        except UserError as error:
            notes.append(f"Without {task}: {error}.")
    return kept, notes


def _all_tasks(data: StudyData) -> list[str]:
    """The data's first, in its order; a folder of runs may know others."""
    return list(dict.fromkeys([*data.tasks, *TASKS]))


def _command(
    plan: ReportPlan, name: str, study: Mapping[str, Any] | None = None, exhibits: Sequence[Exhibit] = ()
) -> str:
    """What does these runs again: what differs from the defaults is said."""
    options: list[object] = ["--layout", plan.layout] if plan.layout else []
    if exhibits:
        options += _shown_options(plan, name, exhibits[0])
    if name == "samples" and plan.shares != SHARES:
        options += ["--shares", ",".join(f"{share:g}" for share in plan.shares)]
    if study and study.get("recipe", RECIPE) != RECIPE:
        options += ["--recipe", study["recipe"]]
    for setting in (study or {}).get("settings", ()):
        options += ["--set", setting]
    return plan.command(
        *("study", name, "--data", plan.folder, *options, "-m", plan.model, "--out", plan.runs or RUNS)
    )


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

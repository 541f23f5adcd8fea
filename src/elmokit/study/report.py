"""`report`: everything that the paper shows of its biLM, for any model, on one page.

What cannot be made, for want of data or of runs, leaves a note. What is wrong in elmokit itself does not: it ends
the report as a bug.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmokit import __version__
from elmokit.atomic import write_file
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, Progress, silent
from elmokit.show.exhibit import Exhibit
from elmokit.show.files import ready_file, ready_folder, write_exhibits
from elmokit.show.html import Section, render_page
from elmokit.study.data import open_data
from elmokit.study.experiments import EXPERIMENTS, SHARES, check_shares
from elmokit.study.layer_sections import LAYER_SECTIONS
from elmokit.study.report_plan import CONTEXTS, Material, ReportPlan
from elmokit.study.task_sections import task_section


class Report(NamedTuple):
    page: Path
    exhibits: list[Exhibit]  # the tables and figures on it
    files: list[Path]  # of the exhibits, where they were saved


def report(
    model: str | Path,
    *,
    data: str | Path,
    out: str | Path = "report.html",
    layout: str | None = None,
    runs: str | Path | None = None,
    index: str | Path | None = None,
    contexts: int = CONTEXTS,
    limit: int | None = None,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    save: str | Path | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Every table and figure of the paper for a model: a page that needs no network, with its commands.

    The probes are made now, in minutes; tables of tasks are of the runs that a `Study` has done.

    model      a name or folder, as `Elmo.from_pretrained` takes it.
    data       a folder with a study.toml, or laid out as the data pack is.
    out        the page to write.
    layout     which files are for what: a file like study.toml, or en or ko of the data pack.
    runs       the folder of a `Study` with this model.
    index      a `ContextIndex` of the corpus; else its first `contexts` words are read.
    limit      so many training sentences for the probes, chosen by the seed.
    shares     the sizes of training sets that are drawn.
    save       a folder for every table (.csv, .json) and figure (.png, .svg) by itself.
    """
    ready_file(Path(out))
    if save is not None:
        ready_folder(Path(save))
    plan = ReportPlan(
        model=str(model),
        folder=str(data),
        data=open_data(data, layout),
        layout=layout,
        runs=None if runs is None else Path(runs),
        index=None if index is None else Path(index),
        contexts=contexts,
        limit=limit,
        shares=check_shares(shares),
        seed=seed,
    )
    material = Material(plan, Elmo.from_pretrained(model), on_progress)
    sections = make_sections(material)
    page = render_page(f"What the layers of {model} know", page_facts(material), sections)
    write_file(Path(out), page.encode())
    exhibits = [exhibit for section in sections for exhibit in section.exhibits]
    return Report(Path(out), exhibits, [] if save is None else write_exhibits(exhibits, Path(save)))


def make_sections(material: Material) -> list[Section]:
    """Only the probes are trained here: the tasks' runs are taken as they are."""
    sections = [task_section(name, material) for name in EXPERIMENTS]
    for heading, make in LAYER_SECTIONS.items():
        material.on_progress(Progress(heading, 0, 1))
        try:
            sections.append(make(heading, material))
        except (UserError, OSError) as error:  # it does not take the others with it
            sections.append(Section(heading, missing=f"Not made: {error}."))
    return sorted(sections, key=lambda section: not section.exhibits)  # what there is to see comes first


def page_facts(material: Material) -> dict[str, object]:
    """What stands at the head of the page."""
    plan, elmo = material.plan, material.elmo
    parameters = sum(parameter.numel() for parameter in elmo.bilm.parameters())
    return {
        "model": plan.model,
        "digest": elmo.digest,
        "layers": f"{elmo.layers}, {elmo.width} wide",
        "parameters": f"{parameters:,}, the softmax not counted",
        "data": plan.folder,
        "seed": plan.seed,
        "made": f"{datetime.date.today().isoformat()}, by elmokit {__version__}",
    }

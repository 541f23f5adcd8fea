"""The playground as one file that opens without a server: the page, and the answers to what it will ask.

What a room asks is decided by its script. So that no browser is needed to make a page, a room's module says the
same in Python: `questions(a, b, wa, wb)`, all that its script asks while nobody has touched the room. The tests
open an exported page in a browser and see that no answer is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from elmokit import __version__
from elmokit.analysis.contexts.marked import read_marked, unmarked
from elmokit.atomic import replacing_folder
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError, clipped, listed
from elmokit.progress import OnProgress, silent, watched
from elmokit.serve.answers import dumped
from elmokit.serve.offer import Offer
from elmokit.serve.play import MODELS
from elmokit.serve.play.gallery import language_of
from elmokit.serve.play.joined import examples, joined_page
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms import ROOMS
from elmokit.serve.play.rooms.start import MOST
from elmokit.tasks.model import TaskModel
from elmokit.text.corpus import LineReader

PAGE, FACTS = "index.html", "export.json"
KIND = "elmokit playground"


class Example(NamedTuple):
    """Two sentences, and the place of the picked token in each, as the page's script has them."""

    a: str
    b: str
    wa: int
    wb: int
    word: str

    def to_dict(self) -> dict[str, Any]:
        return {"lang": language_of(self.a, self.b), **self._asdict()}


def export_page(
    folder: str | Path,
    models: Mapping[str, Elmo] | Sequence[str | Path] = MODELS,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    tasks: Mapping[str, TaskModel | str | Path] | None = None,
    indexes: Sequence[str | Path] = (),
    command: str = "elmokit.serve.play.export.export_page",
    on_progress: OnProgress = silent,
    **options: Any,
) -> Path:
    """Write FOLDER/index.html, to be opened without a server; its path.

    pairs     two sentences each, with the picked word in [brackets]; the page's own examples if none are given.
    command   what made it, as the page says.
    Models, tasks, indexes and options are those of `elmokit.serve.app`. A folder that holds anything but an export
    is refused; an export is replaced when the new one is complete.
    """
    folder = Path(folder)
    _check_folder(folder)
    playground = Playground(Offer.opened(models, tasks or {}, indexes, options))
    chosen = own_examples() if pairs is None else marked_examples(playground, pairs)
    asked = [(room, body) for example in chosen for room, body in questions(example)]
    answers = {}
    for room, body in watched(asked, len(asked), "answering", on_progress):
        key = question_key(room, body)
        if key not in answers:
            answers[key] = answer(playground, room, body)
    digests = {name: elmo.digest for name, elmo in playground.offer.models.items()}
    shown = [example.to_dict() for example in chosen]
    facts = {"kind": KIND, "elmokit": __version__, "command": command, "models": digests, "examples": shown}
    data = {"elmoAnswers": answers, "elmoExamples": shown, "elmoMade": _made(command, digests)}
    page = joined_page(data, {"generator": f"elmokit {__version__}", "elmo-made": _made(command, digests)})
    with replacing_folder(folder, overwrite=True) as new:
        (new / PAGE).write_bytes(page.encode())
        (new / FACTS).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return folder / PAGE


def questions(example: Example) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that the page asks for while it shows an example and its rooms are as they come."""
    given = {"a": example.a, "b": example.b, "wa": example.wa, "wb": example.wb}
    for room in ROOMS:
        module = import_module(f"elmokit.serve.play.rooms.{room}")
        if hasattr(module, "questions"):
            yield from ((room, body) for body in module.questions(**given))
        else:
            yield room, {name: value for name, value in given.items() if name in module.Request.model_fields}


def answer(playground: Playground, room: str, body: dict[str, Any]) -> Any:
    """As the server answers it, read from the same JSON; where it refuses, the error that the page shows."""
    module = import_module(f"elmokit.serve.play.rooms.{room}")
    try:
        return json.loads(dumped(module.answer(playground, module.Request(**body))))
    except UserError as error:
        return {"error": {"message": str(error)}}


def question_key(room: str, body: Mapping[str, Any]) -> str:
    """By what the page's script finds an answer: api.js has the same."""
    ordered = {name: _as_in_javascript(body[name]) for name in sorted(body)}
    return f"{room} {json.dumps(ordered, ensure_ascii=False, separators=(',', ':'))}"


def _as_in_javascript(value: Any) -> Any:
    """There is one kind of number there: 1.0 is written 1."""
    if isinstance(value, (list, tuple)):
        return [_as_in_javascript(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def own_examples() -> list[Example]:
    return [Example(**{name: one[name] for name in Example._fields}) for one in examples()]


def marked_examples(playground: Playground, pairs: Sequence[tuple[str, str]]) -> list[Example]:
    if not pairs:
        raise UserError("expected two sentences or more, with a [picked] word in each; found none")
    found = []
    for pair in pairs:
        a, b = (unmarked(sentence).text for sentence in pair)
        for text in (a, b):
            if len(text) > MOST:
                raise UserError(
                    f"a sentence on the page has at most {MOST} characters: {clipped(text)!r} has {len(text)}"
                )
        _, elmo = playground.model_for(a, b)
        first, second = (read_marked(elmo, sentence) for sentence in pair)
        found.append(Example(a, b, first.start, second.start, first.word))
    return found


def read_pairs_file(path: str | Path) -> list[tuple[str, str]]:
    """Two sentences per line with a TAB between; empty lines are passed over."""
    pairs = []
    with LineReader(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.text.strip():
                continue
            parts = line.text.split("\t")
            if len(parts) != 2:
                raise UserError(
                    f"{path}, line {number}: expected two sentences with a TAB between, found {len(parts)}"
                )
            pairs.append((parts[0].strip(), parts[1].strip()))
    return pairs


def _check_folder(folder: Path) -> None:
    """Only what is an export, and nothing else, may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: expected a folder to write to")
    found = {path.name for path in folder.iterdir()}
    if not found:
        return
    other = sorted(found - {PAGE, FACTS})
    if other or FACTS not in found or not _is_export(folder / FACTS):
        what = f"holds {listed(other, 3)}" if other else "is not one that `elmo play --export` made"
        raise UserError(f"{folder} {what}: choose another folder, or remove it")


def _is_export(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["kind"] == KIND)
    except (ValueError, TypeError, KeyError, OSError):
        return False


def _made(command: str, digests: Mapping[str, str]) -> str:
    models = ", ".join(f"{name} {digest[:12]}" for name, digest in digests.items())
    return f"elmokit {__version__} · {command} · {models}"

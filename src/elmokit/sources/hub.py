"""A model's id on the Hugging Face Hub -> its folder on this machine (the extra `hub`).

Only the files that a model of ours or a published pair has are fetched: safetensors, HDF5, JSON and text, never
a pickle. They stay in the hub's own cache (HF_HUB_CACHE), from where they are read when there is no network.
"""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.checkpoint import (
    CARD,
    CONFIG,
    HEAD,
    MAPPER,
    OLD_TOKENIZER,
    TOKENIZER,
    VOCABULARY,
    WEIGHTS,
    is_checkpoint,
    read_config,
)
from elmokit.errors import UserError

ALWAYS = (CONFIG, WEIGHTS, MAPPER)  # what every model of ours has, beside a tokenizer's file
OURS = (*ALWAYS, TOKENIZER, OLD_TOKENIZER, HEAD, VOCABULARY, CARD)
SECONDS = 10.0  # to wait for the hub's list of files; a firewall may swallow the question
_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_ID = re.compile(f"{_WORD}/{_WORD}")
_REVISION = re.compile(f"{_WORD}(?:/{_WORD})*")  # main, v1.0, refs/pr/2
_COMMIT = re.compile("[0-9a-f]{40}")
_told: set[str] = set()


class HubModel(NamedTuple):
    """A model that is in the hub's cache already."""

    name: str  # owner/name, with @commit where it is not the head of main
    folder: Path


def parse(source: str, revision: str | None = None) -> tuple[str, str | None]:
    """'owner/name' or 'owner/name@revision' -> id and revision. What could lead out of the cache is refused."""
    id, _, inside = source.partition("@")
    if not _ID.fullmatch(id) or ".." in id or "--" in id or id.endswith(".git") or len(id) > 96:
        raise UserError(
            f"{source} is no folder and no Hugging Face Hub id: expected owner/name or owner/name@revision, "
            "of letters, digits, '-', '_' and '.'"
        )
    if "@" in source and revision is not None and revision != inside:
        raise UserError(f"{source} names one revision and revision={revision!r} another: give one of them")
    revision = inside if "@" in source else revision
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UserError(f"{id}: revision: expected a branch, a tag or a commit hash, found {revision!r}")
    return id, revision


def fetch(id: str, revision: str | None = None) -> Path:
    """The folder of a model on the hub: downloaded, or from the cache where the hub cannot be asked.

    id          "owner/name", or "owner/name@revision".
    revision    a branch, a tag or a commit hash; "main" by default. A commit that is here is not asked for again.
    """
    id, revision = parse(id, revision)
    try:
        library, errors = import_module("huggingface_hub"), import_module("huggingface_hub.errors")
    except ImportError:
        raise UserError(
            f"{id} is no folder here; as a Hugging Face Hub id it needs huggingface_hub: "
            "pip install 'elmokit[hub]'"
        ) from None
    if revision is not None and _COMMIT.fullmatch(revision):
        here = _from_cache(library, errors, id, revision)
        if here is not None:
            return here
    try:
        listing = library.HfApi().model_info(id, revision=revision, timeout=SECONDS)
    except errors.RevisionNotFoundError:
        raise UserError(
            f"{id} has no revision {revision or 'main'!r}: expected a branch, a tag or a commit hash"
        ) from None
    except (errors.HTTPError, OSError) as error:  # httpx's or requests', by huggingface_hub's version
        return _without_hub(library, errors, id, revision, error)
    names = _model_files(id, [file.rfilename for file in listing.siblings or ()])
    try:
        patterns = [glob.escape(name) for name in names]
        folder = Path(library.snapshot_download(id, revision=revision, allow_patterns=patterns))
    except (errors.HTTPError, OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a full disk is no matter of the network
        raise UserError(f"{id}: the download broke off ({_line(error)}): run it again to resume") from None
    if CONFIG in names and not is_checkpoint(folder):
        raise UserError(f"{id} holds no model that elmokit reads: its {CONFIG} was not written by elmokit")
    return folder


def cached_models() -> list[HubModel]:
    """The models in the hub's cache that elmokit reads. No network; none where the extra is not installed."""
    try:
        cache = Path(import_module("huggingface_hub.constants").HF_HUB_CACHE)
    except ImportError:
        return []
    found = []
    for snapshot in sorted(cache.glob("models--*--*/snapshots/*")):
        repository = snapshot.parent.parent
        if snapshot.is_dir() and _is_whole(snapshot):
            id = "/".join(repository.name.split("--")[1:])
            main = repository / "refs" / "main"
            head = main.read_text(encoding="utf-8").strip() if main.is_file() else None
            found.append(HubModel(id if head == snapshot.name else f"{id}@{snapshot.name}", snapshot))
    return found


def _model_files(id: str, names: Iterable[str]) -> list[str]:
    """Those of a repository's files that make a model; subfolders are not ours."""
    top = sorted(name for name in names if "/" not in name)
    if all(name in top for name in ALWAYS):
        return [name for name in OURS if name in top]
    options = [name for name in top if fnmatchcase(name, "*options.json")]
    weights = [name for name in top if fnmatchcase(name, "*.hdf5")]
    if len(options) == 1 and len(weights) == 1:
        return [*options, *weights, *(name for name in top if name == CARD)]
    shown = ", ".join(top[:12]) + (", ..." if len(top) > 12 else "")
    raise UserError(
        f"{id} holds no model that elmokit reads: expected {', '.join(ALWAYS)} (elmokit), or one options.json "
        f"with one weights.hdf5 (bilm-tf, AllenNLP), found {shown or 'no files'}"
    )


def _from_cache(library: Any, errors: Any, id: str, revision: str | None) -> Path | None:
    try:  # every file ignored: which ones must be there is ours to say, not the repository's
        folder = library.snapshot_download(id, revision=revision, local_files_only=True, ignore_patterns="*")
    except errors.LocalEntryNotFoundError:
        return None
    return Path(folder) if _is_whole(Path(folder)) else None


def _is_whole(folder: Path) -> bool:
    """A download that was broken off leaves a folder, too."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    try:
        model = _model_files("", names)
    except UserError:
        return False
    if CONFIG not in model:
        return True
    if not is_checkpoint(folder):
        return False
    try:
        return names.issuperset(read_config(folder).files)
    except UserError:
        return True  # whole, but not right: whoever loads it says why


def _without_hub(library: Any, errors: Any, id: str, revision: str | None, error: Exception) -> Path:
    """As huggingface_hub itself does: whatever the hub's trouble is, a snapshot that is here will do."""
    name = id if revision is None else f"{id}@{revision}"
    if isinstance(error, errors.GatedRepoError):
        why = message = f"{id} is gated: accept its terms on its page on the hub and log in (hf auth login)"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = f"the Hugging Face Hub has no model {id} that you may read"
        message = f"{why}, nor is it a folder here: check the spelling, or log in (hf auth login) if it is private"
    else:
        offline = isinstance(error, errors.OfflineModeIsEnabled)
        why = f"the hub cannot be reached: {'HF_HUB_OFFLINE is set' if offline else _line(error)}"
        message = f"{name} is not on this machine and {why}"
    folder = _from_cache(library, errors, id, revision)
    if folder is None:
        raise UserError(message) from None
    if name not in _told and not isinstance(error, errors.OfflineModeIsEnabled):  # who set that knows
        _told.add(name)
        warnings.warn(f"{name} is read from this machine's cache ({folder.name[:12]}): {why}", stacklevel=2)
    return folder


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

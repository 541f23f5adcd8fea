"""The published files that old code names by URL, or not at all: found on this machine, never downloaded."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import urlparse

from elmokit.errors import UserError
from elmokit.formats.bilm_hdf5 import read_bilm
from elmokit.model.bilm import BiLM
from elmokit.sources import open_checkpoint
from elmokit.text.characters import ByteMapper

FOLDER = "ELMOKIT_PUBLISHED"  # the variable that names the folder of downloaded files
_DEFAULT = (
    "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway"
)
DEFAULT_OPTIONS_FILE = f"{_DEFAULT}_options.json"
DEFAULT_WEIGHT_FILE = f"{_DEFAULT}_weights.hdf5"


def load_bilm(options_file: str | Path | None, weight_file: str | Path | None) -> tuple[BiLM, ByteMapper]:
    """A pair by paths or URLs; or a folder of ours, or a bundled model's name, and None."""
    if options_file is None:
        raise UserError('no model given: give both files, or a model by folder or name ("en-small") and None')
    if weight_file is None:
        checkpoint = open_checkpoint(options_file)
    else:
        checkpoint = read_bilm(*local_pair(options_file, weight_file))
    if not isinstance(checkpoint.mapper, ByteMapper):
        raise UserError(
            f"{options_file}: expected a model over UTF-8 bytes, this one reads other ids: use elmokit.Elmo"
        )
    return checkpoint.bilm, checkpoint.mapper


def default_pair(
    options_file: str | Path | None, weight_file: str | Path | None
) -> tuple[str | Path, str | Path | None]:
    """What AllenNLP took where nothing was given: the original model, 2 x 4096 cells, vectors of 1024."""
    if options_file is None:
        return DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE if weight_file is None else weight_file
    return options_file, weight_file


def local_pair(*files: str | Path) -> list[Path]:
    """Where these files are on this machine; a URL's was put into `published_folder()`, or there by AllenNLP."""
    found = [find(str(file)) if "://" in str(file) else Path(file) for file in files]
    missing = [str(file) for file, path in zip(files, found, strict=True) if path is None]
    if missing:
        raise UserError(_how_to_get(missing))
    paths = [path for path in found if path is not None]
    for path in paths:
        check_digest(path)
    return paths


def published_folder() -> Path:
    """$ELMOKIT_PUBLISHED, or elmokit/published in the user's cache directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(FOLDER) or cache / "elmokit" / "published")


def find(url: str) -> Path | None:
    """The file of this name; within a folder named as the URL's last one where two models' names are the same."""
    *_, folder, name = ["", *urlparse(url).path.split("/")]
    for path in (published_folder() / folder / name, published_folder() / name):
        if name and path.is_file():
            return path
    return _of_allennlp(url)


def _of_allennlp(url: str) -> Path | None:
    """What AllenNLP itself once downloaded: the URL's digest, a dot, and the digest of its version."""
    root = Path(os.environ.get("ALLENNLP_CACHE_ROOT") or Path.home() / ".allennlp")
    digest = hashlib.sha256(url.encode()).hexdigest()
    versions = [path for path in (root / "cache").glob(f"{digest}*") if path.suffix not in (".json", ".lock")]
    return max(versions, key=lambda path: path.stat().st_mtime, default=None)


def check_digest(path: Path) -> None:
    """Compare with `<name>.sha256` beside it, as `sha256sum` writes it, if there is one."""
    beside = path.with_name(f"{path.name}.sha256")
    if not beside.is_file():
        return
    expected = (beside.read_text(encoding="utf-8", errors="replace").split() or [""])[0].lower()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if expected != found:
        raise UserError(
            f"{path}: its SHA-256 is {found}, {beside.name} says {expected or 'nothing'}: download it again"
        )


def _how_to_get(urls: list[str]) -> str:
    folder = published_folder()
    fetch = [f"curl -L -o '{folder / urlparse(url).path.split('/')[-1]}' '{url}'" for url in urls]
    commands = "".join(f"\n  {command}" for command in (f"mkdir -p '{folder}'", *fetch))
    return (
        f"{', '.join(urls)}: not in {folder} (${FOLDER}), and nothing is downloaded. Put it there:{commands}"
        '\nor name a model that is here, as in ElmoEmbedder("en-small"): other vectors, of another width.'
    )

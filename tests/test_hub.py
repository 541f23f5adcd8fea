"""Models of the Hugging Face Hub without a network: a cache in its own layout, and a hub that is made up."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.model.language_head import LanguageHead
from elmokit.sources import hub, locate, open_checkpoint
from elmokit.text.vocabulary import Vocabulary
from helpers.models import SENTENCES, make_elmo

huggingface_hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")
real_download = huggingface_hub.snapshot_download

ONE, TWO = "1" * 40, "2" * 40


def fill_cache(cache: Path, folder: Path, commit: str = ONE, ref: str = "main", names: list[str] | None = None):
    """As huggingface_hub writes it: blobs by digest, snapshots of links, refs that name a commit."""
    repository = cache / "models--owner--name"
    for part in ("refs", "blobs", f"snapshots/{commit}"):
        (repository / part).mkdir(parents=True, exist_ok=True)
    for name in names or os.listdir(folder):
        blob = repository / "blobs" / f"{commit[0]}-{name}"
        shutil.copyfile(folder / name, blob)
        link = repository / "snapshots" / commit / name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repository / "refs" / ref).write_text(commit)
    return repository / "snapshots" / commit


class FakeHub:
    """One repository, owner/name, whose files lie in a folder; `trouble` is raised instead of an answer."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self.cache, self.folder, self.trouble, self.questions = cache, folder, None, 0
        self.commits = {"main": ONE, ONE: ONE}
        self.fetched: list[str] = []

    def model_info(self, id, *, revision=None, timeout=None):
        self.questions += 1
        if self.trouble is not None:
            raise self.trouble
        if revision is not None and revision not in self.commits:
            raise error(errors.RevisionNotFoundError)
        files = (path for path in self.folder.rglob("*") if path.is_file())
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in names])

    def snapshot_download(self, id, *, revision=None, local_files_only=False, allow_patterns=None, **options):
        if local_files_only:
            return real_download(id, revision=revision, local_files_only=True, **options)
        names = [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()]
        self.fetched = sorted(huggingface_hub.utils.filter_repo_objects(names, allow_patterns=allow_patterns))
        revision = revision or "main"
        return str(fill_cache(self.cache, self.folder, self.commits[revision], revision, self.fetched))


def error(kind, message="404 Client Error\nmany\nlines"):
    made = kind.__new__(kind)  # without the response that its constructor asks for
    made.args = (message,)
    return made


@pytest.fixture
def model(tmp_path):
    """A model with a softmax head, saved."""
    elmo = make_elmo()
    vocabulary = Vocabulary(["the", "bank", "밥"])
    head = LanguageHead(len(vocabulary), 8)
    card = "---\nlanguage:\n- en\n- ko\nlicense: apache-2.0\n---\n# A model\n"
    folder = tmp_path / "remote"
    Checkpoint(elmo.bilm, elmo.mapper, elmo.checkpoint.tokenizer, vocabulary, head, card).save(folder)
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; requests are refused by huggingface_hub itself."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_told", set())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def online(cache, model, monkeypatch):
    fake = FakeHub(cache, model)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: fake)
    return fake


def test_a_snapshot_in_the_cache_is_read_offline(cache, model):
    fill_cache(cache, model)
    elmo = Elmo.from_pretrained("owner/name")
    assert elmo.checkpoint.head is not None
    for ours, theirs in zip(elmo.embed(SENTENCES), make_elmo().embed(SENTENCES)):
        np.testing.assert_array_equal(ours, theirs)


def test_a_folder_of_that_name_comes_first(cache, model):
    fill_cache(cache, model)
    make_elmo(tokenizer="words").save("owner/name")
    assert locate("owner/name") == Path("owner/name")
    with pytest.raises(
        ValueError, match=r"revision='v1' goes with a Hugging Face Hub id; owner/name is a model's"
    ):
        Elmo.from_pretrained("owner/name", revision="v1")


@pytest.mark.parametrize("revision", ["v1", "refs/pr/2", TWO])
def test_a_revision_may_be_pinned(cache, model, revision):
    first = fill_cache(cache, model, ONE)
    (cache / "models--owner--name" / "refs" / "refs" / "pr").mkdir(parents=True)
    second = fill_cache(cache, model, TWO, ref="v1" if revision == TWO else revision)
    assert locate("owner/name") == first
    assert locate("owner/name", revision) == second
    assert locate(f"owner/name@{revision}") == second
    assert locate(f"owner/name@{revision}", revision) == second
    with pytest.raises(ValueError, match="names one revision and revision='main' another"):
        locate(f"owner/name@{revision}", "main")


@pytest.mark.parametrize("id", ["owner/name", f"owner/name@{TWO}", "owner/name@v9"])
def test_what_is_neither_here_nor_to_be_had_is_said(cache, model, id):
    if id != "owner/name":
        fill_cache(cache, model)
    with pytest.raises(ValueError, match=f"{id} is not on this machine and the hub cannot be reached: HF_HUB_OFF"):
        open_checkpoint(id)


def test_the_commands_take_an_id_from_the_environments_cache(tmp_path, model):
    fill_cache(tmp_path / "home" / "hub", model)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "error", "-m", "elmokit", "info", "owner/name", "--json"]
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    facts = json.loads(process.stdout)
    assert (facts["model"], facts["format"], facts["width of a layer"]) == ("owner/name", "elmokit", 16)
    assert Path(facts["folder"]).name == ONE


@pytest.mark.parametrize(
    "arguments",
    [
        "embed text.txt -o out.h5 -m owner/name",
        "similar [one] [two] -m owner/name",
        "perplexity text.txt -m owner/name",
        "score text.txt -m owner/name",
        "fill the___ -m owner/name",
        "convert owner/name -o out",
        "finetune text.txt -m owner/name -o run --tokens 64 --held-out 0 --set train.rows=2 --set train.steps=4",
    ],
)
def test_every_command_takes_an_id(elmo_command, cache, model, arguments):
    fill_cache(cache, model)
    Path("text.txt").write_text("the bank\nthe river bank\n" * 40)
    arguments = [argument.replace("the___", "the ___ bank") for argument in arguments.split()]
    code, _, err = elmo_command(*arguments)
    assert code == 0, err


def test_only_the_files_of_a_model_are_fetched(online, model):
    (model / "sub").mkdir()
    for name in ("model.bin", "encoder.pkl", "x.pt", "weights.hdf5", "sub/config.json", "sub/a.hdf5", "notes.txt"):
        (model / name).write_bytes(b"evil")
    assert Elmo.from_pretrained("owner/name").layers == 3
    assert online.fetched == sorted({*hub.OURS} - {"tokeniser.json"})
    online.trouble = errors.HTTPError("no route")
    with pytest.warns(UserWarning, match="read from this machine's cache"):
        assert Elmo.from_pretrained("owner/name").layers == 3


def test_a_published_pair_is_fetched_and_no_pickle_beside_it_is_read(online, tmp_path):
    online.folder = folder = tmp_path / "pair"
    folder.mkdir()
    write_bilm(make_elmo(published=True).checkpoint, folder / "elmo_options.json", folder / "elmo_weights.hdf5")
    for name in ("encoder.pkl", "token_embedder.pkl", "config.json", "README.md"):
        (folder / name).write_bytes(b"{}")
    assert Elmo.from_pretrained("owner/name").layers == 3
    assert online.fetched == ["README.md", "elmo_options.json", "elmo_weights.hdf5"]
    fill_cache(online.cache, folder)  # some other program fetched all of it
    assert Elmo.from_pretrained("owner/name").layers == 3


@pytest.mark.parametrize(
    "files",
    [
        [],
        ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"],
        ["encoder.pkl", "token_embedder.pkl", "config.json"],
        ["pytorch_model.bin"],
        ["options.json", "a.hdf5", "b.hdf5"],
        ["sub/config.json", "sub/model.safetensors", "sub/mapper.json", "sub/tokenizer.json"],
    ],
)
def test_a_repository_without_a_model_of_ours_is_refused_before_anything_is_fetched(online, tmp_path, files):
    online.folder = tmp_path / "other"
    (online.folder / "sub").mkdir(parents=True)
    for name in files:
        (online.folder / name).write_bytes(b"{}")
    with pytest.raises(
        ValueError, match=r"owner/name holds no model that elmokit reads: expected config.json, mod"
    ):
        open_checkpoint("owner/name")
    assert not online.cache.exists()


def test_a_config_that_only_has_our_files_names_is_refused(online, model):
    (model / "config.json").write_text('{"format": "other"}')
    (model / "encoder.pkl").write_bytes(b"evil")
    with pytest.raises(
        ValueError, match=r"owner/name holds no model .* its config.json was not written by elmokit"
    ):
        open_checkpoint("owner/name")


def test_a_commit_that_is_here_is_not_asked_for_again(online):
    here = locate(f"owner/name@{ONE}")
    assert (online.questions, here.name) == (1, ONE)
    assert locate("owner/name", ONE) == here
    assert online.questions == 1
    (here / "head.safetensors").unlink()  # as when a download was broken off
    assert locate("owner/name", ONE) == here
    assert online.questions == 2
    assert (here / "head.safetensors").is_file()


def test_without_a_network_the_cache_is_used_and_that_is_said_once(online, recwarn):
    here = locate("owner/name")
    online.trouble = errors.HTTPError("[Errno -2] Name or service not known")
    with pytest.warns(UserWarning, match=r"owner/name is read .* \(111111111111\): the hub cannot .* not known$"):
        assert locate("owner/name") == here
    assert locate("owner/name") == here
    (here / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"is not on this machine and the hub cannot be reached: .* not known$"):
        locate("owner/name")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.RepositoryNotFoundError, "the Hugging Face Hub has no model owner/name that you may read, nor is"),
        (errors.GatedRepoError, "owner/name is gated: accept its terms"),
        (errors.RevisionNotFoundError, "owner/name has no revision 'v1': expected a branch, a tag or a commit"),
        (errors.HfHubHTTPError, "owner/name@v1 is not on this machine and the hub cannot be reached: 404 Client"),
        (TimeoutError, "owner/name@v1 is not on this machine and the hub cannot be reached: 404 Client"),
    ],
)
def test_what_the_hub_refuses_is_one_line(online, kind, message):
    online.trouble = error(kind)
    with pytest.raises(ValueError, match=message) as caught:
        Elmo.from_pretrained("owner/name", revision="v1")
    assert "\n" not in str(caught.value)


def test_a_download_that_breaks_off(online, monkeypatch):
    def broken(*_, **__):
        raise trouble

    monkeypatch.setattr(huggingface_hub, "snapshot_download", broken)
    trouble = errors.HTTPError("peer closed connection")
    with pytest.raises(ValueError, match=r"the download broke off \(peer closed connection\): run it again"):
        locate("owner/name")
    trouble = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        locate("owner/name")


@pytest.mark.parametrize(
    "id",
    [
        "../x",
        "a/b/c",
        "/nowhere/x",
        "./x",
        "x/",
        "a/..",
        "a/b..c",
        "a--b/c",
        "a/b.git",
        "a b/c",
        "밥/c",
        "a/" + "b" * 99,
        "https://huggingface.co/owner/name",
        "@v1/x",
        "../x@main",
        "a\n/b",
    ],
)
def test_ids_that_lead_elsewhere_are_refused(cache, id):
    with pytest.raises(ValueError, match="is no folder"):
        Elmo.from_pretrained(id)


@pytest.mark.parametrize("revision", ["", "../../x", "a/../b", "/etc", "a b", "-x", "v1\n"])
def test_revisions_that_lead_elsewhere_are_refused(cache, revision):
    with pytest.raises(ValueError, match="revision: expected a branch, a tag or a commit hash, found"):
        locate("owner/name", revision)
    with pytest.raises(ValueError, match="revision: expected a branch, a tag or a commit hash, found"):
        locate(f"owner/name@{revision}")


def test_a_path_is_never_looked_up_on_the_network(online):
    with pytest.raises(ValueError, match="is no folder and no bundled model"):
        open_checkpoint(Path("owner/name"))
    assert online.questions == 0


def test_without_the_extra_it_is_said_what_to_install(monkeypatch, elmo_command):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"needs huggingface_hub: pip install 'elmokit\[hub\]'"):
        Elmo.from_pretrained("owner/name")
    assert hub.cached_models() == []
    assert elmo_command("models")[0] == 0


def test_models_lists_what_is_in_the_cache(elmo_command, cache, model):
    fill_cache(cache, model)
    fill_cache(cache, model, TWO, ref="v1")
    fill_cache(cache, model, "3" * 40, ref="half", names=["config.json", "README.md"])
    (cache / "models--owner--name" / "snapshots" / ".DS_Store").write_text("")
    code, out, _ = elmo_command("models", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["model"] for row in rows if row["where"] == "hub cache"] == ["owner/name", f"owner/name@{TWO}"]
    row = next(row for row in rows if row["where"] == "hub cache")
    assert (row["layers"], row["width"], row["words predicted"], row["tokenizer"]) == (3, 16, 6, "whitespace")
    assert row["languages"] == ["en", "ko"]
    assert "owner/name" in elmo_command("models")[1]

"""Published files by URL, or without a name: looked up on this machine, checked, never downloaded."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from elmokit.compat import Elmo, ElmoEmbedder, ElmoTokenEmbedder
from elmokit.compat.published import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, published_folder
from helpers.allennlp import WIDTH, Pair, make_pair

OLD = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/"


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of published files, and no cache of AllenNLP."""
    monkeypatch.setenv("ELMOKIT_PUBLISHED", str(tmp_path / "published"))
    monkeypatch.setenv("ALLENNLP_CACHE_ROOT", str(tmp_path / "allennlp"))
    (tmp_path / "published").mkdir()
    return tmp_path / "published"


def put(pair: Pair, folder: Path) -> None:
    for file, url in zip(pair, (DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE), strict=True):
        shutil.copy(file, folder / url.rsplit("/", 1)[1])


def test_no_arguments_are_the_published_default(pair: Pair, folder: Path) -> None:
    put(pair, folder)
    expected = pair.reference.layers(["a", "b"])[0]
    np.testing.assert_allclose(ElmoEmbedder().embed_sentence(["a", "b"]), expected, atol=1e-5)
    np.testing.assert_allclose(ElmoEmbedder(cuda_device=-1).embed_sentence(["a", "b"]), expected, atol=1e-5)
    assert ElmoTokenEmbedder().get_output_dim() == WIDTH


def test_without_the_default_the_error_says_how_to_get_it(folder: Path) -> None:
    """Not another model of another width: code that counts on 1024 would go wrong in silence."""
    with pytest.raises(ValueError, match="nothing is downloaded") as error:
        ElmoEmbedder()
    lines = str(error.value).splitlines()
    assert lines[1:4] == [
        f"  mkdir -p '{folder}'",
        f"  curl -L -o '{folder}/{DEFAULT_OPTIONS_FILE.rsplit('/', 1)[1]}' '{DEFAULT_OPTIONS_FILE}'",
        f"  curl -L -o '{folder}/{DEFAULT_WEIGHT_FILE.rsplit('/', 1)[1]}' '{DEFAULT_WEIGHT_FILE}'",
    ]
    assert 'ElmoEmbedder("en-small")' in lines[4]


def test_a_url_is_looked_up_by_its_file_name(pair: Pair, folder: Path) -> None:
    put(pair, folder)
    urls = [OLD + url.rsplit("/", 1)[1] for url in (DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE)]
    assert Elmo(*urls, 1).get_output_dim() == WIDTH
    assert Elmo(pair.options, urls[1], 1).get_output_dim() == WIDTH  # a path and a URL
    with pytest.raises(ValueError, match=r"https://example\.org/w\.hdf5: not in") as error:
        Elmo(urls[0], "https://example.org/w.hdf5", 1)
    assert urls[0] not in str(error.value)


def test_files_of_one_name_are_kept_apart_by_their_folder(pair: Pair, folder: Path) -> None:
    url = "https://example.org/models/test_fixture/"
    (folder / "test_fixture").mkdir()
    shutil.copy(pair.options, folder / "test_fixture" / "options.json")
    shutil.copy(pair.weights, folder / "test_fixture" / "lm_weights.hdf5")
    (folder / "options.json").write_text("another model's")
    assert Elmo(url + "options.json", url + "lm_weights.hdf5", 1).get_output_dim() == WIDTH


def test_what_allennlp_downloaded_is_found(pair: Pair, folder: Path) -> None:
    """Its cache names a file by the digests of its URL and of its version."""
    cache = folder.parent / "allennlp" / "cache"
    cache.mkdir(parents=True)
    for file, url in zip(pair, (DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE), strict=True):
        name = hashlib.sha256(url.encode()).hexdigest() + "."
        for version, age in (("old", 1), ("new", 2)):
            path = cache / (name + version)
            shutil.copy(file, path) if version == "new" else path.write_text("another version")
            path.with_name(path.name + ".json").write_text("{}")
            os.utime(path, (age, age))
    assert Elmo(DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, 1).get_output_dim() == WIDTH


def test_checksums_beside_the_files_are_verified(pair: Pair, folder: Path) -> None:
    put(pair, folder)
    name = DEFAULT_WEIGHT_FILE.rsplit("/", 1)[1]
    digest = hashlib.sha256(pair.weights.read_bytes()).hexdigest()
    beside = folder / f"{name}.sha256"
    beside.write_text(f"{digest.upper()}  {name}\n")
    ElmoEmbedder()
    for wrong in ("0" * 64, ""):
        beside.write_text(wrong)
        with pytest.raises(ValueError, match=f"SHA-256 is {digest}.* download it again"):
            ElmoEmbedder()


def test_a_bundled_model_is_taken_by_its_name(folder: Path) -> None:
    vectors = ElmoEmbedder("en-small").embed_sentence(["He", "sat", "."])
    assert vectors.shape[:2] == (3, 3)
    assert Elmo("en-small", None, 1).get_output_dim() == vectors.shape[2]


def test_the_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ELMOKIT_PUBLISHED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert published_folder() == tmp_path / "elmokit" / "published"

"""The frozen biLM's layers on disk: what is read back is what it computes, and nothing stale is ever used."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.tasks.layer_cache import LayerCache, computed_layers
from helpers.models import make_elmo, random_bilm, small_config

SENTENCES = [["He", "sat", "."], ["밥을", "먹었다"], ["He", "sat", "."], [], ["a"] * 40]


def test_what_is_kept_is_what_the_bilm_computes(tmp_path):
    elmo = make_elmo()
    told = []
    cache = LayerCache.open(elmo, SENTENCES, tmp_path, told.append)
    assert (told[-1].done, told[-1].total) == (4, 4)  # equal sentences once
    padded = cache.padded(SENTENCES)
    assert padded.shape == (3, 5, 40, 16)
    for row, (sentence, expected) in enumerate(zip(SENTENCES, elmo.embed(SENTENCES))):
        np.testing.assert_allclose(padded[:, row, : len(sentence)], expected, rtol=1e-3, atol=1e-3)  # float16
        assert not padded[:, row, len(sentence) :].any()
    assert SENTENCES[0] in cache
    assert ["unseen"] not in cache


def test_what_is_computed_is_what_would_be_kept(tmp_path):
    """Bit by bit, whatever the batch: a score has the same numbers with a cache and without."""
    elmo = make_elmo()
    cache = LayerCache.open(elmo, SENTENCES, tmp_path)
    for part in (SENTENCES, SENTENCES[1:2], SENTENCES[::-1], [[]], []):
        assert torch.equal(computed_layers(elmo, part), cache.padded(part))
    exact = torch.from_numpy(elmo.embed(SENTENCES[:1])[0])
    assert not torch.equal(computed_layers(elmo, SENTENCES[:1])[:, 0], exact)  # float16 is what both are


def test_the_second_time_it_is_read_not_computed(tmp_path, monkeypatch):
    elmo = make_elmo()
    first = LayerCache.open(elmo, SENTENCES, tmp_path)
    monkeypatch.setattr(Elmo, "stream", lambda *a, **k: pytest.fail("computed again"))
    again = LayerCache.open(elmo, SENTENCES, tmp_path)
    assert torch.equal(first.padded(SENTENCES), again.padded(SENTENCES))
    assert again.bytes == again.path.stat().st_size


def test_another_model_or_another_text_has_another_file(tmp_path):
    elmo = make_elmo()
    other = Elmo(Checkpoint(random_bilm(small_config(), seed=7), elmo.mapper, elmo.checkpoint.tokenizer))
    paths = {LayerCache.open(e, s, tmp_path).path for e in (elmo, other) for s in (SENTENCES, SENTENCES[:2])}
    assert len(paths) == 4
    joined = LayerCache.open(elmo, [["a b"]], tmp_path), LayerCache.open(elmo, [["a", "b"]], tmp_path)
    assert joined[0].path != joined[1].path  # where tokens end is part of the text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([["a\x1fb", "c"]], [["a", "b\x1fc"]]),
        ([["a"], ["b"]], [["a\nb", ""]]),
        ([["a", "b"], ["c"]], [["a"], ["b", "c"]]),
        ([["1:a", "b"]], [["1:a1:b", ""]]),
        ([["a"], [], ["b"]], [["a", ""], ["b"]]),
    ],
)
def test_cache_keys_are_length_prefixed_and_never_serve_anothers_layers(tmp_path, one, other):
    elmo = make_elmo()
    first = LayerCache.open(elmo, one, tmp_path)
    second = LayerCache.open(elmo, other, tmp_path)
    assert first.path != second.path
    for sentence in filter(None, other):
        expected = computed_layers(elmo, [sentence])
        torch.testing.assert_close(second.padded([sentence]), expected, rtol=0, atol=0)


def test_a_cache_of_the_old_keys_is_not_found(tmp_path):
    """0.1.0 joined tokens by a separator; its file of the right size must not be read."""
    elmo = make_elmo()
    made = LayerCache.open(elmo, [["a", "b"]], tmp_path / "new").path
    old = hashlib.sha256(b"a\x1fb\n").hexdigest()[:24]
    path = tmp_path / "old" / f"{made.name.partition('-')[0]}-{old}.layers"
    path.parent.mkdir()
    path.write_bytes(bytes(made.stat().st_size))
    opened = LayerCache.open(elmo, [["a", "b"]], tmp_path / "old")
    assert opened.path != path
    assert opened.path.read_bytes() == made.read_bytes()


def test_a_file_that_was_cut_short_is_made_again(tmp_path):
    elmo = make_elmo()
    cache = LayerCache.open(elmo, SENTENCES, tmp_path)
    expected = cache.padded(SENTENCES)
    path = cache.path
    del cache
    path.write_bytes(path.read_bytes()[:-10])
    assert torch.equal(LayerCache.open(elmo, SENTENCES, tmp_path).padded(SENTENCES), expected)


def test_a_killed_process_leaves_nothing_behind(tmp_path, monkeypatch):
    elmo = make_elmo()

    def broken(*arguments, **options):
        yield np.zeros((3, 3, 16), dtype=np.float32)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Elmo, "stream", broken)
        LayerCache.open(elmo, SENTENCES, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert LayerCache.open(elmo, SENTENCES, tmp_path).padded(SENTENCES).any()


def test_nothing_to_keep_is_no_trouble(tmp_path):
    assert LayerCache.open(make_elmo(), [[]], tmp_path).padded([[]]).shape == (3, 1, 0, 16)
    assert LayerCache.open(make_elmo(), [], tmp_path).padded([]).shape == (3, 0, 0, 16)


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "there"))
    assert LayerCache.open(make_elmo(), SENTENCES).path.parent == tmp_path / "there"

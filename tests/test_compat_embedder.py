"""AllenNLP's ElmoEmbedder: all layers of sentences, in memory and to a file."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmokit.compat import ElmoEmbedder
from helpers.allennlp import CALLS, WIDTH, Pair, make_pair, references


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


def test_embedder_gives_all_layers(pair: Pair) -> None:
    embedder = ElmoEmbedder(*pair)
    for batch, rows in zip(CALLS, references(pair), strict=True):
        for got, expected in zip(embedder.embed_batch(batch), rows, strict=True):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, expected, atol=1e-5)


def test_embedder_takes_sentences_in_batches(pair: Pair) -> None:
    sentences = [["a"], ["b", "c"], [], ["d"], ["e"]]
    expected = [*ElmoEmbedder(*pair, stateful=False).embed_batch(sentences)]
    stateless = ElmoEmbedder(*pair, stateful=False)
    for got, vectors in zip(stateless.embed_sentences(iter(sentences), 2), expected, strict=True):
        np.testing.assert_allclose(got, vectors, atol=1e-6)
    layers, mask = stateless.batch_to_embeddings(sentences)
    assert (layers.shape, mask.sum(dim=1).tolist()) == ((5, 3, 2, WIDTH), [1, 2, 0, 1, 1])
    with pytest.raises(ValueError, match="batch_size"):
        list(stateless.embed_sentences(sentences, 0))


def test_an_empty_sentence_has_no_vectors_and_moves_no_state(pair: Pair) -> None:
    embedder, untouched = ElmoEmbedder(*pair), ElmoEmbedder(*pair)
    assert embedder.embed_sentence([]).shape == (3, 0, WIDTH)
    assert embedder.embed_batch([]) == []
    np.testing.assert_array_equal(embedder.embed_sentence(["a"]), untouched.embed_sentence(["a"]))
    embedder.reset_states()
    untouched.reset_states()
    np.testing.assert_array_equal(embedder.embed_sentence(["a"]), untouched.embed_sentence(["a"]))


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_embed_file(pair: Pair, tmp_path: Path, output_format: str) -> None:
    lines = ["나는 밥을 먹었다", "a/b : c", "나는 밥을 먹었다"]
    layers = list(ElmoEmbedder(*pair).embed_sentences([line.split() for line in lines], 2))
    expected = {
        "all": layers,
        "top": [vectors[-1] for vectors in layers],
        "average": [vectors.mean(axis=0) for vectors in layers],
    }[output_format]
    text = StringIO("\n".join(lines) + "\n")
    ElmoEmbedder(*pair).embed_file(text, str(tmp_path / "out.hdf5"), output_format, batch_size=2)
    assert text.closed
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {lines[0]: "2", lines[1]: "1"}
        for number, vectors in enumerate(expected):
            assert file[str(number)].dtype == np.float32
            np.testing.assert_allclose(file[str(number)], vectors, atol=1e-6)


def test_embed_file_keys(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b\n나는 밥을\n", encoding="utf-8")
    embedder, out = ElmoEmbedder(*pair), tmp_path / "out.hdf5"
    embedder.embed_file(tmp_path / "in.txt", out, forget_sentences=True)
    with h5py.File(out) as file:
        assert set(file) == {"0", "1"}
    embedder.embed_file(tmp_path / "in.txt", out, use_sentence_keys=True)
    with h5py.File(out) as file:
        assert set(file) == {"a b", "나는 밥을"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\n\nb\n \n", {}, "empty lines \\(2, 4\\)"),
        ("a\na\n", {"use_sentence_keys": True}, "must differ"),
        ("a\na/b\n", {"use_sentence_keys": True}, "'a/b' cannot be an HDF5 key"),
        ("a\n", {"output_format": "last"}, "expected all, top or average, found 'last'"),
    ],
)
def test_embed_file_refuses_and_leaves_the_old_file(
    pair: Pair, tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    out = tmp_path / "out.hdf5"
    out.write_text("old")
    with pytest.raises(ValueError, match=message):
        ElmoEmbedder(*pair).embed_file(StringIO(text), out, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["out.hdf5"]
    assert out.read_text() == "old"

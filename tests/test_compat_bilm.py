"""bilm-tf's names: the ids of its batchers, its mixes, its files, checked by NumPy and by hand."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmokit.compat import ElmoEmbedder
from elmokit.compat.bilm import (
    Batcher,
    BidirectionalLanguageModel,
    TokenBatcher,
    dump_bilm_embeddings,
    dump_token_embeddings,
    weight_layers,
)
from helpers.allennlp import CALLS, WIDTH, Pair, make_pair, references

ORIGINAL = Path(__file__).parents[2] / "shared" / "data" / "original_elmo"
WORDS = ["<S>", "</S>", "<UNK>", "밥", "먹었다", "a"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("\n".join(["!!!MAXTERMID", *WORDS]), encoding="utf-8")
    return tmp_path / "words.txt"


def test_batcher_spells_tokens_between_boundaries() -> None:
    ids = Batcher("no such file", 7).batch_sentences([["밥", "abcdefgh"], []])
    pad = [261]
    assert (ids.dtype, ids.shape) == (np.int64, (2, 4, 7))
    assert ids[0].tolist() == [
        [259, 257, 260, *pad * 4],
        [259, 236, 177, 166, 260, *pad * 2],
        [259, 98, 99, 100, 101, 102, 260],
        [259, 258, 260, *pad * 4],
    ]
    assert ids[1, :2].tolist() == [ids[0, 0].tolist(), ids[0, 3].tolist()]
    assert not ids[1, 2:].any()
    with pytest.raises(ValueError, match="split it first"):
        Batcher(None, 50).batch_sentences(["a b"])


def test_token_batcher_numbers_the_words_of_a_file(vocabulary: Path) -> None:
    ids = TokenBatcher(vocabulary).batch_sentences([["밥", "unknown", "a"], ["a"]])
    assert ids.tolist() == [[1, 4, 3, 6, 2], [1, 6, 2, 0, 0]]
    vocabulary.write_text("<S>\n</S>\na\n")  # as bilm-tf's own example: it has no <UNK>
    assert TokenBatcher(vocabulary).batch_sentences([["a"]]).tolist() == [[1, 3, 2]]
    with pytest.raises(ValueError, match="neither 'b' nor <UNK>"):
        TokenBatcher(vocabulary).batch_sentences([["b"]])
    vocabulary.write_text("a\n<UNK>\n")
    with pytest.raises(ValueError, match="neither '<S>'"):
        TokenBatcher(vocabulary).batch_sentences([["a"]])


def test_the_model_gives_values_and_carries_its_state(pair: Pair) -> None:
    bilm, batcher = BidirectionalLanguageModel(*pair), Batcher(None, 50)
    for batch, rows in zip(CALLS, references(pair), strict=True):
        ops = bilm(batcher.batch_sentences(batch))
        assert ops["lengths"].tolist() == ops["mask"].sum(dim=1).tolist() == [len(tokens) for tokens in batch]
        assert ops["token_embeddings"].shape == (len(batch), ops["mask"].shape[1] + 2, WIDTH // 2)
        for got, tokens, expected in zip(ops["lm_embeddings"].numpy(), batch, rows, strict=True):
            np.testing.assert_allclose(got[:, : len(tokens)], expected, atol=1e-5)
            assert not got[:, len(tokens) :].any()
    bilm.reset_states()
    again = bilm(batcher.batch_sentences(CALLS[0]))["lm_embeddings"]
    np.testing.assert_allclose(again[0].numpy(), references(pair)[0][0], atol=1e-5)


def test_token_embeddings_are_dumped_and_read_again(pair: Pair, vocabulary: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokens.hdf5"
    dump_token_embeddings(vocabulary, *pair, out)
    with h5py.File(out) as file:
        assert (file["embedding"].dtype, file["embedding"].shape) == (np.float32, (len(WORDS), WIDTH // 2))
        for vector, word in zip(file["embedding"], WORDS, strict=True):
            np.testing.assert_allclose(vector, pair.reference.token_vector(word), atol=1e-5)
    by_words = BidirectionalLanguageModel(*pair, use_character_inputs=False, embedding_weight_file=out)
    sentence = ["a", "밥", "먹었다"]
    got = by_words(TokenBatcher(vocabulary).batch_sentences([sentence]))["lm_embeddings"][0]
    np.testing.assert_allclose(got.numpy(), pair.reference.layers(sentence)[0], atol=1e-5)


def test_bilm_embeddings_are_dumped_line_by_line(pair: Pair, tmp_path: Path) -> None:
    lines = ["나는 밥을 먹었다", "", "a b", "a b"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dump_bilm_embeddings("unread", tmp_path / "in.txt", *pair, tmp_path / "out.hdf5")
    state = None
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert set(file) == {"0", "1", "2", "3"}
        for number, line in enumerate(lines):  # an empty one too is read, between its boundaries
            expected, state = pair.reference.layers(line.split(), state)
            assert file[str(number)].dtype == np.float32
            np.testing.assert_allclose(file[str(number)], expected, atol=1e-5)


def softmax(w: np.ndarray) -> np.ndarray:
    return np.exp(w) / np.exp(w).sum()


@pytest.mark.parametrize("normalize", [False, True])
def test_weight_layers_in_numpy_and_torch(normalize: bool) -> None:
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)  # [B, L, T, D]
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=bool)
    ops = {"lm_embeddings": layers, "mask": mask}
    wanted = layers.astype(np.float64)
    if normalize:
        for layer in range(3):
            real = wanted[:, layer][mask]
            wanted[:, layer] = (wanted[:, layer] - real.mean()) / real.std()
    plain = weight_layers("input", ops, l2_coef=0.1, do_layer_norm=normalize)
    assert isinstance(plain["weighted_op"], np.ndarray)
    assert (plain["weighted_op"].dtype, plain["regularization_op"]) == (np.float32, 0.0)
    np.testing.assert_allclose(plain["weighted_op"], wanted.mean(axis=1), atol=1e-5)

    w, gamma = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0])), torch.nn.Parameter(torch.tensor([3.0]))
    tensors = {name: torch.from_numpy(value) for name, value in ops.items()}
    mixed = weight_layers("output", tensors, l2_coef=0.1, do_layer_norm=normalize, weights=w, gamma=gamma)
    expected = 3 * np.einsum("l,bltd->btd", softmax(np.array([0.5, -1.0, 2.0])), wanted)
    np.testing.assert_allclose(mixed["weighted_op"].detach(), expected, atol=1e-5)
    assert mixed["regularization_op"].item() == pytest.approx(0.1 * 5.25)
    (mixed["weighted_op"].sum() + mixed["regularization_op"]).backward()
    assert w.grad is not None
    assert gamma.grad is not None


def test_weight_layers_top_only() -> None:
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    ops = {"lm_embeddings": layers, "mask": np.ones((2, 4), bool)}
    top = weight_layers("input", ops, l2_coef=1.0, use_top_only=True)
    np.testing.assert_array_equal(top["weighted_op"], layers[:, 2])
    assert top["regularization_op"] == 0.0
    with pytest.raises(ValueError, match="expected 3, one per layer"):
        weight_layers("input", ops, weights=[0.0, 1.0])


def test_what_is_not_an_array_of_ids_is_refused(pair: Pair, tmp_path: Path) -> None:
    bilm = BidirectionalLanguageModel(*pair)
    for wrong, message in (
        (object(), "found object: there is no graph"),
        (np.ones((2, 3), int), "ids of 3 dimensions"),
        (np.zeros((1, 3, 50), int), "a row without"),
    ):
        with pytest.raises(ValueError, match=message):
            bilm(wrong)
    with pytest.raises(ValueError, match="needs the embedding_weight_file"):
        BidirectionalLanguageModel(*pair, use_character_inputs=False)
    (tmp_path / "not.hdf5").write_text("no")
    with pytest.raises(ValueError, match="expected HDF5 of dump_token_embeddings"):
        BidirectionalLanguageModel(*pair, False, tmp_path / "not.hdf5")
    for shape, message in (((3, 4), r"expected vectors \[V, 5\], found \[3, 4\]"), (None, "with 'embedding'")):
        with h5py.File(tmp_path / "other.hdf5", "w") as file:
            file.create_dataset("embedding", shape, "f4") if shape else file.create_group("embedding")
        with pytest.raises(ValueError, match=message):
            BidirectionalLanguageModel(*pair, False, tmp_path / "other.hdf5")


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the published test model is not on this machine")
def test_the_published_dump_is_reproduced(tmp_path: Path) -> None:
    """As AllenNLP's embedder, whose vectors of the published fixture are checked elsewhere."""
    options, weights = ORIGINAL / "options.json", ORIGINAL / "lm_weights.hdf5"
    (tmp_path / "in.txt").write_text("The cat sat .\nIt was here .\n")
    dump_bilm_embeddings(None, tmp_path / "in.txt", options, weights, tmp_path / "out.hdf5")
    embedder = ElmoEmbedder(options, weights)
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, tokens in enumerate((["The", "cat", "sat", "."], ["It", "was", "here", "."])):
            np.testing.assert_allclose(file[str(number)], embedder.embed_sentence(tokens), atol=1e-6)

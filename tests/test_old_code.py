"""Uses of AllenNLP's ELMo and of bilm-tf seen in public code, in our own words: the calls, and what they give.

docs/guides/from-allennlp.md lists where each was seen and whether more than its import must change.
"""

from __future__ import annotations

import pickle
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from elmokit.compat import (
    Elmo,
    ELMoCharacterMapper,
    ElmoEmbedder,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    batch_to_ids,
    bilm,
    remove_sentence_boundaries,
)
from helpers.allennlp import WIDTH, Pair, make_pair

FOLDER = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/"
OPTIONS = FOLDER + "elmo_2x4096_512_2048cnn_2xhighway_options.json"
WEIGHTS = FOLDER + "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5"
SENTENCES = [["The", "first", "one", "."], ["Another", "."]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A small model that stands where the published one does: found by its URL, and without a name."""
    folder = tmp_path_factory.mktemp("published")
    small = make_pair(folder)
    for file, url in zip(small, (OPTIONS, WEIGHTS), strict=True):
        shutil.copy(file, folder / url.rsplit("/", 1)[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELMOKIT_PUBLISHED", str(folder))
        yield small


def layers_of(pair: Pair, tokens: list[str]) -> np.ndarray:
    return np.asarray(pair.reference.layers(tokens)[0])


def carried(pair: Pair, sentences: list[list[str]]) -> list[np.ndarray]:
    """One sentence after the other, each from the state of the last."""
    state, all_layers = None, []
    for tokens in sentences:
        layers, state = pair.reference.layers(tokens, state)
        all_layers.append(layers)
    return all_layers


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), expected, atol=2e-5)


# --- `Elmo` and `batch_to_ids` ---


def test_tutorial_with_urls_and_two_representations(pair: Pair) -> None:
    output = Elmo(OPTIONS, WEIGHTS, 2, dropout=0)(batch_to_ids(SENTENCES))
    assert [tuple(mix.shape) for mix in output["elmo_representations"]] == [(2, 4, WIDTH)] * 2
    for mix in output["elmo_representations"]:
        close(mix[0].detach(), layers_of(pair, SENTENCES[0]).mean(axis=0))


def test_model_and_ids_are_printed(pair: Pair) -> None:
    elmo = Elmo(str(pair.options), str(pair.weights), 2, dropout=0.1)
    assert "(scalar_mix_1): ScalarMix(" in str(elmo)
    assert "259" in str(batch_to_ids([["printed"]]))


def test_three_representations_by_local_files(pair: Pair) -> None:
    embeddings = Elmo(*pair, 3, dropout=0)(batch_to_ids([["I", "love", "it"], ["I", "do"]]))
    assert len(embeddings["elmo_representations"]) == 3
    assert len(embeddings["elmo_representations"][0]) == 2


def test_vector_of_one_position_in_each_row(pair: Pair) -> None:
    elmo, positions = Elmo(OPTIONS, WEIGHTS, 3).eval(), torch.tensor([2, 1])
    representations = elmo(batch_to_ids(SENTENCES))["elmo_representations"]
    summed = sum(representations) / 2
    where = torch.stack([positions] * summed.shape[2], dim=1).unsqueeze(1)
    picked = summed.gather(1, where).squeeze(1).cpu().detach()
    for vector, tokens, position in zip(picked, SENTENCES, positions, strict=True):
        close(vector, 1.5 * layers_of(pair, tokens).mean(axis=0)[position])


class Wrapped(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.elmo = Elmo(OPTIONS, WEIGHTS, 2, dropout=0)
        self.to(device)

    def forward(self, batch: list[list[str]]) -> Any:
        return self.elmo(batch_to_ids(batch).to("cpu"))["elmo_representations"][-1]


def test_module_around_elmo_and_a_saved_array(pair: Pair, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", Wrapped("cpu")(SENTENCES).detach().numpy())
    close(np.load(tmp_path / "vectors.npy")[1, :2], layers_of(pair, SENTENCES[1]).mean(axis=0))


def test_rows_cut_to_their_lengths(pair: Pair) -> None:
    embeds = Elmo(*pair, 1, dropout=0)(batch_to_ids(SENTENCES))["elmo_representations"][0]
    cut = [embeds[row, : len(tokens), :] for row, tokens in enumerate(SENTENCES)]
    assert [len(rows) for rows in cut] == [4, 2]
    close(cut[1].detach(), layers_of(pair, SENTENCES[1]).mean(axis=0))


def test_mean_over_the_mask(pair: Pair) -> None:
    options = {"dropout": 0.0, "requires_grad": False}
    embedded = Elmo(*pair, num_output_representations=1, **options)(batch_to_ids(SENTENCES))
    vectors, mask = embedded["elmo_representations"][0], embedded["mask"].float()
    mean = (vectors * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    close(mean[1].detach(), layers_of(pair, SENTENCES[1]).mean(axis=(0, 1)))


def test_fixed_mix_with_a_row_of_empty_tokens(pair: Pair) -> None:
    """A first row of empty words makes all batches of one length; it is thrown away."""
    elmo = Elmo(*pair, num_output_representations=1, dropout=0, scalar_mix_parameters=[0, 0, 0]).to("cpu")
    ids = batch_to_ids([["" for _ in range(6)], *SENTENCES])
    rows = elmo.eval()(ids)["elmo_representations"][0][1:].split(split_size=1, dim=0)
    for row, tokens in zip(rows, SENTENCES, strict=True):
        row.squeeze_(dim=0)
        row.transpose_(0, 1)
        assert row.shape == (WIDTH, 6)
        close(row.T[: len(tokens)], layers_of(pair, tokens).mean(axis=0))


def test_boundaries_kept_and_gamma_not_trained(pair: Pair) -> None:
    elmo = Elmo(
        options_file=str(pair.options),
        weight_file=str(pair.weights),
        num_output_representations=1,
        requires_grad=False,
        do_layer_norm=False,
        keep_sentence_boundaries=True,
        dropout=0.0,
    )
    elmo.scalar_mix_0.gamma.requires_grad = False
    output = elmo(batch_to_ids(SENTENCES))
    vectors, mask = output["elmo_representations"][0], output["mask"]
    packed = vectors[mask.bool()]  # all rows' real tokens, boundaries included
    assert packed.shape == (4 + 2 + 2 + 2, WIDTH)
    close(packed[1:5].detach(), layers_of(pair, SENTENCES[0]).mean(axis=0))
    packed.sum().backward()
    assert elmo.scalar_mix_0.gamma.grad is None
    assert elmo.scalar_mix_0.scalar_parameters[0].grad is not None


def test_state_off_and_only_the_top_layer(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0)
    elmo._elmo_lstm._elmo_lstm.stateful = False
    elmo._elmo_lstm.requires_grad_(False)
    elmo.scalar_mix_0.scalar_parameters.requires_grad_(False)
    for weight in elmo.scalar_mix_0.scalar_parameters[:-1]:
        weight.data.fill_(-9e10)
    elmo.scalar_mix_0.gamma.requires_grad_(False)
    for _ in range(2):
        (vectors,) = elmo(inputs=batch_to_ids(SENTENCES))["elmo_representations"]
        close(vectors[0], layers_of(pair, SENTENCES[0])[2])
        elmo._elmo_lstm._elmo_lstm.reset_states()


# --- its parts ---


def test_ids_by_the_mapper_class(pair: Pair) -> None:
    ids = torch.LongTensor(np.reshape(ELMoCharacterMapper.convert_word_to_char_ids("hello"), [1, 1, 50]))
    (vectors,) = Elmo(OPTIONS, WEIGHTS, 1).eval()(ids)["elmo_representations"]
    close(vectors[0].detach(), layers_of(pair, ["hello"]).mean(axis=0))


def test_one_layer_of_the_bilm_without_boundaries(pair: Pair) -> None:
    output = _ElmoBiLm(str(pair.options), str(pair.weights))(batch_to_ids([SENTENCES[0]]))
    inner = [remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]]
    stacked = torch.cat([layer[:, None] for layer, _ in inner], dim=1)
    length = int(inner[0][1][0, :].sum())
    close(stacked[0, :, :length, :].detach()[1], layers_of(pair, SENTENCES[0])[1])


def test_token_vectors_of_a_vocabulary(pair: Pair) -> None:
    encoder = _ElmoCharacterEncoder(options_file=OPTIONS, weight_file=WEIGHTS, requires_grad=False)
    words = sorted({"bank", "river", "밥"})
    output = encoder(batch_to_ids([[word] for word in words]))
    vectors = remove_sentence_boundaries(output["token_embedding"], output["mask"])[0].squeeze(1)
    close(vectors.cpu().numpy(), [pair.reference.token_vector(word) for word in words])


class Token:
    """AllenNLP's, or spaCy's: what has a text."""

    def __init__(self, text: str) -> None:
        self.text = text


def test_vocabulary_in_batches_of_fifty_by_the_indexer(pair: Pair) -> None:
    words = ["<UNK>", "<S>", "</S>", *(f"word{number}" for number in range(60))]
    indexer = ELMoTokenCharactersIndexer()
    indices = [indexer.token_to_indices(Token(word), None) for word in words]
    rows = [
        indexer.pad_token_sequence(indices[k * 50 : (k + 1) * 50], desired_num_tokens=50, padding_lengths={})
        for k in range(len(indices) // 50 + 1)
    ]
    vectors = _ElmoCharacterEncoder(*pair)(torch.from_numpy(np.array(rows)))["token_embedding"].data
    flat = vectors[:, 1:-1, :].contiguous().view(-1, vectors.size(-1))[: len(words)]
    close(flat, [pair.reference.token_vector(word) for word in words])


def test_token_embedder_in_a_classifier_that_learns(pair: Pair) -> None:
    torch.manual_seed(0)
    indexer, embedder = ELMoTokenCharactersIndexer(), ElmoTokenEmbedder(OPTIONS, WEIGHTS)
    assert embedder.get_output_dim() == WIDTH
    indexed = [indexer.tokens_to_indices([Token(word) for word in tokens], None) for tokens in SENTENCES]
    ids = torch.stack([indexer.as_padded_tensor_dict(row, {"elmo_tokens": 4})["elmo_tokens"] for row in indexed])
    lstm, out = nn.LSTM(WIDTH, 3, batch_first=True), nn.Linear(3, 2)
    model = nn.ModuleList([embedder, lstm, out])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(15):
        _, (hidden, _) = lstm(embedder(ids))
        loss = nn.functional.cross_entropy(out(hidden[0]), torch.tensor([0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_state_forgotten_between_candidates(pair: Pair) -> None:
    embedder = ElmoTokenEmbedder(*pair, dropout=0)
    for tokens in (SENTENCES[0], SENTENCES[1], SENTENCES[0]):
        if isinstance(embedder, ElmoTokenEmbedder):
            embedder._elmo._elmo_lstm._elmo_lstm.reset_states()
        close(embedder(batch_to_ids([tokens]))[0].detach(), layers_of(pair, tokens).mean(axis=0))


# --- `ElmoEmbedder` ---


def test_layers_of_one_sentence_and_their_distance(pair: Pair) -> None:
    sentences = [["She", "wrote", "the", "play"], ["We", "saw", "children", "play"]]
    elmo = ElmoEmbedder()
    first, second = (elmo.embed_sentence(tokens) for tokens in sentences)
    assert len(first) == 3
    assert len(first[0]) == len(sentences[0])
    with pytest.raises(ValueError, match="split it first"):  # AllenNLP read its letters
        elmo.embed_sentence("She wrote the play")  # type: ignore[arg-type]

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    expected = distance(*(layers[2][3] for layers in carried(pair, sentences)))
    assert distance(first[2][3], second[2][3]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("batch_size", [0, 2])
def test_averages_of_a_file_are_pickled(pair: Pair, tmp_path: Path, batch_size: int) -> None:
    elmo = ElmoEmbedder(cuda_device=-1)
    if batch_size < 1:
        vectors, expected = [elmo.embed_sentence(tokens) for tokens in SENTENCES], carried(pair, SENTENCES)
    else:
        vectors = list(elmo.embed_sentences(SENTENCES, batch_size=batch_size))
        expected = [layers_of(pair, tokens) for tokens in SENTENCES]
    with (tmp_path / "train.elmo.vec").open("wb") as file:
        pickle.dump([np.average(layers, 0) for layers in vectors], file)
    for got, layers in zip(pickle.loads((tmp_path / "train.elmo.vec").read_bytes()), expected, strict=True):
        close(got, layers.mean(axis=0))
    assert np.swapaxes(vectors[0], 0, 1).shape == (4, 3, WIDTH)


def test_a_written_file_is_read_by_number_and_layer(pair: Pair, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "embeds.hdf5"
    text.write_text("The first one .\nAnother .\n")
    with text.open() as file:
        ElmoEmbedder().embed_file(file, str(out), "all", batch_size=1)
    vectors: dict[str, list[tuple[np.ndarray, int, int]]] = {}
    with h5py.File(out, "r") as file:
        for number, line in enumerate(text.read_text().splitlines()):
            embeds, words = file.get(str(number))[1], line.split(" ")
            assert len(embeds) == len(words)
            for position, word in enumerate(words):
                vectors.setdefault(word, []).append((embeds[position], number, position))
    assert [(number, position) for _, number, position in vectors["."]] == [(0, 3), (1, 1)]
    close(vectors["."][1][0], carried(pair, SENTENCES)[1][1, 1])


# --- bilm-tf ---


def test_dataset_file_to_embeddings(pair: Pair, tmp_path: Path) -> None:
    dataset, out = tmp_path / "dataset_file.txt", tmp_path / "elmo_embeddings.hdf5"
    dataset.write_text("".join(" ".join(tokens) + "\n" for tokens in SENTENCES))
    bilm.dump_bilm_embeddings(
        str(tmp_path / "vocab.txt"), str(dataset), str(pair.options), str(pair.weights), str(out)
    )
    with h5py.File(out, "r") as file:
        close(file["1"][...], carried(pair, SENTENCES)[1])


def test_tokens_of_a_folder_are_dumped(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "vocab_elmo.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", "dog"]))
    bilm.dump_token_embeddings(str(tmp_path / "vocab_elmo.txt"), *map(str, pair), str(tmp_path / "out.hdf5"))
    with h5py.File(tmp_path / "out.hdf5") as file:
        close(file["embedding"][3], pair.reference.token_vector("dog"))


# Two uses run TensorFlow sessions: what their placeholders and ops become.


def test_session_over_characters_becomes_a_call(pair: Pair) -> None:
    batcher, model = bilm.Batcher("vocab.txt", 50), bilm.BidirectionalLanguageModel(*pair)
    ops = model(batcher.batch_sentences(SENTENCES))
    mixed = bilm.weight_layers("input", ops, l2_coef=0.0)["weighted_op"]
    close(mixed[0], layers_of(pair, SENTENCES[0]).mean(axis=0))


def test_session_over_tokens_becomes_a_call(pair: Pair, tmp_path: Path) -> None:
    vocabulary, tokens = tmp_path / "vocab_small.txt", tmp_path / "tokens.hdf5"
    vocabulary.write_text("\n".join(sorted({"<S>", "</S>", *SENTENCES[0], *SENTENCES[1]})))
    bilm.dump_token_embeddings(vocabulary, *pair, tokens)
    model = bilm.BidirectionalLanguageModel(*pair, use_character_inputs=False, embedding_weight_file=tokens)
    ops = model(bilm.TokenBatcher(vocabulary).batch_sentences(SENTENCES))
    close(
        bilm.weight_layers("output", ops, l2_coef=0.0)["weighted_op"][1, :2],
        layers_of(pair, SENTENCES[1]).mean(axis=0),
    )


def test_the_walk_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_PUBLISHED", "")  # the script sets it; here it is set back
    runpy.run_path(str(Path(__file__).parent.parent / "examples" / "old_allennlp_code.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "the same scores: True" in printed
    assert "elmokit.Elmo's own vectors by 0e+00" in printed

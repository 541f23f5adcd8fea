"""What people touch inside AllenNLP's Elmo: its halves, its boundaries, its mix, its indexer."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.compat import (
    Elmo,
    ELMoCharacterMapper,
    ElmoLstm,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    ScalarMix,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    add_sentence_boundary_token_ids,
    batch_to_ids,
    remove_sentence_boundaries,
)
from helpers.allennlp import CALLS, WIDTH, Pair, make_pair, references


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


def test_add_sentence_boundary_token_ids() -> None:
    ids, mask = add_sentence_boundary_token_ids(
        torch.tensor([[1, 2, 3], [4, 5, 0], [0, 0, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]]), 9, 10
    )
    assert ids.tolist() == [[9, 1, 2, 3, 10], [9, 4, 5, 10, 0], [9, 10, 0, 0, 0]]
    assert mask.tolist() == [[True] * 5, [True] * 4 + [False], [True] * 2 + [False] * 3]

    rows = torch.tensor([[[1, 2], [3, 4]], [[5, 5], [0, 0]]])
    begin, end = torch.tensor([9, 9]), np.array([8, 0])
    ids, mask = add_sentence_boundary_token_ids(rows, (rows > 0).any(dim=-1), begin, end)
    assert ids.tolist() == [[[9, 9], [1, 2], [3, 4], [8, 0]], [[9, 9], [5, 5], [8, 0], [0, 0]]]
    assert mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    with pytest.raises(ValueError, match=r"found \[2\]"):
        add_sentence_boundary_token_ids(torch.zeros(2), torch.zeros(2), 1, 2)


def test_remove_sentence_boundaries() -> None:
    tensor = torch.tensor([[[1.0], [2], [3], [4]], [[5], [6], [7], [8]], [[9], [9], [9], [9]]])
    inner, mask = remove_sentence_boundaries(
        tensor, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]).bool()
    )
    assert inner.squeeze(-1).tolist() == [[2, 3], [6, 0], [0, 0]]
    assert mask.tolist() == [[True, True], [True, False], [False, False]]


def test_adding_and_removing_boundaries_are_opposites() -> None:
    ids = batch_to_ids(CALLS[1])
    mapper = ELMoCharacterMapper
    begin, end = (
        torch.tensor(characters) + 1
        for characters in (mapper.beginning_of_sentence_characters, mapper.end_of_sentence_characters)
    )
    longer = add_sentence_boundary_token_ids(ids, (ids > 0).any(dim=-1), begin, end)
    back, mask = remove_sentence_boundaries(*longer)
    assert torch.equal(back, ids)
    assert torch.equal(mask, (ids > 0).any(dim=-1))


def test_stateful_may_be_changed_at_any_time(pair: Pair) -> None:
    elmo, ids = Elmo(*pair, 1, dropout=0), batch_to_ids(CALLS[0])
    first, second = (elmo(ids)["elmo_representations"][0] for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-3)
    elmo._elmo_lstm._elmo_lstm.stateful = False
    for _ in range(2):
        assert torch.equal(elmo(ids)["elmo_representations"][0], first)
    elmo._elmo_lstm._elmo_lstm.stateful = True  # AllenNLP went on from the last call, also from one without
    assert torch.equal(elmo(ids)["elmo_representations"][0], second)


def test_the_states_are_what_the_reference_remembers(pair: Pair) -> None:
    elmo = Elmo(*pair, 1)
    lstm = elmo._elmo_lstm._elmo_lstm
    assert lstm._states is None
    elmo(batch_to_ids(CALLS[0]))
    hidden, cell = lstm._states
    assert (hidden.shape, cell.shape) == ((2, 2, WIDTH), (2, 2, 14))
    for row, tokens in enumerate(CALLS[0]):
        (forward, backward) = pair.reference.layers(tokens)[1]
        for layer in range(2):
            for part, got in enumerate((hidden, cell)):
                expected = np.concatenate([forward[layer][part], backward[layer][part]])
                np.testing.assert_allclose(got[layer, row], expected, atol=1e-5)
    lstm._states = (hidden.clone(), cell.clone())
    assert all(torch.equal(a, b) for a, b in zip(lstm._states, (hidden, cell), strict=True))
    lstm.reset_states(torch.tensor([True, False]))
    assert not lstm._states[0][:, 0].any()
    assert torch.equal(lstm._states[0][:, 1], hidden[:, 1])
    lstm._states = None
    assert lstm._states is None


def test_the_halves_of_the_bilm_make_its_layers(pair: Pair) -> None:
    bilm, ids = _ElmoBiLm(*pair), batch_to_ids(CALLS[0])
    read = bilm._token_embedder(ids)
    layers = bilm._elmo_lstm(read["token_embedding"], read["mask"])
    assert layers.shape == (2, 2, 5, WIDTH)
    for row, expected in enumerate(references(pair)[0]):
        np.testing.assert_allclose(layers[:, row, 1 : 1 + expected.shape[1]], expected[1:], atol=1e-5)
    alone = _ElmoCharacterEncoder(*pair)
    assert torch.equal(alone(ids)["token_embedding"], read["token_embedding"])


def test_what_old_code_reads_of_the_parts(pair: Pair) -> None:
    elmo = Elmo(*pair, 2, vocab_to_cache=["<pad>", "a"])
    bilm, lstm, encoder = elmo._elmo_lstm, elmo._elmo_lstm._elmo_lstm, elmo._elmo_lstm._token_embedder
    assert (bilm.num_layers, bilm.get_output_dim(), elmo.get_output_dim()) == (3, WIDTH, WIDTH)
    assert (lstm.num_layers, lstm.input_size, lstm.hidden_size, lstm.cell_size) == (2, 5, 5, 7)
    assert (len(lstm.forward_layers), lstm.backward_layer_1) == (2, lstm.backward_layers[1])
    assert (encoder.get_output_dim(), encoder.output_dim) == (5, 5)
    assert encoder._char_embedding_weights.shape == (262, 3)
    assert (len(encoder._convolutions), encoder._projection.out_features) == (2, 5)
    assert (elmo._has_cached_vocab, bilm._has_cached_vocab, bilm._requires_grad) == (True, True, False)
    assert elmo._scalar_mixes == [elmo.scalar_mix_0, elmo.scalar_mix_1]
    np.testing.assert_allclose(bilm._bos_embedding, pair.reference.token_vector("<S>"), atol=1e-5)
    np.testing.assert_allclose(bilm._eos_embedding, pair.reference.token_vector("</S>"), atol=1e-5)
    np.testing.assert_allclose(bilm._word_embedding.weight[1], pair.reference.token_vector("a"), atol=1e-5)
    names = [name for name, _ in elmo.named_parameters()]
    assert len(names) == len(set(names))
    assert not any("_token_embedder" in name for name in elmo.state_dict())


def test_the_parts_of_a_copy_are_the_copys(pair: Pair) -> None:
    elmo, ids = Elmo(*pair, 1, dropout=0, stateful=False), batch_to_ids([["a", "b"]])
    before = elmo(ids)["elmo_representations"][0]
    for other in (copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo))):
        assert torch.equal(other(ids)["elmo_representations"][0], before)
        other._elmo_lstm._elmo_lstm.forward_layer_0.input_weight.data.zero_()
        other.scalar_mix_0.scalar_parameters[0].data.fill_(7)
        assert not torch.allclose(other(ids)["elmo_representations"][0], before, atol=1e-3)
    assert torch.equal(elmo(ids)["elmo_representations"][0], before)


class Doubled(nn.Module):
    """A module around the LSTMs, as some put there."""

    def __init__(self, lstm: ElmoLstm) -> None:
        super().__init__()
        self.lstm, self.by = lstm, nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return self.by * self.lstm(inputs, mask)


def test_another_module_can_take_the_lstms_place(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0, scalar_mix_parameters=[-9e10, -9e10, 1])
    elmo._elmo_lstm._elmo_lstm = Doubled(elmo._elmo_lstm._elmo_lstm)
    (mix,) = elmo(batch_to_ids(CALLS[0]))["elmo_representations"]
    np.testing.assert_allclose(mix[0].detach(), 2 * references(pair)[0][0][2], atol=2e-5)
    mix.sum().backward()
    assert elmo._elmo_lstm._elmo_lstm.by.grad is not None


def test_scalar_mix_is_allennlps() -> None:
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    mix = ScalarMix(3, initial_scalar_parameters=[0.5, -1.0, 2.0])
    mix.gamma.data.fill_(3)
    shares = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    expected = 3 * sum(share * layer.numpy() for share, layer in zip(shares, layers, strict=True))
    np.testing.assert_allclose(mix(layers).detach(), expected, atol=1e-6)
    np.testing.assert_allclose(mix([layer[0, 0] for layer in layers]).detach(), expected[0, 0], atol=1e-6)
    assert set(mix.state_dict()) == {"gamma", *(f"scalar_parameters.{layer}" for layer in range(3))}
    assert not any(p.requires_grad for p in ScalarMix(2, trainable=False).parameters())
    with pytest.raises(ValueError, match="needs the mask"):
        ScalarMix(3, do_layer_norm=True)(layers)
    with pytest.raises(ValueError, match="expected 3 layers, found 2"):
        mix(layers[:2])


def test_cached_words_also_come_as_inputs(pair: Pair) -> None:
    """AllenNLP 0.5: a 2-dimensional input is of word numbers."""
    words = ["<pad>", "나는", "밥을", "먹었다", "x"]
    elmo = Elmo(*pair, 1, dropout=0, vocab_to_cache=words)
    (mix,) = elmo(torch.tensor([[1, 2, 3], [4, 0, 0]]))["elmo_representations"]
    for got, layers in zip(mix.detach(), references(pair)[0], strict=True):
        np.testing.assert_allclose(got[: layers.shape[1]], layers.mean(axis=0), atol=1e-5)
    with pytest.raises(ValueError, match="past their list"):
        elmo(torch.tensor([[5]]))
    with pytest.raises(ValueError, match="padding between tokens"):
        elmo(torch.tensor([[1, 0, 2]]))


@pytest.mark.parametrize("projection_dim", [None, 4])
def test_token_embedder(pair: Pair, projection_dim: int | None) -> None:
    embedder = ElmoTokenEmbedder(*pair, dropout=0, projection_dim=projection_dim)
    assert embedder.get_output_dim() == (projection_dim or WIDTH)
    ids = batch_to_ids(CALLS[0])
    vectors = embedder(ids)
    assert vectors.shape == (2, 3, projection_dim or WIDTH)
    expected = torch.from_numpy(references(pair)[0][0].mean(axis=0)).float()
    if embedder._projection is not None:
        expected = embedder._projection(expected)
    torch.testing.assert_close(vectors[0], expected, atol=1e-5, rtol=1e-5)
    embedder.reset_states()
    assert torch.equal(embedder(inputs=ids), vectors)  # 0.x called them so
    assert embedder(elmo_tokens=ids.view(1, 2, 3, 50)).shape[:3] == (1, 2, 3)
    with pytest.raises(ValueError, match="found none"):
        embedder()


class Token:
    def __init__(self, text: str) -> None:
        self.text = text


def test_indexer_gives_the_ids_of_batch_to_ids() -> None:
    indexer = ELMoTokenCharactersIndexer(token_min_padding_length=4)
    tokens = ["밥", "a" * 60, "<S>"]
    expected = batch_to_ids([tokens])[0]
    indexed = indexer.tokens_to_indices([Token(token) for token in tokens], vocabulary=None)
    assert indexed == {"elmo_tokens": expected.tolist()}
    assert indexer.tokens_to_indices(tokens, None, "characters") == {"characters": expected.tolist()}  # 0.9
    assert indexer.token_to_indices(Token("밥"), None) == expected[0].tolist()  # 0.3
    lengths = indexer.get_padding_lengths(indexed)
    assert lengths == {"elmo_tokens": 4}
    padded = indexer.as_padded_tensor_dict(indexed, lengths)["elmo_tokens"]
    assert torch.equal(padded, torch.cat([expected, torch.zeros(1, 50, dtype=torch.long)]))
    assert torch.equal(indexer.as_padded_tensor(indexed, {"elmo_tokens": 2}, {})["elmo_tokens"], expected[:2])
    assert indexer.pad_token_sequence([], desired_num_tokens=1, padding_lengths={}) == [[0] * 50]
    assert indexer.get_empty_token_list() == {"elmo_tokens": []}
    for wrong, message in (("a b", "split it first"), ([3], "found 3")):
        with pytest.raises(ValueError, match=message):
            indexer.tokens_to_indices(wrong)


def test_character_mapper_has_allennlps_numbers() -> None:
    mapper = ELMoCharacterMapper({"[CLS]": 7})
    assert mapper.convert_word_to_char_ids("ab")[:5] == [259, 98, 99, 260, 261]
    assert mapper.convert_word_to_char_ids("[CLS]")[:4] == [259, 8, 260, 261]
    assert mapper.convert_word_to_char_ids("")[:3] == [259, 260, 261]
    assert ELMoCharacterMapper.convert_word_to_char_ids("[CLS]")[1] == ord("[") + 1
    assert ELMoCharacterMapper.beginning_of_sentence_characters[:4] == [258, 256, 259, 260]
    assert len(ELMoCharacterMapper.end_of_sentence_characters) == ELMoCharacterMapper.max_word_length == 50
    assert mapper == ELMoCharacterMapper({"[CLS]": 7}) != ELMoCharacterMapper()

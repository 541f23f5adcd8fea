"""Code written for AllenNLP gets from elmokit.compat what AllenNLP gave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.compat import Elmo, ElmoEmbedder, batch_to_ids
from helpers.allennlp import CALLS, WIDTH, Pair, make_checkpoint, make_pair, references


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("published"))


ORIGINAL = Path(__file__).parents[2] / "shared" / "data" / "original_elmo"


def check_average(elmo: Elmo, calls: list[list[np.ndarray]]) -> None:
    """The average of the layers is what an untrained mix gives; zeros where a row is padded."""
    for batch, rows in zip(CALLS, calls, strict=True):
        output = elmo(batch_to_ids(batch))
        (mix,) = output["elmo_representations"]
        assert output["mask"].sum(dim=1).tolist() == [len(tokens) for tokens in batch]
        for got, tokens, layers in zip(mix.detach().numpy(), batch, rows, strict=True):
            np.testing.assert_allclose(got[: len(tokens)], layers.mean(axis=0), atol=1e-5)
            assert not got[len(tokens) :].any()


def test_ids_are_allennlps() -> None:
    ids = batch_to_ids([["밥", "<S>"], ["a" * 60]])
    assert (ids.shape, ids.dtype) == ((2, 2, 50), torch.int64)
    assert ids[0, 0, :6].tolist() == [259, 236, 177, 166, 260, 261]
    assert ids[0, 1, :4].tolist() == [259, 257, 260, 261]
    assert ids[1, 0].tolist() == [259, *[98] * 48, 260]
    assert not ids[1, 1].any()


def test_ids_of_nothing_have_the_shape_of_ids() -> None:
    assert batch_to_ids([]).shape == (0, 0, 50)
    assert batch_to_ids([[], []]).shape == (2, 0, 50)


def test_a_string_is_not_a_list_of_tokens() -> None:
    with pytest.raises(ValueError, match="split it first"):
        batch_to_ids(["I am here"])
    with pytest.raises(ValueError, match="split it first"):
        batch_to_ids("I am here")


def test_rows_carry_their_state_from_call_to_call(pair: Pair) -> None:
    check_average(Elmo(*pair, 1, dropout=0), references(pair))


def test_state_can_be_turned_off(pair: Pair) -> None:
    check_average(Elmo(*pair, 1, dropout=0, stateful=False), references(pair, carry=False))


def test_reset_states_forgets(pair: Pair) -> None:
    elmo, ids = Elmo(*pair, 1, dropout=0), batch_to_ids([["a", "b"]])
    first, second = elmo(ids)["elmo_representations"][0], elmo(ids)["elmo_representations"][0]
    elmo.reset_states()
    again = elmo(ids)["elmo_representations"][0]
    assert torch.equal(first, again)
    assert not torch.allclose(first, second, atol=1e-3)


def test_boundaries_are_kept_on_request(pair: Pair) -> None:
    ids = batch_to_ids([["a", "b", "c"], ["d"]])
    inner = Elmo(*pair, 1, dropout=0)(ids)
    outer = Elmo(*pair, 1, dropout=0, keep_sentence_boundaries=True)(ids)
    mix = outer["elmo_representations"][0]
    assert mix.shape == (2, 5, WIDTH)
    assert outer["mask"].tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert torch.equal(mix[0, 1:4], inner["elmo_representations"][0][0])
    assert torch.equal(mix[1, 1:2], inner["elmo_representations"][0][1, :1])


@pytest.mark.parametrize("keep", [False, True])
def test_more_dimensions_are_rows_and_come_back(pair: Pair, keep: bool) -> None:
    ids = batch_to_ids([["a", "b"], ["c"], ["d"], [], ["e"], ["f"]])
    flat = Elmo(*pair, 2, dropout=0, keep_sentence_boundaries=keep)(ids)
    output = Elmo(*pair, 2, dropout=0, keep_sentence_boundaries=keep)(ids.view(2, 3, 2, 50))
    tokens = 4 if keep else 2
    assert output["mask"].shape == (2, 3, tokens)
    for got, expected in zip(output["elmo_representations"], flat["elmo_representations"], strict=True):
        assert torch.equal(got, expected.view(2, 3, tokens, WIDTH))


def test_layer_norm_is_over_the_batch(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0, do_layer_norm=True, keep_sentence_boundaries=True)
    output = elmo(batch_to_ids(CALLS[1]))
    real = output["elmo_representations"][0][output["mask"]]
    plain = Elmo(*pair, 1, dropout=0, keep_sentence_boundaries=True)
    layers = plain._elmo_lstm(batch_to_ids(CALLS[1]))["activations"][:, output["mask"]]  # [L, N, D]
    expected = torch.stack([(layer - layer.mean()) / layer.std(correction=0) for layer in layers]).mean(0)
    torch.testing.assert_close(real, expected, atol=1e-5, rtol=1e-5)


def test_fixed_mix_parameters_choose_a_layer_and_are_not_trained(pair: Pair) -> None:
    elmo = Elmo(*pair, 2, dropout=0, scalar_mix_parameters=[-9e10, 1, -9e10])
    for mix in elmo(batch_to_ids(CALLS[0]))["elmo_representations"]:
        np.testing.assert_allclose(mix[0].numpy(), references(pair)[0][0][1], atol=1e-5)
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    with pytest.raises(ValueError, match="expected 3 weights"):
        Elmo(*pair, 1, scalar_mix_parameters=[1, 2])


def test_gradients_reach_the_mixes_and_the_bilm_on_request(pair: Pair) -> None:
    for requires_grad in (False, True):
        elmo = Elmo(*pair, 2, requires_grad=requires_grad)
        for _ in range(2):  # a second time: the carried state brings no graph of the first
            output = elmo(batch_to_ids(CALLS[0]))
            torch.stack(output["elmo_representations"]).square().sum().backward()
        trained = {name for name, parameter in elmo.named_parameters() if parameter.grad is not None}
        names = ("scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2", "gamma")
        assert {f"scalar_mix_{k}.{name}" for k in (0, 1) for name in names} <= trained
        assert any(name.startswith("_elmo_lstm") for name in trained) == requires_grad
    assert trained == {name for name, _ in elmo.named_parameters()}


def test_dropout_is_for_training(pair: Pair) -> None:
    ids = batch_to_ids([["a", "b"]])
    elmo = Elmo(*pair, 1, stateful=False)
    assert (elmo.train()(ids)["elmo_representations"][0] == 0).any()
    assert not (elmo.eval()(ids)["elmo_representations"][0] == 0).any()


def test_cached_words_are_the_uncached(pair: Pair) -> None:
    words = ["<pad>", *sorted({token for batch in CALLS for tokens in batch for token in tokens})]
    cached, plain = Elmo(*pair, 1, dropout=0, vocab_to_cache=words), Elmo(*pair, 1, dropout=0)
    for batch in CALLS:
        ids = batch_to_ids(batch)
        numbers = torch.zeros(ids.shape[:2], dtype=torch.long)
        for row, tokens in zip(numbers, batch, strict=True):
            row[: len(tokens)] = torch.tensor([words.index(token) for token in tokens], dtype=torch.long)
        got, expected = cached(torch.zeros_like(ids), numbers), plain(ids)
        assert torch.equal(got["mask"], expected["mask"])
        torch.testing.assert_close(got["elmo_representations"], expected["elmo_representations"])
    # Words outside the cache: the characters are read instead.
    got, expected = cached(ids, numbers + len(words)), plain(ids, numbers)
    torch.testing.assert_close(got["elmo_representations"], expected["elmo_representations"])


def test_cached_words_of_more_dimensions(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, vocab_to_cache=["<pad>", "a", "b"])
    output = elmo(torch.zeros(2, 3, 4, 50, dtype=torch.long), torch.ones(2, 3, 4, dtype=torch.long))
    assert output["elmo_representations"][0].shape == (2, 3, 4, WIDTH)
    assert output["mask"].all()


class GivenLayers(nn.Module):
    num_layers = 2

    def get_output_dim(self) -> int:
        return 4

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        rows, tokens = inputs.shape[:2]
        layers = [torch.full((rows, tokens + 2, 4), value) for value in (1.0, 3.0)]
        return {"activations": layers, "mask": torch.ones(rows, tokens + 2, dtype=torch.bool)}


def test_another_module_can_take_the_bilms_place(pair: Pair) -> None:
    elmo = Elmo(None, None, 1, dropout=0, module=GivenLayers())
    elmo.reset_states()
    assert elmo.get_output_dim() == 4
    (mix,) = elmo(batch_to_ids([["a", "b"]]))["elmo_representations"]
    assert torch.equal(mix, torch.full((1, 2, 4), 2.0))
    with pytest.raises(ValueError, match="takes the place"):
        Elmo(*pair, 1, module=GivenLayers())


def test_a_folder_of_ours_is_read_too(pair: Pair, tmp_path: Path) -> None:
    make_checkpoint(0).save(tmp_path / "model")
    check_average(Elmo(tmp_path / "model", None, 1, dropout=0), references(pair))


def allennlp_state(weights: Path) -> dict[str, Tensor]:
    """What a task model saved by AllenNLP holds of its Elmo, made from the published arrays."""
    state = {}
    with h5py.File(weights) as file:

        def read(name: str) -> Tensor:
            return torch.from_numpy(file[name][...])

        characters, embedder = read("char_embed"), "_elmo_lstm._token_embedder"
        state[f"{embedder}._char_embedding_weights"] = torch.cat([torch.zeros(1, 3), characters])
        for i in range(2):
            state[f"{embedder}.char_conv_{i}.weight"] = read(f"CNN/W_cnn_{i}")[0].permute(2, 1, 0)
            state[f"{embedder}.char_conv_{i}.bias"] = read(f"CNN/b_cnn_{i}")
            high = {name: read(f"CNN_high_{i}/{name}") for name in file[f"CNN_high_{i}"]}
            layer = f"{embedder}._highways._layers.{i}"
            state[f"{layer}.weight"] = torch.cat([high["W_transform"].T, -high["W_carry"].T])
            state[f"{layer}.bias"] = torch.cat([high["b_transform"], -high["b_carry"]])
        state[f"{embedder}._projection.weight"] = read("CNN_proj/W_proj").T
        state[f"{embedder}._projection.bias"] = read("CNN_proj/b_proj")
        for direction, way in enumerate(("forward", "backward")):
            for layer_index in range(2):
                cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer_index}/LSTMCell"
                ours = f"_elmo_lstm._elmo_lstm.{way}_layer_{layer_index}"
                i, g, f, o = read(f"{cell}/W_0").T.chunk(4)
                both = torch.cat([i, f, g, o])
                state[f"{ours}.input_linearity.weight"] = both[:, : WIDTH // 2]
                state[f"{ours}.state_linearity.weight"] = both[:, WIDTH // 2 :]
                i, g, f, o = read(f"{cell}/B").chunk(4)
                state[f"{ours}.state_linearity.bias"] = torch.cat([i, f + 1, g, o])
                state[f"{ours}.state_projection.weight"] = read(f"{cell}/W_P_0").T
    for layer_index, weight in enumerate((0.5, -1.0, 2.0)):
        state[f"scalar_mix_0.scalar_parameters.{layer_index}"] = torch.tensor([weight])
    return state | {"scalar_mix_0.gamma": torch.tensor([3.0])}


def test_task_models_saved_by_allennlp_load(pair: Pair, tmp_path: Path) -> None:
    other = make_pair(tmp_path, seed=1)
    task = nn.ModuleDict({"elmo": Elmo(*other, 1, dropout=0), "tagger": nn.Linear(WIDTH, 2)})
    old = {f"elmo.{name}": value for name, value in allennlp_state(pair.weights).items()}
    old |= {f"tagger.{name}": value for name, value in task["tagger"].state_dict().items()}
    names = set(old)
    task.load_state_dict(old)  # strict: nothing is missing, nothing is left over
    assert set(old) == names

    elmo = task["elmo"]
    assert [weight.item() for weight in elmo.scalar_mix_0.scalar_parameters] == [0.5, -1.0, 2.0]
    assert elmo.scalar_mix_0.gamma.item() == 3.0
    shares = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    for batch, rows in zip(CALLS, references(pair), strict=True):
        (mix,) = elmo(batch_to_ids(batch))["elmo_representations"]
        for got, layers in zip(mix.detach().numpy(), rows, strict=True):
            expected = 3 * np.einsum("l,ltd->td", shares, layers)
            np.testing.assert_allclose(got[: len(expected)], expected, atol=3e-5)


def test_saved_caches_of_words_load(pair: Pair) -> None:
    elmo = Elmo(*pair, 1, dropout=0, vocab_to_cache=["<pad>", "a", "b"])
    table = elmo.state_dict()["_elmo_lstm._word_embedding.weight"].clone()
    elmo.load_state_dict(allennlp_state(pair.weights) | {"_elmo_lstm._word_embedding.weight": table[:3] * 2})
    assert torch.equal(elmo.state_dict()["_elmo_lstm._word_embedding.weight"], table[:3] * 2)


def test_states_saved_by_the_first_elmokit_load(pair: Pair) -> None:
    """Its mixes had one parameter, and its table of words held <S> and </S> at its end."""
    elmo = Elmo(*pair, 1, dropout=0, vocab_to_cache=["<pad>", "a"])
    state = elmo.state_dict()
    for layer in range(3):
        del state[f"scalar_mix_0.scalar_parameters.{layer}"]
    table = state["_elmo_lstm._word_embedding.weight"].clone()
    state |= {"scalar_mix_0.weights": torch.tensor([0.5, -1.0, 2.0]), "scalar_mix_0.gamma": torch.tensor(3.0)}
    elmo.load_state_dict(state | {"_elmo_lstm._word_embedding.weight": torch.cat([table * 2, table])})
    assert [weight.item() for weight in elmo.scalar_mix_0.scalar_parameters] == [0.5, -1.0, 2.0]
    assert elmo.scalar_mix_0.gamma.tolist() == [3.0]
    assert torch.equal(elmo._elmo_lstm._word_embedding.weight, table * 2)


def test_our_own_state_loads(pair: Pair, tmp_path: Path) -> None:
    elmo = Elmo(*make_pair(tmp_path, seed=1), 1, dropout=0)
    elmo.load_state_dict(Elmo(*pair, 1).state_dict())
    check_average(elmo, references(pair))


def test_what_cannot_be_loaded_says_why(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no model given"):
        Elmo(None, None, 1)
    with pytest.raises(ValueError, match="no options file"):
        ElmoEmbedder(tmp_path / "none.json", pair.weights)
    with pytest.raises(ValueError, match="1 or more"):
        Elmo(*pair, 0)
    with pytest.raises(ValueError, match="cuda_device 99"):
        ElmoEmbedder(*pair, cuda_device=99)


def test_ids_of_another_shape_are_refused(pair: Pair) -> None:
    elmo = Elmo(*pair, 1)
    with pytest.raises(ValueError, match=r"found \[2, 50\]"):
        elmo(torch.ones(2, 50, dtype=torch.long))
    with pytest.raises(ValueError, match="expected 50 ids a token, found 40"):
        elmo(torch.ones(1, 2, 40, dtype=torch.long))


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the published test model is not on this machine")
def test_the_published_model_gives_the_published_vectors() -> None:
    embedder = ElmoEmbedder(ORIGINAL / "options.json", ORIGINAL / "lm_weights.hdf5")
    streams = json.loads((ORIGINAL / "sentences.json").read_text(encoding="utf-8"))
    with h5py.File(ORIGINAL / "lm_embeddings_0.hdf5") as expected:
        for i, batch in enumerate(zip(*streams, strict=True)):
            first, *_ = embedder.embed_batch([sentence.split() for sentence in batch])
            np.testing.assert_allclose(first[2], np.concatenate(expected[str(i)], axis=-1), atol=1e-6, rtol=1e-5)

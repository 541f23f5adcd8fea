"""Character filters by tables against their definition, PyTorch's own convolutions."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.model import char_encoder
from elmokit.model.char_encoder import CharEncoder, CharEncoderConfig
from elmokit.model.kernels import convolution, use, variant
from elmokit.model.kernels.library import available_variants
from elmokit.model.kernels.structs import PANEL
from helpers.models import small_config

pytestmark = pytest.mark.skipif(variant() == "torch", reason="the native library is not here")

FILTERS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 70)), min_size=1, max_size=4)
CONFIGS = st.builds(
    CharEncoderConfig,
    characters=st.integers(2, 300),
    embedding=st.integers(1, 7),
    filters=FILTERS.map(tuple),
    highway=st.integers(0, 1),
    activation=st.sampled_from(["relu", "tanh"]),
)


def make_encoder(config: CharEncoderConfig, seed: int = 0, width: int = 5) -> CharEncoder:
    generator = torch.Generator().manual_seed(seed)
    encoder = CharEncoder(config, width)
    with torch.no_grad():
        for parameter in encoder.parameters():
            scale = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        encoder.character_embedding.weight[1:].normal_(generator=generator)
        encoder.character_embedding.weight[0] = 0
    return encoder


def make_words(config: CharEncoderConfig, room: int, words: int = 11, seed: int = 0) -> torch.Tensor:
    """Words of every length with padding after them; one without any, one of zeros, one of a single character."""
    random = np.random.default_rng(seed)
    length = max(width for width, _ in config.filters) + room
    ids = random.integers(1, config.characters, (words, length))
    padding = random.integers(1, config.characters)
    for row in ids[3:]:
        row[random.integers(1, length + 1) :] = padding
    ids[1] = 0
    ids[2, 1:] = padding
    return torch.from_numpy(ids)


def by_definition(encoder: CharEncoder, ids: torch.Tensor) -> torch.Tensor:
    with use("definition"):
        return encoder.encode(ids)


def by_tables(encoder: CharEncoder, ids: torch.Tensor) -> torch.Tensor:
    with mock.patch.object(encoder, "_encode", side_effect=AssertionError("tables were to be used")):
        return encoder.encode(ids)


def gradients(encoder: CharEncoder, x: torch.Tensor) -> dict[str, torch.Tensor]:
    weights = torch.linspace(-1, 1, x.numel()).view_as(x)
    names = dict(encoder.named_parameters())
    found = torch.autograd.grad((weights * x).sum(), list(names.values()))
    return dict(zip(names, found))


@settings(max_examples=60, deadline=None)
@given(CONFIGS, st.integers(0, 12), st.integers(0, 2**16))
def test_values_are_those_of_the_definition(config, room, seed):
    encoder, ids = make_encoder(config, seed), make_words(config, room, seed=seed)
    expected = by_definition(encoder, ids)
    with torch.no_grad():
        torch.testing.assert_close(by_tables(encoder, ids), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(by_tables(encoder, ids), expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(CONFIGS, st.integers(0, 12), st.integers(0, 2**16))
def test_gradients_are_those_of_the_definition(config, room, seed):
    encoder, ids = make_encoder(config, seed), make_words(config, room, seed=seed)
    # Weights of few digits: sums are exact, so both see the same windows as equal, and the first one gets it all.
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name.startswith(("character_embedding", "convolutions")):
                parameter.copy_((8 * parameter).round() / 8)
    expected = gradients(encoder, by_definition(encoder, ids))
    ours = gradients(encoder, by_tables(encoder, ids))
    for name, gradient in ours.items():
        bound = 1e-4 * max(1.0, float(expected[name].abs().max()))
        torch.testing.assert_close(
            gradient, expected[name], atol=bound, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert not ours["character_embedding.weight"][0].any()  # the row of padded tokens stays zero


def test_gradients_agree_with_numerical_ones():
    config = CharEncoderConfig(characters=9, embedding=3, filters=((1, 3), (3, 4)), highway=0, activation="tanh")
    encoder, ids = make_encoder(config), make_words(config, 4)
    found = gradients(encoder, by_tables(encoder, ids))
    weights = torch.linspace(-1, 1, len(ids) * encoder.width).view(len(ids), -1)
    for name, parameter in encoder.named_parameters():
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        if "character" in name:
            direction[0] = 0
        values = []
        with torch.no_grad():
            before = parameter.clone()
            for step in (1e-3, -1e-3):
                parameter.copy_(before + step * direction)
                values.append(float((weights * by_tables(encoder, ids)).double().sum()))
            parameter.copy_(before)
        assert (values[0] - values[1]) / 2e-3 == pytest.approx(
            float((found[name] * direction).sum()), rel=2e-2, abs=2e-2
        )


def test_the_first_of_equal_windows_gets_the_gradient():
    table = torch.zeros(1, 1, 3, PANEL, requires_grad=True)
    features = convolution.convolve([table], [PANEL], torch.tensor([[2, 1, 0, 0]]))
    features.sum().backward()
    assert table.grad[0, 0].sum(dim=1).tolist() == [0, 0, PANEL]


@pytest.mark.parametrize("frozen", ["character_embedding.weight", "convolutions.0.weight", "convolutions.0.bias"])
def test_what_is_frozen_stays_without_a_gradient(frozen):
    encoder = make_encoder(small_config().encoder)
    encoder.get_parameter(frozen).requires_grad_(False)
    ids = make_words(encoder.config, 5)
    by_tables(encoder, ids).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert (parameter.grad is None) == (name == frozen)


@settings(max_examples=30, deadline=None)
@given(CONFIGS, st.integers(0, 12), st.integers(0, 2**16), st.booleans())
def test_features_are_the_same_to_the_bit_among_any_other_words(config, room, seed, cached):
    # relu: PyTorch's tanh of what is left over after whole vectors is another one.
    config = dataclasses.replace(config, highway=0, projection=False, activation="relu")
    encoder, ids = make_encoder(config, seed, config.features), make_words(config, room, 23, seed)
    # With so few bytes they are made for the characters of a few words at a time.
    most = convolution.MOST_BYTES if cached else convolution.table_bytes(config.characters // 2, config.filters)
    with torch.no_grad(), mock.patch.object(convolution, "MOST_BYTES", most):
        together = by_tables(encoder, ids)
        for row in range(0, len(ids), 5):
            some = torch.tensor([row, 3, 7])[: 1 + row % 3]
            assert torch.equal(by_tables(encoder, ids[some])[0], together[row])


@pytest.mark.parametrize("most", [64 << 20, 4 << 20])
def test_vectors_are_the_same_to_the_bit_among_any_other_words(most, monkeypatch):
    config = CharEncoderConfig(highway=1)  # a published size; what MKL does with tiny matrices is another matter
    encoder, ids = make_encoder(config, width=128), make_words(config, 20, words=90)
    monkeypatch.setattr(convolution, "MOST_BYTES", most)
    with torch.no_grad():
        together = by_tables(encoder, ids)
        for count in (1, 2, 3, 5, 16, 33, 78):
            assert torch.equal(by_tables(encoder, ids[7 : 7 + count]), together[7 : 7 + count])


def test_chunks_and_threads_change_nothing(monkeypatch):
    config = CharEncoderConfig(embedding=4, filters=((1, 4), (2, 70), (5, 64)), highway=0, projection=False)
    encoder, ids = make_encoder(config, width=config.features), make_words(config, 8, words=301)
    expected = by_tables(encoder, ids)
    expected_gradients = gradients(encoder, expected)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(by_tables(encoder, ids), expected)
    for name, found in gradients(encoder, by_tables(encoder, ids)).items():
        assert torch.equal(found, expected_gradients[name])
    monkeypatch.setattr(char_encoder, "FAST_ROWS_AT_ONCE", 64)
    assert torch.equal(by_tables(encoder, ids), expected)


def test_nan_is_not_hidden():
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5)
    with torch.no_grad():
        encoder.character_embedding.weight[int(ids[3, 0])] = torch.nan
        assert by_tables(encoder, ids)[3].isnan().all()


def change_in_place(encoder):
    with torch.no_grad():
        encoder.convolutions[1].weight[0, 0, 0] += 1


def change_through_data(encoder):
    encoder.character_embedding.weight.data.mul_(2)


def change_through_numpy(encoder):
    encoder.convolutions[0].weight.detach().numpy()[:] *= 2


def change_by_loading(encoder):
    encoder.load_state_dict(make_encoder(encoder.config, seed=1).state_dict())


def change_by_assigning(encoder):
    encoder.load_state_dict(make_encoder(encoder.config, seed=1).state_dict(), assign=True)


def change_by_a_step(encoder):
    encoder.encode(make_words(encoder.config, 5)).sum().backward()
    torch.optim.SGD(encoder.parameters(), lr=0.1).step()


@pytest.mark.parametrize(
    "change",
    [
        change_in_place,
        change_through_data,
        change_through_numpy,
        change_by_loading,
        change_by_assigning,
        change_by_a_step,
    ],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_kept_tables_are_never_stale(change, mode):
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5)
    with mode():
        before = by_tables(encoder, ids)
        assert torch.equal(by_tables(encoder, ids), before)
    change(encoder)
    with mode():
        after = by_tables(encoder, ids)
        assert not torch.equal(after, before)
        torch.testing.assert_close(after, by_definition(encoder, ids), atol=1e-5, rtol=0)


def test_tables_are_made_once_for_the_same_weights():
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5)
    with (
        torch.no_grad(),
        mock.patch.object(convolution, "make_tables", side_effect=convolution.make_tables) as make,
    ):
        for _ in range(3):
            encoder.encode(ids)
        assert make.call_count == 1


def test_weights_made_in_inference_mode():
    with torch.inference_mode():
        encoder = make_encoder(small_config().encoder)
        ids = make_words(encoder.config, 5)
        expected = by_tables(encoder, ids)
        encoder.convolutions[0].weight.mul_(2)
        assert not torch.equal(by_tables(encoder, ids), expected)


def test_a_module_is_copied_pickled_and_saved_without_its_tables():
    encoder = make_encoder(small_config().encoder)
    names, ids = list(encoder.state_dict()), make_words(encoder.config, 5)
    with torch.no_grad():
        size = len(pickle.dumps(encoder))
        expected = encoder.encode(ids)
        assert list(encoder.state_dict()) == names
        assert len(pickle.dumps(encoder)) == size
        saved = io.BytesIO()
        torch.save(encoder, saved)
        saved.seek(0)
        for other in (
            copy.deepcopy(encoder),
            pickle.loads(pickle.dumps(encoder)),
            torch.load(saved, weights_only=False),
        ):
            assert torch.equal(other.encode(ids), expected)
            other.character_embedding.weight.mul_(2)
            assert not torch.equal(other.encode(ids), expected)
        assert torch.equal(encoder.encode(ids), expected)


def test_several_threads_at_once():
    encoder = make_encoder(small_config().encoder)
    batches = [make_words(encoder.config, 8, words=50, seed=seed) for seed in range(8)]

    def encode(ids):
        with torch.no_grad():
            return encoder.encode(ids)

    expected = [encode(ids) for ids in batches]
    encoder._cache = convolution.TableCache()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(torch.equal, pool.map(encode, batches), expected))


def test_more_characters_than_a_table_can_hold(monkeypatch):
    config = CharEncoderConfig(characters=3000, embedding=4, filters=((2, 40),), highway=0)
    encoder, ids = make_encoder(config), make_words(config, 6)
    expected = by_definition(encoder, ids)
    gradient = gradients(encoder, expected)
    for most in (200, 30, 1):  # those of all the words, of some, of each: one word has its table in any case
        monkeypatch.setattr(convolution, "MOST_BYTES", convolution.table_bytes(most, config.filters))
        with torch.no_grad():
            torch.testing.assert_close(by_tables(encoder, ids), expected, atol=1e-5, rtol=0)
        assert encoder._cache._held is None
        for name, found in gradients(encoder, by_tables(encoder, ids)).items():
            torch.testing.assert_close(found, gradient[name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("room", [255, 256, 400])
def test_very_long_words(room):
    config = CharEncoderConfig(characters=20, embedding=4, filters=((1, 40), (2, 3)), highway=0)
    encoder = make_encoder(config)
    ids = make_words(config, room)
    expected = by_definition(encoder, ids)
    with torch.no_grad():
        torch.testing.assert_close(by_tables(encoder, ids), expected, atol=1e-5, rtol=0)
    ours, theirs = gradients(encoder, encoder.encode(ids)), gradients(encoder, expected)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-4, rtol=1e-4)


def test_a_word_table_beside_the_characters():
    config = CharEncoderConfig(
        characters=20, embedding=4, filters=((1, 5), (2, 40)), highway=1, words=30, word_embedding=6
    )
    encoder, ids = make_encoder(config), make_words(config, 6)
    ids = torch.cat([ids, torch.arange(len(ids)).unsqueeze(1)], dim=1)
    torch.testing.assert_close(by_tables(encoder, ids), by_definition(encoder, ids), atol=1e-5, rtol=0)


@pytest.mark.parametrize("wrong", [-1, 262, 2**40])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_ids_that_no_table_knows_are_refused(wrong, mode):
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5)
    ids[2, 3] = wrong
    with mode(), pytest.raises(IndexError, match=f"expected character ids from 0 to 261, found {wrong}"):
        encoder(ids.unsqueeze(0))


def test_without_the_library_torch_runs():
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5).unsqueeze(0)
    expected = encoder(ids)
    with use("torch"):
        assert variant() == "torch"
        torch.testing.assert_close(encoder(ids), expected, atol=1e-5, rtol=0)
    assert variant() != "torch"


@pytest.mark.parametrize("kind", ["double", "autocast"])
def test_other_precisions_take_the_definition(kind):
    encoder = make_encoder(small_config().encoder)
    ids = make_words(encoder.config, 5)
    expected = encoder.encode(ids)
    with torch.no_grad(), mock.patch.object(convolution, "convolve", side_effect=AssertionError):
        if kind == "double":
            torch.testing.assert_close(encoder.double().encode(ids).float(), expected, atol=1e-5, rtol=0)
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                torch.testing.assert_close(encoder.encode(ids).float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("name", available_variants())
def test_every_variant_that_this_processor_runs(name):
    config = CharEncoderConfig(characters=50, filters=((1, 3), (4, 64), (7, 70), (9, 33)), highway=1)
    encoder, ids = make_encoder(config), make_words(config, 9, words=70)
    with use(name):
        ours = by_tables(encoder, ids)
        found = gradients(encoder, ours)
    theirs = by_definition(encoder, ids)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    expected = gradients(encoder, theirs)
    for key in found:
        torch.testing.assert_close(found[key], expected[key], atol=1e-3, rtol=1e-4)

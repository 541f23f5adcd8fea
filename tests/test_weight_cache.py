"""What was made of weights is never stale: the next call sees any edit of any element, however it was made."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.embed.embedder import Elmo
from elmokit.embed.token_layer import TokenLayer
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.kernels import trust_versions, use
from elmokit.model.kernels.cache import Hashing, digests_of, look, optimistic, remembered
from elmokit.model.kernels.layers import packed
from elmokit.model.kernels.library import available_variants, library
from elmokit.model.lstm import LSTMConfig
from helpers.models import make_elmo, random_bilm

VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")

CONFIG = BiLMConfig(
    CharEncoderConfig(embedding=4, filters=((1, 4), (3, 40)), highway=1), LSTMConfig(layers=2, cells=11, width=8)
)
SENTENCES = [["He", "sat", "on", "the", "bank"], ["Stop"]]
NAMES = [name for name, _ in BiLM(CONFIG).named_parameters()]


# The digest, beside one in NumPy.

STEP, MIX, JOIN = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
PIECE, BITS = 1 << 18, (1 << 64) - 1


def piece_digest(content: bytes, seed: int) -> int:
    words = np.frombuffer(content + bytes(-len(content) % 64), dtype="<u8").reshape(-1, 8)
    keys = [(seed + lane + 1) * MIX for lane in range(8)]
    lines = np.arange(len(words), dtype=np.uint64)[:, None] * np.uint64(STEP)
    mixed = words ^ (np.array([key & BITS for key in keys], dtype=np.uint64) + lines)
    products = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
    folded = seed
    for lane in (*words.sum(axis=0, dtype=np.uint64), *products.sum(axis=0, dtype=np.uint64)):
        folded = (folded ^ int(lane)) * MIX & BITS
        folded ^= folded >> 29
    return folded


def reference_digest(content: bytes) -> int:
    folded = len(content)
    for at in range(0, len(content), PIECE):
        folded = (folded ^ piece_digest(content[at : at + PIECE], at)) * JOIN & BITS
        folded ^= folded >> 31
    return folded


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_digest_is_the_same_in_every_variant_and_with_any_number_of_threads(name, threads):
    sizes = [0, 1, 15, 16, 17, 1000, 65536, 65537, 300_001, 5_000_000]
    weights = [torch.randn(size, generator=torch.Generator().manual_seed(size)) for size in sizes]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use(name):
            found = digests_of(weights)
    finally:
        torch.set_num_threads(before)
    assert found == tuple(reference_digest(weight.numpy().tobytes()) for weight in weights)
    assert len(set(found)) == len(sizes)


@settings(deadline=None, max_examples=200)
@given(size=st.integers(1, 70_000), place=st.integers(0), bit=st.integers(0, 31), seed=st.integers(0, 3))
@example(size=70_000, place=65_536, bit=31, seed=0)
def test_the_digest_changes_with_any_bit(size, place, bit, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**32, size, dtype=np.uint32) if seed else np.zeros(size, np.uint32)
    weight = torch.from_numpy(values.view(np.float32))
    before = digests_of([weight])
    values[place % size] ^= np.uint32(1 << bit)
    assert digests_of([weight]) != before


@settings(deadline=None, max_examples=100)
@given(
    size=st.integers(2, 40_000),
    places=st.tuples(st.integers(0), st.integers(0)),
    width=st.sampled_from([1, 2, 16]),
)
def test_the_digest_changes_with_the_order(size, places, width):
    rows = np.random.default_rng(size).normal(size=(size, width)).astype(np.float32)
    one, other = (place % size for place in places)
    before = digests_of([torch.from_numpy(rows)])
    rows[[one, other]] = rows[[other, one]]
    assert (digests_of([torch.from_numpy(rows)]) == before) == (one == other)


@pytest.mark.parametrize("edit", [np.negative, np.zeros_like, lambda a: np.roll(a, 16), lambda a: a[::-1].copy()])
def test_the_digest_changes_with_all_of_it(edit):
    values = np.random.default_rng(0).normal(size=1 << 16).astype(np.float32)
    assert digests_of([torch.from_numpy(values)]) != digests_of([torch.from_numpy(edit(values))])


def test_a_weight_that_is_not_contiguous_is_hashed_as_it_reads():
    weight = torch.randn(30, 40)
    assert digests_of([weight.T]) == digests_of([weight.T.contiguous()]) != digests_of([weight])


# What is made of weights.


def through_data(weight, place, value):
    weight.data.view(-1)[place] = value


def through_numpy(weight, place, value):
    weight.detach().numpy().reshape(-1)[place] = value


def in_place(weight, place, value):
    with torch.no_grad():
        weight.view(-1)[place] = value


EDITS = st.tuples(
    st.sampled_from([through_data, through_numpy, in_place]),
    st.sampled_from(NAMES),
    st.integers(0),
    st.floats(-2, 2, width=32),
)
READS = st.sampled_from(["embed", "contextualize", "encode", "forward", "words", "train"])


def read(elmo: Elmo, how: str) -> list[np.ndarray]:
    """By one of the ways in which a model's weights are used."""
    ids = elmo.ids(SENTENCES)
    if how == "embed":
        return elmo.embed(SENTENCES)
    if how == "train":
        layers = elmo.bilm(ids).layers
        gradients = torch.autograd.grad(layers.sum(), list(elmo.bilm.parameters()))
        return [layers.detach().numpy(), *(gradient.numpy() for gradient in gradients)]
    with torch.inference_mode():
        if how == "words":
            return [elmo.token_layer(SENTENCES)[0].numpy()]
        if how == "encode":
            return [elmo.bilm.encoder(ids).numpy()]
        if how == "forward":
            return [elmo.bilm(ids).layers.numpy()]
        x = torch.linspace(-1, 1, 80).view(2, 5, 8)
        return [elmo.bilm.contextualize(x, torch.ones(2, 5, dtype=torch.bool)).layers.numpy()]


def fresh(elmo: Elmo) -> Elmo:
    """The same weights, and nothing that was made of them."""
    other = make_elmo(CONFIG)
    other.bilm.load_state_dict(copy.deepcopy(elmo.bilm.state_dict()))
    other.bilm.weights = elmo.bilm.weights
    return other


@settings(deadline=None, max_examples=60)
@given(
    weights=st.sampled_from(["float32", "bfloat16", "float16", "int8"]),
    steps=st.lists(st.tuples(READS, EDITS, READS), max_size=4),
)
def test_every_call_sees_the_weights_as_they_are(weights, steps):
    elmo = make_elmo(CONFIG, weights=weights)
    for first, (edit, name, place, value), second in steps:
        read(elmo, first)
        weight = elmo.bilm.get_parameter(name)
        edit(weight, place % weight.numel(), value)
        expected = read(fresh(elmo), second)
        for found in (read(elmo, second), read(elmo, second)):
            assert all(np.array_equal(one, other) for one, other in zip(found, expected))


@settings(deadline=None, max_examples=100)
@given(
    edit=st.sampled_from([through_data, through_numpy]),
    name=st.sampled_from([name for name in NAMES if "lstms" in name]),
    place=st.integers(0),
    gradients=st.booleans(),
)
def test_an_edit_of_one_element_is_packed_again(edit, name, place, gradients):
    lstm = random_bilm(CONFIG).get_submodule(name.rpartition(".")[0])
    weight = lstm.get_parameter(name.rpartition(".")[2])
    before = [packed(lstm, gradients=gradients) for _ in range(3)]
    assert before[1] is before[2]
    version = weight._version
    edit(weight, place % weight.numel(), 0.125)
    assert weight._version == version  # torch does not count it
    assert packed(lstm, gradients=gradients) is not before[2]


def test_weights_made_in_inference_mode_are_looked_at_too():
    with torch.inference_mode():
        lstm = random_bilm(CONFIG).forward_lstms[0]
        before = packed(lstm)
        assert packed(lstm) is before
        lstm.bias.add_(1)
        assert packed(lstm) is not before


def test_one_optimizer_step_one_packing_and_no_hashing():
    """Training changes all weights at every step, and torch counts it: nothing is hashed for it."""
    weight = torch.randn(3)
    first = look([weight], None, changing=True)
    assert first.digests is None
    weight.add_(1)
    second = look([weight], first, changing=True)
    assert second.digests is None
    assert second is not first
    third = look([weight], second, changing=True)  # as in a second pass before the step: from now on it is hashed
    assert third is not second
    assert look([weight], third, changing=True) is third
    weight.numpy()[1] += 1
    assert look([weight], third, changing=True) is not third


def test_where_versions_are_trusted_only_what_torch_counts_is_seen():
    elmo = make_elmo(CONFIG)
    weight = elmo.bilm.get_parameter("forward_lstms.0.bias")
    before = elmo.embed(SENTENCES)

    def same() -> bool:
        return all(np.array_equal(one, other) for one, other in zip(elmo.embed(SENTENCES), before))

    with trust_versions():
        through_numpy(weight, 0, 5.0)
        assert same()  # the promise was not kept
        with trust_versions(False):
            assert not same()
        through_numpy(weight, 0, -5.0)
        in_place(weight, 1, 1.0)
        assert all(np.array_equal(a, b) for a, b in zip(elmo.embed(SENTENCES), fresh(elmo).embed(SENTENCES)))
    through_numpy(weight, 0, 3.0)
    assert all(np.array_equal(a, b) for a, b in zip(elmo.embed(SENTENCES), fresh(elmo).embed(SENTENCES)))


def test_an_optimistic_computation_is_done_again_only_where_weights_had_changed():
    module, weight = torch.nn.Linear(1, 1), torch.ones(4)
    calls = []

    def compute() -> float:
        calls.append(None)
        return remembered(module, "sum", [weight], lambda: float(weight.sum()))

    assert [optimistic(compute) for _ in range(3)] == [4.0] * 3
    assert len(calls) == 3
    weight.numpy()[2] = 2
    assert optimistic(compute) == 5.0
    assert len(calls) == 5
    assert optimistic(lambda: optimistic(compute)) == 5.0
    assert len(calls) == 6


def test_what_was_seen_at_different_times_is_found_out():
    """Two things made of one weight, before an edit and after it: they cannot both be up to date."""
    modules, weight = [torch.nn.Linear(1, 1) for _ in range(2)], torch.ones(4)

    def total(module) -> float:
        return remembered(module, "sum", [weight], lambda: float(weight.sum()))

    assert total(modules[0]) == 4.0
    weight.numpy()[2] = 2
    assert total(modules[1]) == 5.0
    assert optimistic(lambda: [total(module) for module in reversed(modules)]) == [5.0, 5.0]


def test_new_words_are_not_kept_from_tables_that_were_made_before_an_edit():
    elmo = make_elmo(CONFIG)
    read(elmo, "encode")
    through_data(elmo.bilm.get_parameter("encoder.convolutions.1.weight"), 0, 2.0)
    expected = fresh(elmo).embed(SENTENCES)
    assert all(np.array_equal(a, b) for a, b in zip(elmo.embed(SENTENCES), expected))


def test_words_that_are_looked_up_are_not_kept(tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {i} {i + 1} {i / 2}\n" for i, word in enumerate(["He", "sat", "on"])))
    elmo = Elmo.from_vectors(vectors, "tiny")
    layer = TokenLayer(elmo.bilm, elmo.mapper)
    with torch.inference_mode():
        before = layer(SENTENCES)[0]
        elmo.bilm.encoder.word_embedding.weight.numpy()[:] *= 2
        after = layer(SENTENCES)[0]
    assert not torch.equal(before, after)


HANDED_OUT = {
    "bilm": lambda elmo: elmo.bilm,
    "checkpoint": lambda elmo: elmo.checkpoint.bilm,
    "layer": lambda elmo: elmo.layer().bilm,
    "a copy's": lambda elmo: copy.copy(elmo).bilm,
}


@pytest.mark.parametrize("hand_out", HANDED_OUT.values(), ids=HANDED_OUT)
def test_a_model_that_nobody_else_has_is_hashed_once_it_is_handed_out(tmp_path, monkeypatch, hand_out):
    make_elmo(CONFIG).save(tmp_path / "model")
    elmo = Elmo.from_pretrained(tmp_path / "model")
    before = elmo.embed(SENTENCES)
    hashed = []
    made = Hashing.__init__
    monkeypatch.setattr(Hashing, "__init__", lambda self, weights: hashed.extend(weights) or made(self, weights))
    assert all(np.array_equal(one, other) for one, other in zip(elmo.embed(SENTENCES), before))
    assert not hashed
    weight = hand_out(elmo).get_parameter("backward_lstms.1.hidden_weight")
    assert all(np.array_equal(one, other) for one, other in zip(elmo.embed(SENTENCES), before))
    assert hashed
    through_numpy(weight, 3, 1.0)
    after = elmo.embed(SENTENCES)
    assert not all(np.array_equal(one, other) for one, other in zip(after, before))
    assert all(np.array_equal(one, other) for one, other in zip(after, fresh(elmo).embed(SENTENCES)))


def test_a_model_that_was_given_is_hashed_from_the_beginning():
    mine = make_elmo(CONFIG).checkpoint
    elmo = Elmo(mine)
    before = elmo.embed(SENTENCES)
    through_numpy(mine.bilm.get_parameter("forward_lstms.0.bias"), 0, 1.0)
    assert not all(np.array_equal(one, other) for one, other in zip(elmo.embed(SENTENCES), before))

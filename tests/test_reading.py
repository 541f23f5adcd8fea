"""The whole model in one call of the library: to the bit what its parts give one by one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoint import Checkpoint
from elmokit.embed.embedder import Elmo
from elmokit.embed.pooling import combine
from elmokit.model.bilm import BiLMConfig, BiLMState
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.kernels import convolution, use
from elmokit.model.kernels.library import available_variants
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.reading import Tokens, packed_model, read
from elmokit.model.lstm import LSTMConfig
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper, LexiconMapper
from elmokit.text.tokens import TokenizerConfig
from helpers.models import make_elmo, random_bilm

VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(not VARIANTS, reason="the native library was not compiled")

CONFIGS = {  # odd sizes: nothing is a whole panel, nor eight
    "relu": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((1, 5), (2, 33), (3, 40)), highway=2),
        LSTMConfig(layers=2, cells=20, width=9),
    ),
    "tanh": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((2, 40), (9, 70)), highway=1, activation="tanh"),
        LSTMConfig(layers=3, cells=17, width=33, skip=False, projection_clip=None),
    ),
    "several widths in a panel": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((1, 4), (2, 5), (3, 7)), highway=1),
        LSTMConfig(layers=2, cells=16, width=8),
    ),
    "no highway": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((1, 64),), highway=0), LSTMConfig(layers=1, cells=8, width=16)
    ),
    "no projection": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((1, 7), (3, 32)), highway=2, projection=False),
        LSTMConfig(layers=2, cells=24, width=39),
    ),
    "filters alone": BiLMConfig(
        CharEncoderConfig(embedding=3, filters=((1, 7), (3, 32)), highway=0, projection=False),
        LSTMConfig(layers=1, cells=24, width=39),
    ),
}
SENTENCES = [
    [["a", "bb", "ccc"], ["dddd"], [], ["bb", "eeeee", "a", "밥"]],
    [["a"]],
    [[f"w{i % 90}" for i in range(length)] for length in (1, 30, 7, 30, 2, 0, 19, 8, 8, 3, 12, 5, 5, 30, 9, 1, 4)],
]


def elmo_of(config, **options):
    return Elmo(Checkpoint(random_bilm(config), ByteMapper(), TokenizerConfig("whitespace")), **options)


@torch.inference_mode()
def by_parts(elmo, sentences, state=None):
    """Every layer of padded sentences with their boundaries, and the state after: by encode and stack."""
    ids = torch.from_numpy(pad(elmo.mapper, sentences, boundaries=True))
    mask = (ids > 0).any(dim=-1)
    x = elmo.bilm.encoder.encode(ids.view(-1, ids.shape[-1])).view(*ids.shape[:2], -1)
    output = elmo.bilm.contextualize(x, mask, state)
    return output.layers, output.state


def inside(layers, row, sentence, boundaries=False):
    return layers[..., row, 0 if boundaries else 1 : len(sentence) + (2 if boundaries else 1), :].numpy()


@torch.inference_mode()
def read_all(elmo, sentences, before=None, **options):
    model = packed_model(elmo.bilm)
    with elmo.token_layer.placed(sentences, model.encoder) as tokens:
        return read(model, tokens, before, **options)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_one_call_is_to_the_bit_what_its_parts_give(name, variant, weights):
    with use(variant):
        elmo = elmo_of(CONFIGS[name], weights=weights)
        for sentences in SENTENCES * 2:  # new words, and then known ones
            layers, _ = by_parts(elmo, sentences)
            for boundaries in (False, True):
                found = read_all(elmo, sentences, boundaries=boundaries)
                for row, (array, sentence) in enumerate(zip(found, sentences)):
                    np.testing.assert_array_equal(array, inside(layers, row, sentence, boundaries))


words = st.text(min_size=1, max_size=9)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(words, max_size=12), min_size=1, max_size=9), st.integers(1, 5))
def test_a_sentence_is_the_same_in_any_batch_and_by_any_number_of_threads(sentences, threads):
    elmo = elmo_of(CONFIGS["relu"])
    together = read_all(elmo, sentences, threads=threads)
    for sentence, array in zip(sentences, together):
        (alone,) = read_all(elmo_of(CONFIGS["relu"]), [sentence], threads=1)
        np.testing.assert_array_equal(array, alone)


def test_more_new_words_than_are_computed_at_once():
    elmo = elmo_of(CONFIGS["relu"])
    sentences = [[f"word{i}" for i in range(start, start + 700)] for start in range(0, 2800, 700)]
    layers, _ = by_parts(elmo, sentences)
    for row, array in enumerate(read_all(elmo, sentences, threads=3)):
        np.testing.assert_array_equal(array, inside(layers, row, sentences[row]))


def test_states_come_in_and_go_out_row_by_row():
    elmo, sentences = elmo_of(CONFIGS["relu"]), SENTENCES[0]
    generator = torch.Generator().manual_seed(3)
    zero = elmo.bilm.zero_state(len(sentences))
    state = BiLMState(*(torch.rand(part.shape, generator=generator) - 0.5 for part in zero))
    layers, expected = by_parts(elmo, sentences, state)
    after = elmo.bilm.zero_state(len(sentences))
    found = read_all(elmo, sentences, state, after=after)
    for row, array in enumerate(found):
        np.testing.assert_array_equal(array, inside(layers, row, sentences[row]))
    assert torch.equal(after.hidden, expected.hidden)
    assert torch.equal(after.cell, expected.cell)


@pytest.mark.parametrize(
    "layers",
    [
        0,
        2,
        -1,
        "mean",
        [0.5, -1.5, 3.0],
        ScalarMix(3, weights=[1, 2, 3], gamma=0.7),
        ScalarMix(3, which_layers=[2, 0]),
    ],
    ids=str,
)
@torch.inference_mode()
def test_a_mix_in_the_call_is_the_mix_of_all_layers(layers):
    elmo = elmo_of(CONFIGS["relu"])
    for sentences in SENTENCES:
        every = elmo.embed(sentences)
        for mixed, whole in zip(elmo.embed(sentences, layers=layers), every):
            expected = combine(torch.from_numpy(whole)[:, None], layers)[0].numpy()
            np.testing.assert_allclose(mixed, expected, rtol=1e-6, atol=1e-6)


def test_a_layer_that_is_left_out_of_a_mix_has_no_part_in_it():
    elmo = elmo_of(CONFIGS["relu"])
    elmo.bilm.forward_lstms[1].bias.data[0] = float("nan")
    (mixed,) = elmo.embed([["a", "b"]], layers=ScalarMix(3, which_layers=[0, 1]))
    assert np.isfinite(mixed).all()
    assert np.isnan(elmo.embed([["a", "b"]], layers="mean")[0]).any()


def test_a_mix_that_normalizes_is_left_to_its_definition():
    elmo, mix = elmo_of(CONFIGS["relu"]), ScalarMix(3, layer_norm="token", weights=[0.1, 0.2, 0.3])
    every = elmo.embed(SENTENCES[0])
    for mixed, whole in zip(elmo.embed(SENTENCES[0], layers=mix), every):
        with torch.no_grad():
            expected = mix(torch.from_numpy(whole)[:, None])[0].numpy()
        np.testing.assert_allclose(mixed, expected, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooled_vectors_are_those_of_the_tokens(pooling):
    elmo = elmo_of(CONFIGS["tanh"])
    every = elmo.embed(SENTENCES[0])
    for pooled, whole in zip(elmo.embed(SENTENCES[0], pooling=pooling), every):
        empty = whole.shape[1] == 0
        expected = np.zeros_like(pooled) if empty else getattr(np, pooling)(whole, axis=1)
        np.testing.assert_allclose(pooled, expected, atol=1e-6)


@pytest.mark.parametrize("reason", ["words beside characters", "large tables", "word vectors"])
def test_encoders_that_the_library_does_not_run_as_a_whole_fill_the_table_themselves(
    reason, monkeypatch, tmp_path
):
    if reason == "words beside characters":
        specials = ["<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>"]
        characters = {entry: i for i, entry in enumerate([*specials, *"abcde"])}
        lexicon = {entry: i for i, entry in enumerate([*specials, "a", "bb", "ccc"])}
        mapper = LexiconMapper(characters, lexicon)
        encoder = CharEncoderConfig(
            characters=mapper.table_sizes[0],
            embedding=3,
            filters=((1, 5), (2, 6)),
            highway=1,
            words=mapper.table_sizes[1],
            word_embedding=4,
        )
        bilm = random_bilm(BiLMConfig(encoder, LSTMConfig(layers=2, cells=8, width=9)))
        elmo = Elmo(Checkpoint(bilm, mapper, TokenizerConfig("whitespace")))
    elif reason == "large tables":
        monkeypatch.setattr(convolution, "MOST_BYTES", 1000)
        elmo = elmo_of(CONFIGS["relu"])
    else:
        (tmp_path / "vectors.txt").write_text("".join(f"{word} {i} {i / 2}\n" for i, word in enumerate("abc")))
        elmo = Elmo.from_vectors(tmp_path / "vectors.txt", "tiny")
    assert packed_model(elmo.bilm).encoder is None
    for sentences in SENTENCES * 2:
        layers, _ = by_parts(elmo, sentences)
        for row, array in enumerate(elmo.embed(sentences)):
            np.testing.assert_array_equal(array, inside(layers, row, sentences[row]))


@pytest.mark.parametrize("kernels", ["best", "torch"])
def test_a_sentence_that_is_kept_keeps_no_other_in_memory(kernels):
    with use(kernels):
        for options in ({}, {"layers": 1}, {"pooling": "mean"}, {"layers": ScalarMix(3, layer_norm="token")}):
            for array in elmo_of(CONFIGS["relu"]).embed(SENTENCES[2], **options):
                memory = array if array.base is None else array.base
                assert np.asarray(memory).nbytes == array.nbytes


def test_ids_that_are_none_of_the_tables_do_not_reach_the_library():
    elmo = make_elmo()
    model = packed_model(elmo.bilm)
    table = torch.zeros(4, 32)
    nothing = np.zeros((0, 0), dtype=np.int32)
    for ids, message in ((np.full((1, 50), 262), "found 262"), (np.full((1, 50), -1), "found -1")):
        tokens = Tokens(table, nothing, nothing.reshape(0), ids.astype(np.int32), 1)
        with pytest.raises(IndexError, match=message):
            read(model, tokens)
    tokens = Tokens(table, nothing, nothing.reshape(0), np.ones((1, 2), dtype=np.int32), 1)
    with pytest.raises(ValueError, match="need 3 characters a token, found 2"):
        read(model, tokens)


def test_an_edit_of_any_weight_is_seen_by_the_next_sentence():
    elmo = elmo_of(CONFIGS["relu"])
    elmo.embed(SENTENCES[0])
    for _, weight in elmo.bilm.named_parameters():
        weight.data.view(-1)[-1] += 0.25
        layers, _ = by_parts(elmo, SENTENCES[0])
        for row, array in enumerate(elmo.embed(SENTENCES[0])):
            np.testing.assert_array_equal(array, inside(layers, row, SENTENCES[0][row]))


def test_words_are_kept_where_only_an_lstm_has_changed():
    elmo = elmo_of(CONFIGS["relu"])
    elmo.embed(SENTENCES[0])
    table = elmo.token_layer._table
    elmo.bilm.forward_lstms[0].bias.data[0] += 1
    elmo.embed(SENTENCES[0])
    assert elmo.token_layer._table is table
    elmo.bilm.encoder.projection.bias.data[0] += 1
    elmo.embed(SENTENCES[0])
    assert elmo.token_layer._table is not table


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory as Linux does")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer needs the memory itself")
def test_where_no_thread_can_be_started_the_caller_does_all_the_work():
    """In a process without room for one more thread's stack."""
    script = """
import resource, threading
import numpy as np
from elmokit import Elmo
from elmokit.model.kernels.reading import packed_model, read
elmo = Elmo.from_recipe("tiny")
model = packed_model(elmo.bilm)

def run(threads, word):
    with elmo.token_layer.placed([[word, "b"], ["c"]], model.encoder) as tokens:
        return read(model, tokens, threads=threads)

run(1, "a")  # what is allocated once is
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages << 12) + (6 << 20), resource.RLIM_INFINITY))
try:
    threading.Thread(target=print).start()
except RuntimeError as error:
    assert "start new thread" in str(error)
else:
    raise AssertionError("a thread was started")
for word in "xa":
    for one, other in zip(run(4, word), run(1, word)):
        assert np.array_equal(one, other) and one.any()
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr

from __future__ import annotations

import json
import random
from itertools import product

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.formats.bilm_hdf5 import read_bilm, write_bilm
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper, LexiconMapper
from elmokit.text.tokens import TokenizerConfig
from helpers.models import SENTENCES, make_elmo, random_bilm, small_config
from reference import ReferenceBiLM


def arrays(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[...]}) if hasattr(item, "shape") else None)
    return found


def assert_identical(one, two):
    one, two = arrays(one), arrays(two)
    assert one.keys() == two.keys()
    for name, array in one.items():
        assert array.dtype == two[name].dtype
        assert array.tobytes() == two[name].tobytes(), name


def test_parity_with_the_published_fixture(fixture_folder):
    """Stream 0, one sentence at a time, the state carried: all layers, and the published top layer."""
    options, weights = fixture_folder / "options.json", fixture_folder / "lm_weights.hdf5"
    stream = json.loads((fixture_folder / "sentences.json").read_text())[0]
    ours = Elmo.from_original(options, weights, state="carry").embed(stream)
    reference, state = ReferenceBiLM(options, weights), None
    with h5py.File(fixture_folder / "lm_embeddings_0.hdf5") as expected:
        for i, sentence in enumerate(stream):
            published = np.concatenate(list(expected[str(i)][...]), axis=-1)
            np.testing.assert_allclose(ours[i][2], published, atol=1e-6, rtol=1e-5)
            layers, state = reference.layers(sentence.split(), state)
            np.testing.assert_allclose(ours[i], layers, atol=1e-5, rtol=0)


def test_parity_of_the_three_streams_in_batches(fixture_folder):
    """As the fixture was made: batch i is sentence i of three streams, padded, each row with its own state."""
    checkpoint = read_bilm(fixture_folder / "options.json", fixture_folder / "lm_weights.hdf5")
    streams = json.loads((fixture_folder / "sentences.json").read_text())
    state = None
    with h5py.File(fixture_folder / "lm_embeddings_0.hdf5") as expected, torch.inference_mode():
        for i, batch in enumerate(zip(*streams)):
            ids = torch.from_numpy(pad(checkpoint.mapper, [s.split() for s in batch], boundaries=True))
            output = checkpoint.bilm(ids, state)
            state = output.state
            top = output.layers[2, 0, 1 : len(batch[0].split()) + 1].numpy()
            np.testing.assert_allclose(top, np.concatenate(list(expected[str(i)]), -1), atol=1e-6, rtol=1e-5)


def test_hdf5_to_ours_to_hdf5_is_identical(fixture_folder, tmp_path):
    weights = fixture_folder / "lm_weights.hdf5"
    read_bilm(fixture_folder / "options.json", weights).save(tmp_path / "ours")
    write_bilm(Checkpoint.load(tmp_path / "ours"), tmp_path / "o.json", tmp_path / "w.hdf5")
    assert_identical(weights, tmp_path / "w.hdf5")
    assert json.loads((tmp_path / "o.json").read_text()) == json.loads(
        (fixture_folder / "options.json").read_text()
    )


@settings(max_examples=10, deadline=None)
@given(layers=st.integers(1, 3), cells=st.integers(5, 9), skip=st.booleans(), seed=st.integers(0, 99))
def test_the_round_trip_is_identical_for_any_shape(tmp_path_factory, layers, cells, skip, seed):
    folder = tmp_path_factory.mktemp("trip")
    bilm = random_bilm(small_config(layers=layers, cells=cells, width=4, skip=skip), seed)
    write_bilm(Checkpoint(bilm, ByteMapper(), TokenizerConfig()), folder / "a.json", folder / "a.hdf5")
    again = read_bilm(folder / "a.json", folder / "a.hdf5")
    assert again.bilm.config == bilm.config
    write_bilm(again, folder / "b.json", folder / "b.hdf5")
    assert_identical(folder / "a.hdf5", folder / "b.hdf5")
    assert (folder / "a.json").read_text() == (folder / "b.json").read_text()


def test_the_file_layout_is_the_published_one(published_pair):
    found = {name: array.shape for name, array in arrays(published_pair[1]).items()}
    assert found["char_embed"] == (261, 4)
    assert found["CNN/W_cnn_2"] == (1, 3, 4, 8)
    assert found["CNN_high_1/W_carry"] == (18, 18)
    assert found["CNN_proj/W_proj"] == (18, 8)
    assert found["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"] == (16, 96)
    assert found["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"] == (24, 8)
    assert found["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"] == (96,)


def test_a_forget_bias_inside_the_weights_is_written_where_tensorflow_adds_one(tmp_path):
    """A model whose bias has it all (as PyTorch's) must mean the same after the trip."""
    bilm = random_bilm(small_config(forget_bias=0.25))
    elmo = Elmo(Checkpoint(bilm, ByteMapper(published=True), TokenizerConfig("whitespace", "none")))
    write_bilm(elmo.checkpoint, tmp_path / "o.json", tmp_path / "w.hdf5")
    again = Elmo.from_original(tmp_path / "o.json", tmp_path / "w.hdf5")
    for ours, theirs in zip(elmo.embed(SENTENCES), again.embed(SENTENCES)):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_original_reads_tokens_bit_for_bit_as_it_was_published(published_pair):
    elmo = Elmo.from_original(*published_pair)
    reference = ReferenceBiLM(*published_pair)
    for sentence in (["밥" * 17, "e\u0301"], ["x" * 10_000, "\ud800", "", "<S>"]):
        np.testing.assert_allclose(elmo.embed([sentence])[0], reference.layers(sentence)[0], atol=1e-5)
    ours = Elmo.from_original(*published_pair, published=False)
    np.testing.assert_array_equal(ours.embed([["e\u0301"]])[0], ours.embed([["é"]])[0])
    assert np.abs(elmo.embed([["e\u0301"]])[0] - elmo.embed([["é"]])[0]).max() > 1e-3


def test_a_folder_of_the_published_pair_is_a_model(published_pair):
    folder = published_pair[0].parent
    assert isinstance(Elmo.from_pretrained(folder).mapper, ByteMapper)
    (folder / "second_options.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"expected one options file and one weights file, found options.json, second"
    ):
        Elmo.from_pretrained(folder)


def edited(options, change):
    table = json.loads(options.read_text())
    change(table)
    options.write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("lstm"), "expected a table 'lstm'"),
        (lambda t: t.pop("char_cnn"), "expected a table 'char_cnn'"),
        (lambda t: t["lstm"].pop("dim"), "missing key 'dim'"),
        (lambda t: t["lstm"].update(dim="many"), "dim: expected a positive integer, found 'many'"),
        (lambda t: t["lstm"].update(use_skip_conections=True), "did you mean 'use_skip_connections'"),
        (lambda t: t["char_cnn"].update(activation="gelu"), "expected relu or tanh, found 'gelu'"),
        (lambda t: t["char_cnn"].update(n_characters=300), "expected 261 or 262, found 300"),
        (lambda t: t["char_cnn"].update(filters=[[1]]), "filters: expected pairs of a width and a count"),
        (lambda t: t.update(bidirectional=False), "expected a bidirectional model"),
        (lambda t: t["lstm"].update(projection_dim=9), r"expected shape \(18, 9\), found \(18, 8\)"),
        (lambda t: t["lstm"].update(n_layers=3), "expected RNN_0/RNN/MultiRNNCell/Cell2"),
        (lambda t: t["lstm"].update(n_layers=1), "found RNN_0/RNN/MultiRNNCell/Cell1"),
        (lambda t: t["char_cnn"].update(n_highway=1), "found CNN_high_1"),
    ],
)
def test_options_that_do_not_fit_are_refused(published_pair, change, message):
    edited(published_pair[0], change)
    with pytest.raises(ValueError, match=message):
        read_bilm(*published_pair)


def test_bilm_tfs_training_options_are_understood(published_pair):
    edited(
        published_pair[0],
        lambda t: (t.update(bidirectional=True, dropout=0.1, n_epochs=10), t["char_cnn"].update(n_characters=261)),
    )
    assert read_bilm(*published_pair).bilm.config == small_config()


def test_damaged_files_are_refused(published_pair, tmp_path):
    options, weights = published_pair
    whole = weights.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 100):
        weights.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"not a whole HDF5 file|expected"):
            read_bilm(options, weights)
    weights.write_bytes(whole)
    with h5py.File(weights, "r+") as file:
        file["char_embed"][0, 0] = np.nan
    with pytest.raises(ValueError, match="char_embed holds values that are not finite"):
        read_bilm(options, weights)
    with h5py.File(weights, "r+") as file:
        del file["char_embed"]
        file["char_embed"] = np.zeros((261, 4), dtype=np.int64)
    with pytest.raises(ValueError, match="expected floating-point numbers, found int64"):
        read_bilm(options, weights)
    with pytest.raises(ValueError, match="no weights file"):
        read_bilm(options, tmp_path / "none.hdf5")
    with pytest.raises(ValueError, match="no options file"):
        read_bilm(tmp_path / "none.json", weights)
    options.write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        read_bilm(options, weights)


def test_a_model_that_the_format_cannot_hold_is_refused(tmp_path):
    checkpoint = make_elmo().checkpoint
    specials = {name: i for i, name in enumerate(["<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>"])}
    checkpoint.mapper = LexiconMapper(specials, None)
    with pytest.raises(ValueError, match="UTF-8 bytes only"):
        write_bilm(checkpoint, tmp_path / "o.json", tmp_path / "w.hdf5")
    assert list(tmp_path.iterdir()) == []


def replaced(weights, make):
    """The file with `make(file, shape)` in place of its first array."""
    with h5py.File(weights, "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        make(file, shape)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, _: f.create_dataset("char_embed", (10**9,), "f4"), "expected 4,000,000,000 bytes"),
        (lambda f, _: f.create_dataset("char_embed", (10**12,), "f4"), "expected 4,000,000,000,000 bytes"),
        (lambda f, s: f.create_dataset("char_embed", s, "f4"), "bytes for .* found 0"),
        (
            lambda f, s: f.create_dataset("char_embed", data=np.ones(s, "f4"), compression="gzip"),
            r"chunks \(gzip\)",
        ),
        (lambda f, s: f.create_dataset("char_embed", s, "f4", external=[("x", 0, 9999)]), "in other files"),
        (lambda f, _: f.__setitem__("char_embed", h5py.ExternalLink("x.h5", "/x")), "a link to elsewhere"),
        (lambda f, _: f.__setitem__("char_embed", h5py.SoftLink("/CNN/W_cnn_0")), "a link to elsewhere"),
        (lambda f, _: f.__setitem__("char_embed", h5py.SoftLink("/char_embed")), "a link to elsewhere"),
        (lambda f, _: f.create_group("char_embed"), "expected an array, found a group"),
        (lambda f, _: f.__setitem__("CNN/loop", f["/"]), "expected char_embed .* found none"),
    ],
)
def test_weights_that_the_file_itself_does_not_hold_are_refused_unread(published_pair, make, message):
    """External storage, external and soft links, arrays of 10^12 numbers that were never written."""
    replaced(published_pair[1], make)
    with pytest.raises(UserError, match=message):
        read_bilm(*published_pair)


def test_damaged_hdf5_weights_are_a_message(published_pair):
    """Sixty damaged copies: h5py raises RuntimeError, KeyError, TypeError and others, a user sees none of them."""
    weights, rng, refused = published_pair[1], random.Random(0), 0
    whole = weights.read_bytes()
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(rng.choice((1, 8, 64))):
            at = rng.randrange(len(content) // 2)  # where headers are
            content[at : at + 4] = rng.randbytes(4)
        weights.write_bytes(content)
        try:
            read_bilm(*published_pair)
        except UserError:
            refused += 1
    assert refused > 20


WRONG = [float("inf"), float("nan"), -1, True, "2", [2], {}]
HUGE = [10**9, 2**62, 10**30]  # of a clip these would be bounds that never bound
SIZES = [
    *(("lstm", key) for key in ("n_layers", "dim", "projection_dim")),
    *(("char_cnn", key) for key in ("filters", "embedding", "n_highway", "max_characters_per_token")),
]
CLIPS = [("lstm", "cell_clip"), ("lstm", "proj_clip")]


@pytest.mark.parametrize(
    ("keys", "value"), [*product(SIZES, [*HUGE, *WRONG]), *product(CLIPS, WRONG)], ids=lambda case: repr(case)[:30]
)
def test_sizes_and_types_in_options_that_cannot_be_are_refused_before_anything_is_made(
    published_pair, keys, value
):
    edited(published_pair[0], lambda t: t[keys[0]].update({keys[1]: value}))
    with pytest.raises(UserError) as error:
        read_bilm(*published_pair)
    assert len(str(error.value)) < 400

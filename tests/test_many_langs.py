"""ELMoForManyLangs folders, against a forward pass of its own: NumPy, float64, from upstream's definition."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.formats.many_langs import read_lexicon, read_many_langs
from elmokit.text.batches import pad
from helpers.many_langs_reference import (
    CHARACTERS,
    KINDS,
    LIMITS,
    SENTENCES,
    WORDS,
    Upstream,
    configuration,
    make_folder,
    write_lexicon,
)


def layers_of(checkpoint: Checkpoint, sentences: list[list[str]]) -> np.ndarray:
    with torch.no_grad():
        return checkpoint.bilm(torch.from_numpy(pad(checkpoint.mapper, sentences, boundaries=True))).layers.numpy()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_upstreams(tmp_path, kind, activation):
    config = configuration(*KINDS[kind])
    config["token_embedder"]["activation"] = activation
    folder = make_folder(tmp_path, config, legacy=activation == "tanh")
    ours, upstream = layers_of(read_many_langs(folder), SENTENCES), Upstream(folder, config)
    for row, sentence in enumerate(SENTENCES):
        theirs = upstream.layers(sentence)
        np.testing.assert_allclose(ours[:, row, : len(sentence) + 2], theirs, atol=1e-5, rtol=0)
        assert not ours[:, row, len(sentence) + 2 :].any()
    assert np.isclose(np.abs(ours[1]), LIMITS["proj_clip"]).any()  # the clip was at work in this test


@pytest.mark.parametrize("none", [0, None])
def test_a_clip_of_0_is_no_clip(tmp_path, none):
    config = configuration()
    config["encoder"] |= {"cell_clip": none, "proj_clip": none}
    folder = make_folder(tmp_path, config)
    theirs = Upstream(folder, config).layers(SENTENCES[0])
    np.testing.assert_allclose(layers_of(read_many_langs(folder), SENTENCES[:1])[:, 0], theirs, atol=1e-5, rtol=0)
    assert np.abs(theirs[1]).max() > LIMITS["proj_clip"]


def test_a_long_token_is_cut_before_it_is_looked_up(tmp_path):
    folder = make_folder(tmp_path, configuration(7, 0))
    known, cut, unknown = layers_of(read_many_langs(folder), [["abcdefabcd"], ["abcdefabcdX"], ["abcdefabc"]])[
        0, :, 1
    ]
    assert (known == cut).all()
    assert (known != unknown).any()


def test_saved_and_loaded_it_computes_the_same(tmp_path):
    checkpoint = read_many_langs(make_folder(tmp_path / "theirs", configuration()))
    checkpoint.save(tmp_path / "ours")
    again = Checkpoint.load(tmp_path / "ours")
    assert (layers_of(again, SENTENCES) == layers_of(checkpoint, SENTENCES)).all()
    assert again.tokenizer.name == "whitespace"
    assert again.tokenizer.normalize == "none"


class TestConfiguration:
    def test_in_config_json_itself(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        (folder / "cnn.json").rename(folder / "config.json")
        assert read_many_langs(folder).bilm.config.lstm.cells == 9

    @pytest.mark.parametrize("named", ["cnn.json", "../configs/cnn.json", "sub\\cnn.json"])
    def test_beside_config_json(self, tmp_path, named):
        folder = make_folder(tmp_path / "model", configuration())
        (folder / "config.json").write_text(json.dumps({"config_path": named}))
        assert read_many_langs(folder).bilm.config.lstm.cells == 9

    def test_where_config_json_says(self, tmp_path):
        folder = make_folder(tmp_path / "model", configuration())
        (tmp_path / "configs").mkdir()
        (folder / "cnn.json").rename(tmp_path / "configs/cnn.json")
        (folder / "config.json").write_text(json.dumps({"config_path": "../configs/cnn.json"}))
        assert read_many_langs(folder).bilm.config.lstm.cells == 9

    def test_an_absolute_path_is_not_followed(self, tmp_path):
        folder = make_folder(tmp_path / "model", configuration())
        (folder / "cnn.json").rename(tmp_path / "cnn.json")
        (folder / "config.json").write_text(json.dumps({"config_path": str(tmp_path / "cnn.json")}))
        with pytest.raises(ValueError, match=r"put cnn\.json into .*model"):
            read_many_langs(folder)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, r"has no config\.json"),
            ("{", "not valid JSON"),
            ("[]", "expected a JSON object, found list"),
            ('{"seed": 1}', "expected a key 'config_path'.*found 'seed'"),
            ('{"config_path": 3}', "expected a key 'config_path'"),
            ('{"config_path": ".."}', "which is not there"),
            ('{"config_path": "config.json"}', "missing key 'encoder.name'"),
        ],
    )
    def test_missing_or_bad(self, tmp_path, content, message):
        folder = make_folder(tmp_path, configuration())
        (folder / "config.json").unlink()
        if content is not None:
            (folder / "config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            read_many_langs(folder)

    @pytest.mark.parametrize(
        ("table", "change", "message"),
        [
            ("encoder", {"name": "lstm"}, r"encoder: name: expected 'elmo', found 'lstm'"),
            ("token_embedder", {"name": "lstm"}, r"token_embedder: name: expected 'cnn', found 'lstm'"),
            ("token_embedder", {"word_dim": 0, "char_dim": 0}, "found neither"),
            ("token_embedder", {"word_dim": -1}, "word_dim: expected 0 or more"),
            ("token_embedder", {"filters": []}, "needs filters"),
            ("token_embedder", {"filters": [[1, 2, 3]]}, "expected 2 values"),
            ("token_embedder", {"activation": "gelu"}, "expected one of 'relu', 'tanh'"),
            ("token_embedder", {"max_characters_per_token": 6}, "expected 7 or more, found 6"),
            ("token_embedder", {"filters": [[13, 4]]}, "expected 13 or more, found 12"),
            ("encoder", {"dim": "9"}, "'encoder.dim': expected int"),
            ("encoder", {"residual": True}, "unknown key 'encoder.residual'"),
        ],
    )
    def test_other_architectures_are_refused(self, tmp_path, table, change, message):
        config = configuration()
        folder = make_folder(tmp_path, config)
        config[table] |= change
        (folder / "cnn.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=message) as caught:
            read_many_langs(folder)
        assert "cnn.json" in str(caught.value)


class TestLexicon:
    def read(self, tmp_path, content: str) -> dict[str, int]:
        (tmp_path / "char.dic").write_bytes(content.encode("utf-8"))
        return read_lexicon(tmp_path / "char.dic")

    @settings(deadline=None)
    @given(st.lists(st.text(st.characters(categories=["L", "N", "P", "S", "Mn"]), min_size=1), unique=True))
    def test_entries_are_read_back(self, tmp_path_factory, entries):
        folder = tmp_path_factory.mktemp("dic")
        write_lexicon(folder / "word.dic", entries)
        assert read_lexicon(folder / "word.dic") == {entry: i for i, entry in enumerate(entries)}

    @pytest.mark.parametrize("space", ["\u3000", "\xa0", "\t", " ", "", "\u2028", "\x85"])
    def test_white_space_is_the_ideographic_space(self, tmp_path, space):
        assert self.read(tmp_path, f"a\t0\n{space}\t1\nb\t2\n") == {"a": 0, "\u3000": 1, "b": 2}

    @pytest.mark.parametrize("content", ["a\t0\nb\t1", "a\t0\r\nb\t1\r\n", "\xa0a\t0 \n b\t1\n"])
    def test_line_ends_and_white_space_around_are_stripped(self, tmp_path, content):
        assert self.read(tmp_path, content) == {"a": 0, "b": 1}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\t0\nb\n", r"line 2: expected an entry, a tab and its id, found 'b'"),
            ("a\t0\nb\tc\t1\n", "line 2: expected an entry"),
            ("a\t0\nb\tx\n", "line 2: expected an entry"),
            ("a\t0\n\nb\t1\n", "line 2: expected an entry"),
            ("a\t0\nb\t0\n", "the id 0 for both 'a' and 'b'"),
            ("a\t0\nb\t2\n", "expected the ids 0 to 1 for 2 entries, found 2 for 'b'"),
            ("a\t0\nb\t-1\n", "found -1 for 'b'"),
            ("a\t0\na\t1\n", "line 2: 'a' has two ids, 0 and 1"),
        ],
    )
    def test_bad_lines_are_named(self, tmp_path, content, message):
        with pytest.raises(ValueError, match=message) as caught:
            self.read(tmp_path, content)
        assert "char.dic" in str(caught.value)

    def test_not_utf8(self, tmp_path):
        (tmp_path / "char.dic").write_bytes(b"a\t0\n\xff\t1\n")
        with pytest.raises(ValueError, match=r"char\.dic: line 2: expected UTF-8"):
            read_lexicon(tmp_path / "char.dic")

    @pytest.mark.parametrize("name", ["char.dic", "word.dic"])
    def test_missing(self, tmp_path, name):
        folder = make_folder(tmp_path, configuration())
        (folder / name).unlink()
        with pytest.raises(ValueError, match=f"no file .*{name}"):
            read_many_langs(folder)

    def test_without_a_needed_entry(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        write_lexicon(folder / "char.dic", [entry for entry in CHARACTERS if entry != "<bow>"])
        with pytest.raises(ValueError, match="the character lexicon has no entry <bow>"):
            read_many_langs(folder)

    def test_of_another_model(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        write_lexicon(folder / "word.dic", [*WORDS, "more"])
        with pytest.raises(ValueError, match=r"word\.dic lists 9 entries, .*word_emb.* has 8 rows"):
            read_many_langs(folder)


class Intruder:
    """Unpickled by pickle itself, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class TestPickles:
    @pytest.mark.parametrize("save", [lambda thing, path: path.write_bytes(pickle.dumps(thing, 2)), torch.save])
    def test_code_is_not_run(self, tmp_path, save):
        folder = make_folder(tmp_path / "model", configuration())
        save({"projection.weight": Intruder(tmp_path / "intruder")}, folder / "encoder.pkl")
        with pytest.raises(ValueError, match=r"encoder\.pkl: expected a whole PyTorch file") as caught:
            read_many_langs(folder)
        assert not (tmp_path / "intruder").exists()
        assert "weights_only" not in str(caught.value)  # torch's own text tells how to load it all the same

    @pytest.mark.parametrize("legacy", [False, True])
    @pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.99])
    def test_truncated(self, tmp_path, part, legacy):
        path = make_folder(tmp_path, configuration(), legacy) / "token_embedder.pkl"
        whole = path.read_bytes()
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(ValueError, match=r"token_embedder\.pkl: expected a whole PyTorch file"):
            read_many_langs(tmp_path)

    @pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl"])
    def test_missing(self, tmp_path, name):
        folder = make_folder(tmp_path, configuration())
        (folder / name).unlink()
        with pytest.raises(ValueError, match=f"no file .*{name}"):
            read_many_langs(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda s: s.pop("projection.bias"),
                r"expected token_embedder\.pkl/projection\.bias of shape \(4,\), found none",
            ),
            (lambda s: s.update(extra=torch.zeros(2)), r"found token_embedder\.pkl/extra .*no place for"),
            (
                lambda s: s.update({"convolutions.1.weight": torch.zeros(5, 5, 3)}),
                r"convolutions\.1\.weight: expected shape \(5, 5, 2\), found \(5, 5, 3\)",
            ),
            (
                lambda s: s.update({"char_emb_layer.embedding.weight": torch.zeros(17, 6)}),
                r"expected shape \(17, 5\), found \(17, 6\)",
            ),
            (
                lambda s: s.update({"word_emb_layer.embedding.weight": torch.tensor(0.0)}),
                r"expected shape \(8, 6\), found \(\)",
            ),
            (
                lambda s: s["projection.bias"].fill_(float("nan")),
                "projection.bias holds values that are not finite",
            ),
            (lambda s: s.update({"projection.bias": torch.zeros(4, dtype=torch.int64)}), "found strided int64"),
            (lambda s: s.update({"projection.bias": torch.zeros(4).to_sparse()}), "found sparse_coo float32"),
            (lambda s: s.update({"projection.bias": torch.zeros(4, device="meta")}), "on meta"),
            (lambda s: s.update({"projection.bias": [0.0] * 4}), "found 'projection.bias' of type list"),
        ],
    )
    def test_wrong_tensors(self, tmp_path, change, message):
        path = make_folder(tmp_path, configuration()) / "token_embedder.pkl"
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)
        with pytest.raises(ValueError, match=message):
            read_many_langs(tmp_path)

    def test_no_state_dict(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        torch.save(torch.zeros(3), folder / "encoder.pkl")
        with pytest.raises(ValueError, match=r"encoder\.pkl: .*found Tensor"):
            read_many_langs(folder)


def hidden_key() -> bytes:
    """A pickle of some hundred bytes whose one key would take 2^60 steps to hash."""
    key: object = "x"
    for _ in range(60):
        key = (key, key)
    headers = b"".join(pickle.dumps(each, 2) for each in (torch.serialization.MAGIC_NUMBER, 1001, {}))
    return headers + b"\x80\x02}" + pickle.dumps(key, 2)[2:-1] + b"K\x01s." + pickle.dumps([], 2)


class TestHostilePickles:
    def test_numbers_that_the_file_does_not_hold_are_not_made(self, tmp_path):
        """A tensor of stride 0 has 10^9 numbers in 617 bytes."""
        folder = make_folder(tmp_path, configuration())
        torch.save(
            {"forward_layer_0.input_linearity.weight": torch.zeros(1).expand(10**9)}, folder / "encoder.pkl"
        )
        with pytest.raises(UserError, match="expected 4,000,000,000 bytes for its tensors, found a file of"):
            read_many_langs(folder)

    def test_an_archive_that_unpacks_to_more_than_it_is_is_refused_unread(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        plain = zipfile.ZipFile(folder / "encoder.pkl")
        members = {name: plain.read(name) for name in plain.namelist()}
        with zipfile.ZipFile(folder / "encoder.pkl", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content + (bytes(10**7) if name.endswith("/0") else b""))
        with pytest.raises(UserError, match="expected members no larger than the file"):
            read_many_langs(folder)

    def test_a_key_that_takes_for_ever_to_hash_is_refused_unmade(self, tmp_path):
        folder = make_folder(tmp_path, configuration())
        (folder / "encoder.pkl").write_bytes(hidden_key())
        with pytest.raises(UserError, match="found values of more than 1,000,000 parts"):
            read_many_langs(folder)

    @pytest.mark.parametrize("value", [10**9, 2**62, 10**30, float("inf"), -1, "2", [2]])
    @pytest.mark.parametrize("key", ["n_highway", "max_characters_per_token", "char_dim", "word_dim", "filters"])
    def test_sizes_that_cannot_be_are_refused_before_anything_is_made(self, tmp_path, key, value):
        folder, config = make_folder(tmp_path, configuration()), configuration()
        config["token_embedder"][key] = value
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(UserError):
            read_many_langs(folder)

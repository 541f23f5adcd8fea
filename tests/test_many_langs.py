"""ELMoForManyLangs folders, against a forward pass of its own: NumPy, float64, from upstream's definition."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoint import Checkpoint
from elmokit.formats.many_langs import read_lexicon, read_many_langs
from elmokit.text.batches import pad

CHARACTERS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abcdef한국어é", "\u3000"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "a", "abc", "한국어", "abcdefabcd"]
SENTENCES = [
    ["abc", "한국어", "xyz", "abcdefabcdefabcdef"],  # unknown characters; cut after ten, then a known word
    ["a"],
    ["<bos>", "é", "Ω\u3000한", "<eos>", "", "cab"],
]
KINDS = {"both": (6, 5), "characters": (0, 5), "words": (7, 0)}  # word_dim, char_dim
LIMITS = {"cell_clip": 0.6, "proj_clip": 0.4}  # low enough to matter


def configuration(word_dim: int = 6, char_dim: int = 5) -> dict:
    return {
        "encoder": {"name": "elmo", "projection_dim": 4, "dim": 9, "n_layers": 2, **LIMITS},
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 4], [2, 5], [3, 6]],
            "n_highway": 2,
            "word_dim": word_dim,
            "char_dim": char_dim,
            "max_characters_per_token": 12,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8},
        "dropout": 0.1,
    }


def make_folder(folder: Path, config: dict, legacy: bool = False) -> Path:
    """A random model as upstream writes it."""
    folder.mkdir(exist_ok=True)
    embedder, encoder = config["token_embedder"], config["encoder"]
    rng = np.random.default_rng(1)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.normal(size=shape) * 1.5 / shape[-1] ** 0.5, dtype=torch.float32)

    tokens, features = {}, 0
    if embedder["word_dim"]:
        tokens["word_emb_layer.embedding.weight"] = tensor(len(WORDS), embedder["word_dim"])
        features += embedder["word_dim"]
        write_lexicon(folder / "word.dic", WORDS)
    if embedder["char_dim"]:
        tokens["char_emb_layer.embedding.weight"] = tensor(len(CHARACTERS), embedder["char_dim"])
        for i, (width, count) in enumerate(embedder["filters"]):
            tokens[f"convolutions.{i}.weight"] = tensor(count, embedder["char_dim"], width)
            tokens[f"convolutions.{i}.bias"] = tensor(count)
        filters = sum(count for _, count in embedder["filters"])
        for i in range(embedder["n_highway"]):
            tokens[f"highways._layers.{i}.weight"] = tensor(2 * filters, filters)
            tokens[f"highways._layers.{i}.bias"] = tensor(2 * filters)
        features += filters
        write_lexicon(folder / "char.dic", CHARACTERS)
    width, cells = encoder["projection_dim"], encoder["dim"]
    tokens |= {"projection.weight": tensor(width, features), "projection.bias": tensor(width)}
    layers = {}
    for i in range(encoder["n_layers"]):
        for name in (f"forward_layer_{i}", f"backward_layer_{i}"):
            layers[f"{name}.input_linearity.weight"] = tensor(4 * cells, width)
            layers[f"{name}.state_linearity.weight"] = tensor(4 * cells, width)
            layers[f"{name}.state_linearity.bias"] = tensor(4 * cells)
            layers[f"{name}.state_projection.weight"] = tensor(width, cells)
    for name, state in (("token_embedder.pkl", tokens), ("encoder.pkl", layers)):
        torch.save(state, folder / name, _use_new_zipfile_serialization=not legacy)
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": "/home/far/away/cnn.json"}))
    (folder / "cnn.json").write_text(json.dumps(config))
    return folder


def write_lexicon(path: Path, entries: list[str]) -> None:
    path.write_text("".join(f"{entry}\t{i}\n" for i, entry in enumerate(entries)), encoding="utf-8")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class Upstream:
    """What ELMoForManyLangs computes for one sentence between <bos> and <eos>, from zero states."""

    def __init__(self, folder: Path, config: dict) -> None:
        self.config = config
        self.weights = {}
        for file in ("token_embedder.pkl", "encoder.pkl"):
            for name, tensor in torch.load(folder / file, weights_only=True).items():
                self.weights[name] = tensor.numpy().astype(np.float64)

    def token(self, token: str) -> np.ndarray:
        table, w = self.config["token_embedder"], self.weights
        room = table["max_characters_per_token"]
        token = token[: room - 2]
        parts = []
        if table["word_dim"]:
            row = WORDS.index(token) if token in WORDS else WORDS.index("<oov>")
            parts.append(w["word_emb_layer.embedding.weight"][row])
        if table["char_dim"]:
            inside = [token] if token in ("<bos>", "<eos>") else list(token)
            inside = [c if c in CHARACTERS else "<oov>" for c in inside]
            spelled = ["<eow>", *inside, "<bow>"]  # sic: upstream has the two the wrong way round
            spelled += ["<pad>"] * (room - len(spelled))
            embedded = w["char_emb_layer.embedding.weight"][[CHARACTERS.index(c) for c in spelled]]
            pooled = []
            for i, (width, _) in enumerate(table["filters"]):
                kernel, bias = w[f"convolutions.{i}.weight"], w[f"convolutions.{i}.bias"]  # [F, E, width]
                at = [np.einsum("few,we->f", kernel, embedded[s : s + width]) for s in range(room - width + 1)]
                highest = np.max(at, axis=0) + bias
                pooled.append(np.maximum(highest, 0) if table["activation"] == "relu" else np.tanh(highest))
            x = np.concatenate(pooled)
            for i in range(table["n_highway"]):
                both = w[f"highways._layers.{i}.weight"] @ x + w[f"highways._layers.{i}.bias"]
                new, gate = np.maximum(both[: len(x)], 0), sigmoid(both[len(x) :])
                x = gate * x + (1 - gate) * new
            parts.append(x)
        return w["projection.weight"] @ np.concatenate(parts) + w["projection.bias"]

    def run(self, name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        table, w = self.config["encoder"], self.weights
        hidden, cell, outputs = np.zeros(table["projection_dim"]), np.zeros(table["dim"]), []
        for x in inputs:
            gates = w[f"{name}.input_linearity.weight"] @ x + w[f"{name}.state_linearity.weight"] @ hidden
            i, f, g, o = np.split(gates + w[f"{name}.state_linearity.bias"], 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            if table["cell_clip"]:
                cell = np.clip(cell, -table["cell_clip"], table["cell_clip"])
            hidden = w[f"{name}.state_projection.weight"] @ (sigmoid(o) * np.tanh(cell))
            if table["proj_clip"]:
                hidden = np.clip(hidden, -table["proj_clip"], table["proj_clip"])
            outputs.append(hidden)
        return outputs

    def layers(self, sentence: list[str]) -> np.ndarray:  # [1 + L, T + 2, 2P]
        x = [self.token(token) for token in ("<bos>", *sentence, "<eos>")]
        forward, backward = x, x[::-1]
        layers = [np.concatenate([x, x], axis=-1)]
        for i in range(self.config["encoder"]["n_layers"]):
            new_forward = self.run(f"forward_layer_{i}", forward)
            new_backward = self.run(f"backward_layer_{i}", backward)
            forward = [h + x for h, x in zip(new_forward, forward)] if i else new_forward
            backward = [h + x for h, x in zip(new_backward, backward)] if i else new_backward
            layers.append(np.concatenate([forward, backward[::-1]], axis=-1))
        return np.stack(layers)


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
    assert again.tokeniser.name == "whitespace"
    assert again.tokeniser.normalise == "none"


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

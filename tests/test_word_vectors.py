"""Files of word vectors, written here by hand, byte by byte; and the biLM over them."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.formats import word_vectors
from elmokit.formats.word_vectors import bilm_from_vectors, read_word_vectors
from elmokit.model.bilm import BiLMConfig
from elmokit.model.lstm import LSTMConfig
from elmokit.pretrain.recipe import Recipe
from elmokit.text.batches import pad
from elmokit.text.tokens import TokenizerConfig

WORDS = ["the", "밥", "\xa0", "<s>x", "2"]
VECTORS = np.array([[0.1, -2, 3e-5], [1, 2, 3], [0.7, 0.7, 0.7], [-0.25, 1e10, 0], [5, 6, 7]], dtype=np.float32)


def text(words, vectors, *, header: bool, end: str = "\n") -> bytes:
    lines = [f"{len(words)} {vectors.shape[1]}"] if header else []
    lines += [f"{word} " + " ".join(repr(float(x)) for x in row) for word, row in zip(words, vectors)]
    return "".join(line + end for line in lines).encode("utf-8")


def binary(words, vectors, *, end: bytes = b"\n") -> bytes:
    content = f"{len(words)} {vectors.shape[1]}\n".encode()
    for word, row in zip(words, vectors):
        spelled = word if isinstance(word, bytes) else word.encode("utf-8")
        content += spelled + b" " + struct.pack(f"<{len(row)}f", *row) + end
    return content


FORMATS = {
    "word2vec text": lambda words, vectors: text(words, vectors, header=True),
    "fastText": lambda words, vectors: text(words, vectors, header=True, end=" \n"),
    "GloVe": lambda words, vectors: text(words, vectors, header=False),
    "GloVe, CRLF": lambda words, vectors: text(words, vectors, header=False, end="\r\n"),
    "word2vec binary": binary,
    "gensim binary": lambda words, vectors: binary(words, vectors, end=b""),
}
PACKINGS = {"plain": bytes, "gz": gzip.compress, "xz": lzma.compress}


def write(folder: Path, content: bytes, name: str = "vectors") -> Path:
    path = folder / name  # no suffix: only the content tells the format
    path.write_bytes(content)
    return path


class TestFormats:
    @pytest.mark.parametrize("packing", PACKINGS)
    @pytest.mark.parametrize("form", FORMATS)
    def test_words_and_vectors_are_read_back(self, tmp_path, form, packing):
        path = write(tmp_path, PACKINGS[packing](FORMATS[form](WORDS, VECTORS)))
        words, vectors = read_word_vectors(path)
        assert words == WORDS
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, VECTORS)
        assert read_word_vectors(str(path))[0] == WORDS

    @pytest.mark.parametrize("form", FORMATS)
    @settings(deadline=None)
    @given(data=st.data())
    def test_of_any_words_and_numbers(self, tmp_path_factory, form, data):
        token = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" "), min_size=1)
        words = data.draw(st.lists(token, min_size=1, max_size=5, unique=True))
        # four numbers: fewer floats can happen to have the bytes of a word and a number, as text has them
        row = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4)
        vectors = np.array([data.draw(row) for _ in words], dtype=np.float32)
        path = write(tmp_path_factory.mktemp("vectors"), FORMATS[form](words, vectors))
        read, numbers = read_word_vectors(path)
        assert read == words
        np.testing.assert_array_equal(numbers, vectors)

    @pytest.mark.parametrize("form", FORMATS)
    def test_more_rows_than_are_set_aside_at_first(self, tmp_path, form):
        words = [f"w{i}" for i in range(5000)]
        vectors = np.random.default_rng(0).normal(size=(5000, 4)).astype(np.float32)
        read, numbers = read_word_vectors(write(tmp_path, FORMATS[form](words, vectors)))
        assert read == words
        np.testing.assert_array_equal(numbers, vectors)

    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize("limit", [1, 3, 5, 9])
    def test_limit(self, tmp_path, form, limit):
        words, vectors = read_word_vectors(write(tmp_path, FORMATS[form](WORDS, VECTORS)), limit=limit)
        assert words == WORDS[:limit]
        np.testing.assert_array_equal(vectors, VECTORS[:limit])

    def test_what_lies_beyond_the_limit_is_not_read(self, tmp_path):
        path = write(tmp_path, text(WORDS, VECTORS, header=True) + b"and this is damaged")
        assert read_word_vectors(path, limit=5)[0] == WORDS

    @pytest.mark.parametrize("form", FORMATS)
    def test_of_a_word_listed_twice_the_first_counts(self, tmp_path, form):
        path = write(tmp_path, FORMATS[form](["a", "b", "a", "c"], VECTORS[:4]))
        words, vectors = read_word_vectors(path)
        assert words == ["a", "b", "c"]
        np.testing.assert_array_equal(vectors, VECTORS[[0, 1, 3]])
        assert read_word_vectors(path, limit=3)[0] == ["a", "b", "c"]


class TestQuirks:
    @pytest.mark.parametrize("header", [True, False])
    def test_words_with_spaces(self, tmp_path, header):
        words = ["the", ". . .", "at name@domain.com", "New\xa0York"]
        read, vectors = read_word_vectors(write(tmp_path, text(words, VECTORS[:4], header=header)))
        assert read == words
        np.testing.assert_array_equal(vectors, VECTORS[:4])

    def test_the_first_word_after_a_header_may_have_spaces(self, tmp_path):
        words, vectors = read_word_vectors(write(tmp_path, b"2 3\nNew York 1 2 3\na 4 5 6\n"))
        assert words == ["New York", "a"]
        assert vectors.tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_bytes_that_are_not_utf8(self, tmp_path):
        words, _ = read_word_vectors(write(tmp_path, binary([b"caf\xe9", b"a", b"\xff"], VECTORS[:3])))
        assert words == ["caf\ufffd", "a", "\ufffd"]

    @pytest.mark.parametrize("spelled", [b"333?", b" )8[", b"5\n\0\0"])
    def test_floats_that_look_like_letters(self, tmp_path, spelled):
        vectors = np.frombuffer(spelled * 6, dtype="<f4").reshape(2, 3)
        words, numbers = read_word_vectors(write(tmp_path, binary(["a", "b"], vectors)))
        assert words == ["a", "b"]
        np.testing.assert_array_equal(numbers, vectors)

    @pytest.mark.parametrize("header", [True, False])
    def test_empty_lines_at_the_end(self, tmp_path, header):
        path = write(tmp_path, text(WORDS, VECTORS, header=header) + b"\n \r\n\n")
        assert read_word_vectors(path)[0] == WORDS

    def test_no_newline_at_the_end(self, tmp_path):
        assert read_word_vectors(write(tmp_path, b"a 1 2\nb 3 4"))[1].tolist() == [[1, 2], [3, 4]]

    def test_two_whole_numbers_that_are_no_header(self, tmp_path):
        words, vectors = read_word_vectors(write(tmp_path, b"2 3\nword 0.5\n"))
        assert words == ["2", "word"]
        assert vectors.tolist() == [[3], [0.5]]

    def test_two_whole_numbers_that_are_a_header(self, tmp_path):
        words, vectors = read_word_vectors(write(tmp_path, b"2 1\nword 0.5\nb 1\n"))
        assert words == ["word", "b"]
        assert vectors.tolist() == [[0.5], [1]]


class TestErrors:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "found an empty file"),
            (b"\n\n", "found an empty line 1"),
            (b"word\n", "line 1: expected a word and its numbers"),
            (b"some plain text\n", "line 1: .* found 3 fields: 'some plain text'"),
            (b"a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, found 2 fields: 'b 1'"),
            (b"a 1 2\nb 1 2\nc 1 2 3\n", "line 3: expected a word and 2 numbers, found 4 fields"),
            (b"a 1 2\n\nb 1 2\n", "line 2: expected a word and 2 numbers, found 0 fields"),
            (b"a 1 2\nb 1 x\n", "line 2: expected a word and 2 numbers, found 3 fields: 'b 1 x'"),
            (b"a 1 2\nb nan 2\n", "line 2: 'b': expected finite numbers"),
            (b"a 1 2\nb 1 -inf\n", "line 2: 'b': expected finite numbers"),
            (b"a 1 2\nb 1 1e39\n", "line 2: 'b': expected finite numbers"),
            (b"2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers, found 2 fields"),
            (b"2 3\na 1 2\nb 1 2 3\n", "line 2: expected a word and 3 numbers, found 3 fields"),
            (b"2 3\na 1 2 \xea\xb0\x80\nb 1 2 3\n", "line 2: expected a word and 3 numbers, found 4 fields"),
            (b"3 2\na 1 2\nb 1 2\n", "expected 3 vectors, as the header says, found 2"),
            (b"1 2\na 1 2\nb 1 2\n", "line 3: expected 1 vectors, as the header says, found more"),
            (b"5 300\n", "expected 5 vectors, as the header says, found 0"),
            (b"0 300\n", "found none"),
            (b"1 99999999999\na \0\0\0\0", "line 1: expected vectors of no more than"),
            (b"PK\x03\x04....", "a zip archive: unpack it"),
            (b"\xba\x16\x4f\x2f\x0c\0\0\0", r"a fastText model: give its \.vec"),
            (gzip.compress(b"a 1 2\n" * 99, mtime=0)[:-9], "not a whole compressed file"),
            (lzma.compress(b"a 1 2\n" * 99)[:-9], "not a whole compressed file"),
        ],
    )
    def test_say_what_was_expected_and_found(self, tmp_path, content, message):
        path = write(tmp_path, content)
        with pytest.raises(ValueError, match=message) as caught:
            read_word_vectors(path)
        assert str(caught.value).startswith(str(path))

    @settings(deadline=None)
    @given(cut=st.integers(1, len(binary(WORDS, VECTORS, end=b"")) - len("5 3\n")))
    def test_a_truncated_binary_file_is_never_read(self, tmp_path_factory, cut):
        path = write(tmp_path_factory.mktemp("cut"), binary(WORDS, VECTORS, end=b"")[:-cut])
        with pytest.raises(ValueError, match="expected"):
            read_word_vectors(path)

    def test_a_truncated_binary_file_says_where(self, tmp_path):
        path = write(tmp_path, binary(WORDS, VECTORS, end=b"")[:-3])
        with pytest.raises(ValueError, match=r"vector 5 of 5: expected a word, a space and 12 bytes, found 11"):
            read_word_vectors(path)

    def test_a_binary_file_with_more_than_its_header_says(self, tmp_path):
        path = write(tmp_path, binary(WORDS, VECTORS) + b"more \0\0")
        with pytest.raises(ValueError, match=r"expected 5 vectors, .* found 7 bytes after them"):
            read_word_vectors(path)

    def test_a_binary_file_without_words(self, tmp_path):
        path = write(tmp_path, b"3 4\n" + b"a \0" + b"\0" * 15 + b"\1" * (1 << 22))
        with pytest.raises(ValueError, match="vector 2 of 3: expected a word"):
            read_word_vectors(path)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_numbers_that_are_none_in_a_binary_file(self, tmp_path, bad):
        vectors = VECTORS.copy()
        vectors[1, 2] = bad
        with pytest.raises(ValueError, match="vector 2: '밥': expected finite numbers"):
            read_word_vectors(write(tmp_path, binary(WORDS, vectors)))

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_below_1(self, tmp_path, limit):
        with pytest.raises(ValueError, match=f"limit: expected 1 or more words, found {limit}"):
            read_word_vectors(write(tmp_path, b"a 1\n"), limit=limit)

    def test_no_file(self, tmp_path):
        with pytest.raises(ValueError, match=r"no file of word vectors .*absent"):
            read_word_vectors(tmp_path / "absent")


RECIPE = Recipe(
    model=BiLMConfig(lstm=LSTMConfig(layers=2, cells=6, width=3)), tokenizer=TokenizerConfig("whitespace", "NFC")
)
PADDING, BEGIN, END, UNKNOWN, FIRST = range(5)


def table_of(checkpoint: Checkpoint) -> torch.Tensor:
    return checkpoint.bilm.state_dict()["encoder.word_embedding.weight"]


def layers_of(checkpoint: Checkpoint, sentences: list[list[str]]) -> torch.Tensor:
    with torch.no_grad():
        return checkpoint.bilm(torch.from_numpy(pad(checkpoint.mapper, sentences, boundaries=True))).layers


def test_a_packed_file_of_far_more_vectors_than_bytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "SMALL", 1 << 20)
    rows = b"".join(b"w%d" % i + b" 0" * 300 + b"\n" for i in range(5000))
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(rows))
    with pytest.raises(UserError, match="16 times the file or more"):
        read_word_vectors(tmp_path / "v.txt.gz")
    assert len(read_word_vectors(tmp_path / "v.txt.gz", limit=10)[0]) == 10


class TestBiLM:
    def make(self, folder: Path, words=WORDS, vectors=VECTORS, recipe=RECIPE, **options) -> Checkpoint:
        return bilm_from_vectors(write(folder, text(words, vectors, header=True)), recipe, **options)

    def test_layer_0_is_the_vectors(self, tmp_path):
        layers = layers_of(self.make(tmp_path), [["밥", "2", "The", "밥"], ["unheard-of"]])
        expected = torch.from_numpy(VECTORS[[1, 4, 0, 1]])  # "The" has no vector, "the" has
        assert torch.equal(layers[0, 0, 1:5], torch.cat([expected, expected], dim=1))
        mean = torch.from_numpy(VECTORS.mean(axis=0))
        torch.testing.assert_close(layers[0, 1, 1], torch.cat([mean, mean]))
        assert not layers[:, 1, 3:].any()

    def test_other_widths_are_projected(self, tmp_path):
        recipe = Recipe(model=BiLMConfig(lstm=LSTMConfig(cells=6, width=5)))
        checkpoint = self.make(tmp_path, recipe=recipe)
        projection = checkpoint.bilm.encoder.projection
        expected = torch.from_numpy(VECTORS[1]) @ projection.weight.T + projection.bias
        torch.testing.assert_close(layers_of(checkpoint, [["밥"]])[0, 0, 1, :5], expected.detach())

    def test_the_rest_is_the_recipes(self, tmp_path):
        checkpoint = self.make(tmp_path)
        assert checkpoint.bilm.config.lstm == RECIPE.model.lstm
        assert checkpoint.tokenizer == RECIPE.tokenizer

    @pytest.mark.parametrize(("begin", "end"), [("<s>", "</s>"), ("<S>", "</S>")])
    @pytest.mark.parametrize("unknown", ["<UNK>", "<unk>", "UNK"])
    def test_the_files_own_specials_are_taken(self, tmp_path, begin, end, unknown):
        checkpoint = self.make(tmp_path, ["a", begin, unknown, end, "b"])
        table, given = table_of(checkpoint), torch.from_numpy(VECTORS)
        assert torch.equal(table[[BEGIN, END, UNKNOWN]], given[[1, 3, 2]])
        assert not table[PADDING].any()
        layers = layers_of(checkpoint, [["b", "nowhere", "a"]])
        assert torch.equal(layers[0, 0, :, :3], given[[1, 4, 2, 0, 3]])

    def test_sentence_ends_that_the_file_lacks_are_drawn_like_its_vectors(self, tmp_path):
        rng = np.random.default_rng(0)
        wide = (rng.normal(size=(20, 2000)) * 0.2).astype(np.float32)
        table = table_of(self.make(tmp_path, [f"w{i}" for i in range(20)], wide))
        for row in (BEGIN, END):
            assert float(table[row].std()) == pytest.approx(0.2, rel=0.1)
        assert abs(float(torch.corrcoef(table[[BEGIN, END]])[0, 1])) < 0.1

    def test_equal_seeds_make_equal_models(self, tmp_path):
        before = torch.get_rng_state()
        first, second, other = (self.make(tmp_path, seed=seed) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert first.digest == second.digest
        assert not torch.equal(table_of(first)[BEGIN], table_of(other)[BEGIN])
        for name, weight in other.bilm.state_dict().items():
            if name.endswith("_weight"):
                assert not torch.equal(weight, first.bilm.state_dict()[name])

    def test_fewer_words_leave_the_lstms_as_they_are(self, tmp_path):
        whole, part = self.make(tmp_path), self.make(tmp_path, limit=2)
        assert len(table_of(part)) == FIRST + 2
        for name, weight in part.bilm.state_dict().items():
            if "lstms" in name:
                assert torch.equal(weight, whole.bilm.state_dict()[name])

    @pytest.mark.parametrize("trainable", [False, True])
    def test_saved_and_loaded_it_computes_the_same(self, tmp_path, trainable):
        checkpoint = self.make(tmp_path, trainable=trainable)
        checkpoint.save(tmp_path / "model")
        again = Checkpoint.load(tmp_path / "model")
        sentences = [["밥", "\xa0", "nowhere"], ["the"]]
        assert torch.equal(layers_of(again, sentences), layers_of(checkpoint, sentences))
        for one in (checkpoint, again):
            assert one.bilm.encoder.word_embedding.weight.requires_grad is trainable
            assert all(p.requires_grad for p in one.bilm.forward_lstms.parameters())

    def test_a_bad_file_is_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"vectors: .*empty file"):
            bilm_from_vectors(write(tmp_path, b""), RECIPE)

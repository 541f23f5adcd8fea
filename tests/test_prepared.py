from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.pretrain import corpus as prepared
from elmokit.pretrain.corpus import PreparedCorpus, holds_paragraphs, prepare
from elmokit.text.tokens import TokenizerConfig, make_tokenizer

WHITESPACE = TokenizerConfig("whitespace")


def sentences_of(corpus: PreparedCorpus) -> list[list[str]]:
    return [[corpus.types[i] for i in corpus.sentence(number)] for number in range(corpus.sentences)]


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def lines() -> list[str]:
    draw = np.random.default_rng(0)
    words = [*"a b c d e f g 밥 을 é".split(), "😀"]
    return [" ".join(draw.choice(words, size=draw.integers(0, 12))) for _ in range(400)]


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(prepared, "_BATCH_CHARACTERS", 100)


def test_what_is_on_disk(tmp_path):
    source = write(tmp_path / "t.txt", ["밥 the 밥", "", "   ", "the end"])
    train, held_out = prepare([source], tmp_path / "corpus", WHITESPACE, split=False)
    assert held_out is None
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == ["train"]
    folder = tmp_path / "corpus" / "train"
    assert np.fromfile(folder / "tokens.u32", "<u4").tolist() == [0, 1, 0, 1, 2]
    assert np.fromfile(folder / "offsets.i64", "<i8").tolist() == [0, 3, 5]
    assert (folder / "types.utf8").read_bytes() == "밥theend".encode()
    assert np.fromfile(folder / "counts.i64", "<i8").tolist() == [2, 2, 1]
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    assert meta["tokenizer"] == {"name": "whitespace", "normalize": "NFC"}
    assert (meta["sentences"], meta["tokens"], meta["types"], meta["split"]) == (2, 5, 3, False)
    assert (train.sentences, train.tokens, train.types) == (2, 5, ["밥", "the", "end"])
    assert train.tokenizer == WHITESPACE
    assert train.sentence(1).dtype == np.uint32
    train.verify()


# Not a file of control characters, which is refused as no text.
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), max_size=20))
def test_the_sentences_come_back(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("prepared")
    source = write(folder / "t.txt", ["first", *lines])
    corpus, _ = prepare([source], folder / "corpus", WHITESPACE, split=False)
    tokenizer = make_tokenizer(WHITESPACE)
    expected = [tokens for line in ["first", *lines] if (tokens := tokenizer.tokens(line))]
    assert sentences_of(corpus) == expected
    flat = [token for tokens in expected for token in tokens]
    assert corpus.types == list(dict.fromkeys(flat))
    assert corpus.counts.tolist() == [flat.count(name) for name in corpus.types]


def test_batches_and_workers_change_nothing(tmp_path, lines, monkeypatch):
    source = write(tmp_path / "t.txt", lines)
    options = {"split": False, "held_out": 0.2, "limit_tokens": 1500}
    prepare([source], tmp_path / "one", WHITESPACE, **options)
    monkeypatch.setattr(prepared, "_BATCH_CHARACTERS", 700)
    prepare([source], tmp_path / "batches", WHITESPACE, **options)
    prepare([source], tmp_path / "workers", WHITESPACE, workers=2, **options)
    one, batches, workers = (contents(tmp_path / name) for name in ("one", "batches", "workers"))
    assert workers == batches
    # A limit is met inside a batch; lines of that batch which were held out stay, so that part may differ.
    train = {name: content for name, content in one.items() if name.startswith("train/")}
    assert train == {name: content for name, content in batches.items() if name.startswith("train/")}


def test_held_out_lines_are_a_fixed_share_and_in_one_part_only(tmp_path, small_batches):
    lines = [f"line{i} of many" for i in range(2000)]
    source = write(tmp_path / "t.txt", lines)

    def first_words(name, **options):
        parts = prepare([source], tmp_path / name, WHITESPACE, split=False, **options)
        return [[sentence[0] for sentence in sentences_of(part)] for part in parts]

    train, held_out = first_words("a", held_out=0.1)
    assert 140 < len(held_out) < 260
    assert sorted(train + held_out) == sorted(f"line{i}" for i in range(2000))
    assert train == sorted(train, key=lambda word: int(word[4:]))
    assert first_words("b", held_out=0.1) == [train, held_out]
    assert first_words("c", held_out=0.1, seed=1)[1] != held_out


LINES = st.lists(st.text("abc ", min_size=1), min_size=1, max_size=30)


@pytest.mark.slow
@given(LINES, LINES, st.randoms(use_true_random=False))
def test_a_line_is_held_out_by_its_text_alone(tmp_path_factory, lines, others, random):
    """Files may be added, shuffled, renamed and joined: a line stays on its side, and so do equal lines."""
    folder = tmp_path_factory.mktemp("prepared")
    one = write(folder / "one.txt", ["once", *lines])  # which trains
    mixed = [*lines, *others, "once"]
    random.shuffle(mixed)
    cut = random.randrange(len(mixed) + 1)
    many = [write(folder / "z.txt", mixed[:cut]), write(folder / "a.txt", mixed[cut:])]

    def sides(name, sources):
        parts = prepare(sources, folder / name, WHITESPACE, split=False, held_out=0.4)
        return [{tuple(sentence) for sentence in sentences_of(part)} if part else set() for part in parts]

    train, held_out = sides("one", [one])
    train_of_many, held_out_of_many = sides("many", many)
    assert not train_of_many & held_out_of_many
    assert train <= train_of_many
    assert held_out <= held_out_of_many


def test_a_larger_share_holds_out_the_same_lines_and_more(tmp_path):
    source = write(tmp_path / "t.txt", [f"line{i}" for i in range(500)])
    parts = [
        prepare([source], tmp_path / str(share), WHITESPACE, split=False, held_out=share)[1]
        for share in (0.05, 0.2)
    ]
    smaller, larger = ({sentence[0] for sentence in sentences_of(part)} for part in parts)
    assert smaller < larger


def test_when_every_line_is_held_out_there_is_nothing_to_train_on(tmp_path):
    source = write(tmp_path / "t.txt", ["", "one", "two"])
    with pytest.raises(ValueError, match="all 2 sentences were held out: hold out a smaller share"):
        prepare([source], tmp_path / "corpus", WHITESPACE, held_out=0.999999)
    assert list(tmp_path.iterdir()) == [source]


def test_a_corpus_of_one_word(tmp_path):
    train, held_out = prepare([write(tmp_path / "t.txt", ["one"])], tmp_path / "corpus", "words", held_out=0.1)
    assert sentences_of(train) == [["one"]]
    assert held_out is None


PARAGRAPH = "He sat down. Then he got up. It was late."


def test_paragraphs_are_split_and_sentences_are_not(tmp_path):
    source = write(tmp_path / "t.txt", [PARAGRAPH] * 3)
    for split, number in ((True, 9), (False, 3), (None, 9)):
        corpus, _ = prepare([source], tmp_path / str(split), "words", split=split)
        assert corpus.sentences == number
    assert corpus.meta["split"] is True


@pytest.mark.parametrize(("several", "paragraphs"), [(0, False), (10, False), (11, True), (40, True)])
def test_lines_are_paragraphs_if_more_than_a_quarter_hold_several_sentences(several, paragraphs):
    lines = [PARAGRAPH] * several + ["He sat down."] * (40 - several) + [""] * 100
    assert holds_paragraphs(lines, make_tokenizer("words")) is paragraphs


def test_the_lines_that_were_looked_at_are_not_lost(tmp_path, monkeypatch, lines):
    """Standard input can be read only once."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    corpus, _ = prepare(["-"], tmp_path / "corpus", WHITESPACE)
    assert sentences_of(corpus) == [line.split() for line in lines if line.strip()]


def test_several_sources(tmp_path):
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts" / "b.txt", ["three"])
    (tmp_path / "texts" / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo"))
    corpus, _ = prepare([tmp_path / "texts"], tmp_path / "corpus", "words")
    assert corpus.types == ["one", "two", "three"]
    assert [source.rsplit("/")[-1] for source in corpus.meta["sources"]] == ["a.txt.gz", "b.txt"]


@pytest.mark.parametrize(("limit", "sentences"), [(1, 1), (3, 1), (4, 2), (6, 2), (100, 4)])
def test_a_limit_ends_with_the_sentence_that_reaches_it(tmp_path, limit, sentences):
    source = write(tmp_path / "t.txt", ["a b c", "d e f", "g h i", "j k l"])
    corpus, _ = prepare([source], tmp_path / "corpus", WHITESPACE, split=False, limit_tokens=limit)
    assert sentences_of(corpus) == [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"], ["j", "k", "l"]][:sentences]


def test_progress_is_reported(tmp_path, lines, small_batches):
    seen = []
    source = write(tmp_path / "t.txt", lines)
    corpus, held_out = prepare([source], tmp_path / "corpus", WHITESPACE, held_out=0.3, report=seen.append)
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[-1] == (len(lines), corpus.sentences + held_out.sentences, corpus.tokens + held_out.tokens, 1.0, 0)


def test_lines_that_are_not_utf8(tmp_path):
    source = tmp_path / "t.txt"
    source.write_bytes(b"good\nb\xffd\nfine\n")
    with pytest.raises(ValueError, match=r"t\.txt, line 2: not valid UTF-8"):
        prepare([source], tmp_path / "corpus", "words")
    seen = []
    corpus, _ = prepare([source], tmp_path / "corpus", "words", on_bad_line="skip", report=seen.append)
    assert corpus.types == ["good", "fine"]
    assert seen[-1].skipped == 1


@pytest.mark.parametrize(("lines", "message"), [([], "no lines at all"), (["", " \t"], "2 lines without a token")])
def test_nothing_to_train_on_is_refused_and_leaves_nothing(tmp_path, lines, message):
    source = write(tmp_path / "t.txt", lines)
    with pytest.raises(ValueError, match=rf"t\.txt: {message}"):
        prepare([source], tmp_path / "corpus", "words")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("options", [{"held_out": 1.0}, {"held_out": -0.1}, {"workers": 0}, {"limit_tokens": 0}])
def test_impossible_settings_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match="expected"):
        prepare([write(tmp_path / "t.txt", ["one"])], tmp_path / "corpus", "words", **options)


def test_only_an_earlier_preparation_is_replaced_and_only_on_request(tmp_path):
    source, folder = write(tmp_path / "t.txt", ["one"]), tmp_path / "corpus"
    prepare([source], folder, "words")
    with pytest.raises(ValueError, match="exists already"):
        prepare([source], folder, "words")
    write(source, ["two"])
    assert prepare([source], folder, "words", overwrite=True)[0].types == ["two"]
    (tmp_path / "precious").mkdir()
    with pytest.raises(ValueError, match="is not a prepared corpus"):
        prepare([source], tmp_path / "precious", "words", overwrite=True)


def test_the_digest_is_of_the_sentences(tmp_path):
    def digest(name, lines):
        return prepare([write(tmp_path / name, lines)], tmp_path / f"{name}-corpus", "words")[0].digest

    assert digest("a", ["one two", "three"]) == digest("b", ["one two", "", "three"])
    assert digest("c", ["one", "two three"]) != digest("d", ["one two", "three"])


def test_a_damaged_folder_is_refused(tmp_path):
    prepare([write(tmp_path / "t.txt", ["one two", "three"])], tmp_path / "corpus", "words")
    folder = tmp_path / "corpus" / "train"
    with pytest.raises(ValueError, match=r"no meta.json: did you mean .*train\?"):
        PreparedCorpus.open(tmp_path / "corpus")
    with pytest.raises(ValueError, match="not a prepared corpus"):
        PreparedCorpus.open(tmp_path / "nowhere")

    tokens = (folder / "tokens.u32").read_bytes()
    (folder / "tokens.u32").write_bytes(tokens[:-1])
    with pytest.raises(ValueError, match=r"tokens\.u32: expected 12 bytes, found 11 bytes: prepare"):
        PreparedCorpus.open(folder)
    (folder / "tokens.u32").unlink()
    with pytest.raises(ValueError, match="no such file"):
        PreparedCorpus.open(folder)
    (folder / "tokens.u32").write_bytes(tokens[:-1] + b"\1")
    corpus = PreparedCorpus.open(folder)
    with pytest.raises(ValueError, match=r"tokens\.u32 has changed"):
        corpus.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "expected a prepared corpus of format 1, found 2"),
        ({"tokens": 4}, "counts do not agree"),
        ({"files": {}}, "counts do not agree"),
        ({"sentences": "many"}, "is damaged"),
        ({"files": None}, "is damaged"),
    ],
)
def test_a_damaged_description_is_refused(tmp_path, change, message):
    prepare([write(tmp_path / "t.txt", ["one two", "three"])], tmp_path / "corpus", "words")
    path = tmp_path / "corpus" / "train" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        PreparedCorpus.open(path.parent)
    path.write_text(path.read_text()[:-5])
    with pytest.raises(ValueError, match="not valid JSON"):
        PreparedCorpus.open(path.parent)


def test_neither_preparing_nor_reading_needs_torch():
    script = "import sys, elmokit.pretrain.corpus, elmokit.pretrain.windows; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0

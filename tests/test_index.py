from __future__ import annotations

import builtins
import errno
import json
import lzma
import os
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from elmokit.analysis.contexts import index as index_module
from elmokit.analysis.contexts import index_files
from elmokit.analysis.contexts.corpus import Context, read_contexts, unit
from elmokit.analysis.contexts.index import ContextIndex, search_index
from elmokit.analysis.contexts.index_files import IndexFacts, read_facts, write_index
from elmokit.analysis.contexts.marked import read_marked, word_vectors
from elmokit.checkpoint import config_digest
from elmokit.cli.index import index as index_app
from elmokit.progress import Progress
from elmokit.text.tokens import TokenizerConfig
from helpers.models import make_elmo, small_config

pytest.importorskip("lancedb")

LINES = [
    "He sat on the bank of the river .",
    "She works at a bank in 1999 .",
    "They made a play on the grounder .",
    "",
    "12 , 34 .",
    "A play by Shaw is on tonight .",
    "밥을 먹었다 .",
    "배를 타고 강을 건넜다 .",
    "x" * 500 + " is a long word",
    "They made a play on the grounder .",
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def by_hand(elmo, query, layer, lines=LINES):
    """(cosine, tokens, place) of every word of other sentences, by NumPy, the nearest first."""
    own = unit(word_vectors(elmo, [query])[0, layer])
    found = []
    for tokens in (line.split() for line in lines):
        if tokens == query.tokens or not tokens:
            continue
        for place, vector in enumerate(unit(elmo.embed([tokens], layers=layer)[0])):
            if any(letter.isalpha() for letter in tokens[place]):
                found.append((float(vector @ own), tokens, place))
    return sorted(found, key=lambda each: -each[0])


def one_per_sentence(rows, most):
    best = {}
    for cosine, tokens, place in rows:
        best.setdefault(tuple(tokens), (cosine, place))
    return [(list(tokens), *rest) for tokens, rest in best.items()][:most]


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_what_is_found_is_what_a_comparison_with_all_finds(tmp_path, elmo, corpus, layer):
    index = ContextIndex.build(elmo, [corpus], tmp_path / "index")
    query = read_marked(elmo, "We saw a [play] of the bank")
    found = index.search(elmo, query, layer, 5)
    expected = one_per_sentence(by_hand(elmo, query, layer), 5)
    np.testing.assert_allclose([near.cosine for near in found], [each[1] for each in expected], atol=1e-5)
    if layer:  # in layer 0 equal words are equally near, and any may come first
        assert [(near.sentence.tokens, near.sentence.start) for near in found] == [(t, p) for t, _, p in expected]


def test_all_that_there_is_comes_when_more_is_asked_for(tmp_path, elmo, corpus):
    index = ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=[2])
    query = read_marked(elmo, "He sat on the [bank] of the river .")
    found = index.search(elmo, query, 2, 100)
    sentences = [" ".join(near.sentence.tokens) for near in found]
    assert sorted(sentences) == sorted({line for line in LINES if line and line not in (LINES[0], LINES[4])})
    assert index.facts.sentences == 8  # with the one that is there twice; without those of no words
    assert index.facts.which_layers == (2,)


def test_facts_and_what_is_kept(tmp_path, elmo, corpus):
    made = ContextIndex.build(elmo, [corpus], tmp_path / "index", everything=True).facts
    assert made == read_facts(tmp_path / "index")
    assert made.vectors == sum(len(line.split()) for line in LINES)
    assert (made.model, made.tokenizer) == (elmo.checkpoint.digest, TokenizerConfig("whitespace"))
    assert (made.which_layers, made.width, made.partitions) == ((0, 1, 2), elmo.width, 0)
    assert made.sources == (str(corpus),)
    few = ContextIndex.build(elmo, [corpus], tmp_path / "few", limit=10).facts
    assert (few.vectors, few.sentences) == (10, 2)


def test_a_compressed_corpus_and_a_folder_with_an_odd_name(tmp_path, elmo):
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress("\n".join(LINES).encode()))
    index = ContextIndex.build(elmo, [packed], tmp_path / "my %20 색인#1")
    (near,) = index.search(elmo, read_marked(elmo, "배를 [타고] 강을"), 2, 1)
    assert set("".join(near.sentence.tokens)) <= set("".join(LINES))


def test_paragraphs_are_split_into_sentences_on_request(tmp_path, corpus):
    elmo = make_elmo(tokenizer="words")
    corpus.write_text("She works at a bank. They made a play on it. 12.\nA third one.\n")
    assert ContextIndex.build(elmo, [corpus], tmp_path / "lines").facts.sentences == 2
    index = ContextIndex.build(elmo, [corpus], tmp_path / "split", split=True)
    assert (index.facts.sentences, index.facts.split) == (3, True)
    found = index.search(elmo, read_marked(elmo, "A [play]"), 0, 1)
    assert found[0].sentence == read_marked(elmo, "They made a [play] on it.")


def test_small_buffers_make_the_same_index(tmp_path, elmo, corpus, monkeypatch):
    whole = ContextIndex.build(elmo, [corpus], tmp_path / "whole")
    monkeypatch.setattr(index_files, "BUFFER_BYTES", 1)
    parts = ContextIndex.build(elmo, [corpus], tmp_path / "parts")
    query = read_marked(elmo, "the [river] bank")
    assert parts.search(elmo, query, 1, 4) == whole.search(elmo, query, 1, 4)


def clustered(count, width=16, clusters=200, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, width))
    return unit(centres[rng.integers(0, clusters, count)] + 0.3 * rng.standard_normal((count, width)))


def test_partitions_find_what_exact_search_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(index_files, "PARTITION", 50)
    monkeypatch.setattr(index_module, "PROBES", 10)
    vectors = clustered(2030)
    contexts = (
        Context([f"w{i + j}" for j in range(10)], list(range(10)), vectors[None, i : i + 10])
        for i in range(0, 2000, 10)
    )
    facts = IndexFacts("none", TokenizerConfig("whitespace"), (2,), 16, ("made up",))
    stages = []
    made = write_index(
        tmp_path / "index", facts, contexts, exact_below=1000, on_progress=lambda now: stages.append(now.stage)
    )
    assert (made.vectors, made.partitions) == (2000, 40)
    assert "partitioning" in stages
    index = ContextIndex.open(tmp_path / "index")
    shares = []
    for query in vectors[2000:]:
        rows = index.rows(query, 2, 10)
        exact = index.rows(query, 2, 10, exact=True)
        truth = np.sort(vectors[:2000] @ query)[::-1][:10]
        np.testing.assert_allclose(exact.cosines, truth, atol=1e-5)
        shares.append(np.mean(rows.cosines >= truth[-1] - 1e-5))
        found = index.nearest(query, 2, 3)
        assert found[0].cosine == pytest.approx(truth[0], abs=1e-5)
        assert len({near.sentence.tokens[0] for near in found}) == 3
    assert np.mean(shares) >= 0.9
    assert (
        len(index.nearest(vectors[2000], 2, 200)) == 200
    )  # more sentences than the partitions that are read hold


def test_a_build_that_fails_leaves_nothing(tmp_path, elmo, corpus):
    def stop(now):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ContextIndex.build(elmo, [corpus], tmp_path / "index", on_progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_an_index_is_replaced_only_on_request_and_only_by_a_whole_one(tmp_path, elmo, corpus):
    target = tmp_path / "index"
    ContextIndex.build(elmo, [corpus], target, limit=5)
    with pytest.raises(ValueError, match="exists already"):
        ContextIndex.build(elmo, [corpus], target)
    (tmp_path / "empty.txt").write_text("\n. 12\n")
    with pytest.raises(ValueError, match="expected text with words"):
        ContextIndex.build(elmo, [tmp_path / "empty.txt"], target, overwrite=True)
    assert ContextIndex.open(target, elmo).facts.vectors == 5
    assert ContextIndex.build(elmo, [corpus], target, overwrite=True).facts.vectors > 5
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match="only an index is overwritten"):
        ContextIndex.build(elmo, [corpus], tmp_path / "photos", overwrite=True)


def test_another_model_or_tokenizer_is_refused(tmp_path, elmo, corpus):
    ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=[1])
    with pytest.raises(ValueError, match="another model"):
        ContextIndex.open(tmp_path / "index", make_elmo(small_config(cells=20)))
    with pytest.raises(ValueError, match="tokenizer 'whitespace'"):
        ContextIndex.open(tmp_path / "index", make_elmo(tokenizer="words"))


def test_one_call_opens_the_model_as_the_index_was_made(tmp_path, model_folder, corpus):
    made = ContextIndex.build(model_folder, [corpus], tmp_path / "index", which_layers=[1, 2], tokenizer="words")
    elmo = make_elmo(tokenizer="words")
    query = read_marked(elmo, "They made a [play], didn't they?")  # the model's own tokenizer reads it otherwise
    found = search_index(model_folder, tmp_path / "index", "They made a [play], didn't they?", most=3)
    assert (found.query, found.layer) == (query, 2)
    assert found.contexts == made.search(elmo, query, 2, 3)
    assert search_index(elmo, made, "They made a [play], didn't they?", layer=1, most=3, exact=True).layer == 1
    with pytest.raises(ValueError, match="tokenizer 'words'"):
        search_index(make_elmo(), made, "a [play]")
    with pytest.raises(ValueError, match="an open model has its own"):
        ContextIndex.build(make_elmo(), [corpus], tmp_path / "other", tokenizer="words")


def test_an_index_that_version_0_1_0_wrote_is_opened(tmp_path, elmo, corpus):
    made = ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=[1, 2])
    path = tmp_path / "index" / "index.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    facts = table["facts"]
    assert facts["layers"] == [1, 2]
    assert "which_layers" not in facts
    tokenizer = facts.pop("tokenizer")
    old = {"tokeniser": {"name": tokenizer["name"], "normalise": tokenizer["normalize"]}, **facts}
    table = {**table, "facts": old}
    path.write_text(json.dumps({**table, "sha256": config_digest(table)}), encoding="utf-8")
    assert ContextIndex.open(tmp_path / "index", elmo).facts == made.facts


def test_what_cannot_be_is_refused(tmp_path, elmo, corpus):
    for which_layers in ([3], [-1], []):
        with pytest.raises(ValueError, match="layers 0 to 2"):
            ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=which_layers)
    with pytest.raises(ValueError, match="1 or more"):
        ContextIndex.build(elmo, [corpus], tmp_path / "index", limit=0)
    with pytest.raises(ValueError, match="no file or folder"):
        ContextIndex.build(elmo, [tmp_path / "no.txt"], tmp_path / "index")
    index = ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=[1])
    query = read_marked(elmo, "a [play]")
    with pytest.raises(ValueError, match="layer 1, found layer 2"):
        index.search(elmo, query, 2)
    with pytest.raises(ValueError, match="top: expected 1 or more"):
        index.search(elmo, query, 1, 0)
    with pytest.raises(ValueError, match="vector of 16 numbers"):
        index.rows(np.zeros(3), 1, 1)


def test_lines_that_are_not_utf8(tmp_path, elmo):
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"a good line here\nb\xffd line\nlast one\n")
    with pytest.raises(ValueError, match="line 2: not valid UTF-8"):
        ContextIndex.build(elmo, [broken], tmp_path / "index")
    assert not (tmp_path / "index").exists()
    assert ContextIndex.build(elmo, [broken], tmp_path / "skip", on_bad_line="skip").facts.sentences == 2
    assert ContextIndex.build(elmo, [broken], tmp_path / "replace", on_bad_line="replace").facts.sentences == 3


def test_a_folder_that_is_not_whole_is_refused(tmp_path, elmo, corpus):
    folder = tmp_path / "index"
    with pytest.raises(ValueError, match="not an index"):
        ContextIndex.open(folder)
    ContextIndex.build(elmo, [corpus], folder, which_layers=[1])
    data = next(folder.glob("tokens.lance/data/*"))
    content = data.read_bytes()
    data.write_bytes(content[:-10])
    with pytest.raises(ValueError, match=r"expected .* bytes, found"):
        ContextIndex.open(folder, elmo)
    data.write_bytes(b"\0" * len(content))
    with pytest.raises(ValueError, match="build it again"):
        ContextIndex.open(folder, elmo).search(elmo, read_marked(elmo, "a [play]"), 1)
    data.unlink()
    with pytest.raises(ValueError, match="missing"):
        ContextIndex.open(folder, elmo)
    facts = (folder / "index.json").read_text()
    (folder / "index.json").write_text(facts.replace('"vectors": ', '"vectors": 1'))
    with pytest.raises(ValueError, match="changed or damaged"):
        ContextIndex.open(folder, elmo)
    (folder / "index.json").write_text(facts[:20])
    with pytest.raises(ValueError, match="not valid JSON"):
        ContextIndex.open(folder, elmo)
    (folder / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="version"):
        ContextIndex.open(folder, elmo)


def test_without_lancedb_the_extra_is_named(tmp_path, elmo, corpus, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.split(".")[0] == "lancedb":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"pip install 'elmokit\[index\]'"):
        ContextIndex.build(elmo, [corpus], tmp_path / "index")


def test_progress_counts_vectors(elmo, corpus):
    reports = []
    count = sum(len(context.places) for context in read_contexts(elmo, [corpus], [1], on_progress=reports.append))
    assert reports[-1] == Progress("embedding", count, count)


@pytest.fixture
def command():
    app = typer.Typer()
    app.add_typer(index_app, name="index")

    def run(*arguments):
        return CliRunner().invoke(app, ["index", *map(str, arguments)])

    return run


def test_the_commands(tmp_path, command, model_folder, corpus):
    folder = tmp_path / "index"
    built = command("build", corpus, "-o", folder, "-m", model_folder, "--layers", "1,2", "--tokenizer", "words")
    assert built.exit_code == 0, built.output
    assert "vectors of layer 1, 2; exact search" in built.stderr
    sentence = "They made a [play] on the grounder ."
    shown = command("search", folder, sentence, "-m", model_folder, "--top", 3)
    assert shown.exit_code == 0, shown.output
    assert "layer 2" in shown.stdout
    printed = command(
        "search", folder, sentence, "-m", model_folder, "--layer", 1, "--top", 3, "--exact", "--json"
    )
    result = json.loads(printed.stdout)
    assert (result["word"], result["layer"], len(result["contexts"])) == ("play", 1, 3)
    for context in result["contexts"]:
        assert context["tokens"][context["place"]] == context["word"]
        assert context["sentence"] != sentence.replace("[", "").replace("]", "")


def test_the_commands_refuse(tmp_path, command, model_folder, corpus):
    wrong = command("build", corpus, "-o", tmp_path / "index", "-m", model_folder, "--layers", "one")
    assert "expected all or numbers" in str(wrong.exception)
    none = command("search", tmp_path / "index", "a [play]", "-m", model_folder)
    assert isinstance(none.exception, ValueError)
    assert "not an index" in str(none.exception)


def test_index_build_on_a_full_disk_is_an_os_error(tmp_path, corpus):
    """LanceDB only writes of it. No file may be larger than 4 kB here, which is as good as a full disk."""
    make_elmo(small_config()).save(tmp_path / "model")
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from elmokit.analysis.contexts.index import ContextIndex\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: ContextIndex.build(sys.argv[1], [sys.argv[2]], sys.argv[3])\n"
        "except OSError as error: print(error.errno, error.filename)\n"
    )
    arguments = [tmp_path / "model", corpus, tmp_path / "index"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.stdout.split() == [str(errno.EFBIG), str(tmp_path / "index")], done.stderr
    assert not list(tmp_path.glob("*index*"))


def test_the_index_keeps_its_log_lines_to_itself():
    """LanceDB reads the variable when it is imported, so a fresh process must see it set by then."""
    code = (
        "import os; from elmokit.analysis.contexts.index_files import lancedb_module; "
        "lancedb_module(); print(os.environ['LANCEDB_LOG'])"
    )
    for given, expected in ((None, "error"), ("info", "info")):
        environment = {key: value for key, value in os.environ.items() if key != "LANCEDB_LOG"}
        environment |= {"LANCEDB_LOG": given} if given else {}
        line = [sys.executable, "-c", code]
        assert subprocess.run(line, env=environment, capture_output=True, text=True).stdout.strip() == expected

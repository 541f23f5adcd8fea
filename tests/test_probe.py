"""Tags, texts and pairs: readers, baselines, and models that know what they should; then the commands."""

from __future__ import annotations

import inspect
import json
import lzma
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from elmokit.analysis.probes.classification import probe_text, read_labelled
from elmokit.analysis.probes.pairs import correct_answers, probe_pairs, read_pairs, told_apart
from elmokit.analysis.probes.tagging import Tagged, majority_accuracy, probe_tags, read_tagged
from elmokit.analysis.sample import sample
from elmokit.embed.arrays import token_vectors
from elmokit.text.columns import Columns
from helpers.senses import Neighbours, write

CONLLU = """# sent_id = 1
# text = Do n't run\t!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t0\t_\t_\t_
2\tn't\tnot\tPART\tRB\t_\t0\t_\t_\t_
2.1\tyou\tyou\tPRON\tPRP\t_\t_\t_\t_\t_
3\trun\trun\tVERB\tVB\t_\t0\t_\t_\t_

1\t10 000\t10000\tNUM\tCD\t_\t0\t_\t_\t_
"""


def test_conllu_words_only(tmp_path):
    path = write(tmp_path / "a.conllu", CONLLU)
    expected = [Tagged(["Do", "n't", "run"], ["AUX", "PART", "VERB"]), Tagged(["10 000"], ["NUM"])]
    assert read_tagged(path) == expected
    assert read_tagged(path, "xpos")[0].tags == ["VB", "RB", "VB"]
    assert read_tagged(path, 3)[0].tags == ["do", "not", "run"]
    (tmp_path / "a.conllu.xz").write_bytes(lzma.compress(CONLLU.encode()))
    assert read_tagged(tmp_path / "a.conllu.xz") == expected


def test_two_columns_with_hashtags(tmp_path):
    path = write(tmp_path / "a.conll", "#ner\tO\nRedondo\tB-loc\r\n\n\n# a comment\nStop\tO")
    assert read_tagged(path, "2") == [Tagged(["#ner", "Redondo"], ["O", "B-loc"]), Tagged(["Stop"], ["O"])]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", "upos", "the file is empty"),
        ("# only a comment\n", "upos", "the file is empty"),
        ("1-2\tDon't" + "\t_" * 8 + "\n", "upos", "found none"),
        (CONLLU, "lemma", "expected upos, xpos or a number from 1, found 'lemma'"),
        (CONLLU, 11, "column 11 of the tags is not there: the file has 10"),
        (CONLLU, 2, "column 2 holds the words"),
        (CONLLU + "2\tx\tNOUN\n", "upos", r"line 10: expected CoNLL-U's 10 columns.*found 3"),
        ("a\tO\nb\tO\tX\n", 2, r"line 2: expected 2 columns, as in line 1.*found 3"),
        ("a\tO\n\tO\n", 2, "line 2: expected a word and a tag, found an empty field"),
        ("a\tO\n", "upos", "upos is a column of CoNLL-U.*found 2 columns: give .* number"),
        ("a O\n", 2, "without a tab"),
    ],
)
def test_tagged_files_that_cannot_be_read(tmp_path, text, column, message):
    with pytest.raises(ValueError, match=message):
        read_tagged(write(tmp_path / "a", text), column)


def test_majority_baseline():
    train = [Tagged(["a", "a", "a", "b"], ["X", "Y", "Y", "X"]), Tagged(["c", "d"], ["X", "X"])]
    dev = [Tagged(["a", "b", "new", "new", "a"], ["Y", "X", "X", "Y", "X"])]
    assert majority_accuracy(train, dev) == 3 / 5


def tagged_by(rule, sentences: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(sentences):
        words = [f"w{n}" for n in rng.integers(0, 8, size=6)]
        lines += [f"{word}\t{rule(before, word)}" for before, word in zip(["<S>", *words], words)]
        lines.append("")
    return "\n".join(lines)


def test_the_layer_that_knows_is_found(tmp_path):
    """Tags depend on the token before: layer 1 has them, layer 0 and static vectors cannot."""
    rule = lambda before, word: "ODD" if before[-1] in "1357" else "EVEN"  # noqa: E731
    train = write(tmp_path / "train", tagged_by(rule, 200, 0))
    dev = write(tmp_path / "dev", tagged_by(rule, 50, 1) + "\n\nW3\tEVEN\nnew\tUNSEEN\n")
    glove = write(tmp_path / "glove.txt", "".join(f"w{i} {i} {i % 2} {i % 3}\n" for i in range(7)))
    stages = []
    result = probe_tags(
        Neighbours(), train, dev, 2, vectors=glove, on_progress=lambda now: stages.append((now.stage, now.done))
    )
    words = Counter(line.split("\t")[0] for line in dev.read_text().split("\n") if line)
    assert result.by_layer[1] == 301 / 302  # all but the tag that training does not have
    assert result.by_layer[0] < 0.7
    assert result.by_layer[0] < result.mean
    assert result.vectors is not None
    assert result.vectors < 0.7
    assert result.without_vector == (words["w7"] + words["new"]) / 302  # W3 is found in lower case
    assert result.unknown == 2 / 302
    assert (result.tags, result.train_tokens, result.dev_tokens) == (2, 1200, 302)
    assert stages[0] == ("embedding train", 0)
    assert stages[-1] == ("fitting", 4)
    assert result == probe_tags(Neighbours(), train, dev, 2, vectors=glove)
    limited = probe_tags(Neighbours(), train, dev, 2, limit=20, seed=3)
    assert (limited.train_sentences, limited.dev_tokens, limited.vectors) == (20, 302, None)


def test_one_tag_alone_is_nothing_to_learn(tmp_path):
    path = write(tmp_path / "a", "a\tO\nb\tO\n")
    with pytest.raises(ValueError, match=r"two different tags or more in column 2, found \['O'\]"):
        probe_tags(Neighbours(), path, path, 2)


def test_token_vectors_are_the_models(elmo):
    sentences = [["He", "sat"], ["밥을"]]
    expected = np.concatenate(elmo.embed(sentences), axis=1)
    np.testing.assert_allclose(token_vectors(elmo, sentences), expected, atol=2e-3, rtol=1e-3)


def test_sample_is_the_seeds_in_order():
    assert sample("abc", None, 0) == sample("abc", 5, 0) == ["a", "b", "c"]
    first = sample(range(100), 10, 1)
    assert first == sorted(first) == sample(range(100), 10, 1) != sample(range(100), 10, 2)
    with pytest.raises(ValueError, match="limit: expected 1 or more"):
        sample("abc", 0, 0)


def reviews(examples: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(examples):
        label = int(rng.integers(2))
        words = [f"w{n}" for n in rng.integers(0, 6, size=3)] + [["bad", "good"][label]]
        rows.append(f"{i}\t{' '.join(words)}\t{label}")
    return "id\tdocument\tlabel\n" + "\n".join(rows) + "\n"


def test_text_probe(tmp_path):
    train, dev = (write(tmp_path / name, reviews(n, n)) for name, n in (("train", 300), ("dev", 100)))
    result = probe_text(Neighbours(), train, dev, limit=250)
    assert result.by_layer[0] == result.concatenated == 1.0
    assert result.by_layer[1] < 0.75  # the last word is before none
    assert (result.classes, result.train_examples, result.dev_examples) == (2, 250, 100)
    labels = [line.split("\t")[2] for line in dev.read_text().splitlines()[1:]]
    assert result.baseline in {labels.count("0") / 100, labels.count("1") / 100}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found none"),
        ("id\tdocument\tlabel\n", "found no rows"),
        ("id\tdocuments\tlabel\n1\ta\t0\n", "not obvious: give it by --text-column .*'documents'"),
        ("id\tdocument\tlabel\n1\ta b\n", r"row 1 \(line 2\): expected 3 columns, as in the header, found 2"),
        ("id\tdocument\tlabel\n1\ta\t\n", r"expected a label in 'label', found none in row 1 \(line 2\)"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_labelled(write(tmp_path / "a", text))


def test_texts_by_other_columns_and_empty_ones(tmp_path):
    path = write(tmp_path / "a", 'class\tsentence\nx\t"a\ny\t\n')
    assert read_labelled(path, Columns(("sentence",), "class")) == [('"a', "x"), ("", "y")]
    assert probe_text(Neighbours(), path, path, text_column="sentence", label_column="class").classes == 2


PAIRS = [
    {
        "word": "bank",
        "senses": [
            {"gloss": "river", "contexts": ["river [bank] here", "the river [bank]", "river [bank] ."]},
            {"gloss": "money", "contexts": ["money [bank]", "a money [bank] there"]},
        ],
    },
    {
        "word": "mixed",
        "senses": [
            {"gloss": "1", "contexts": ["a [x]", "b [x]"]},
            {"gloss": "2", "contexts": ["a [x] .", "b [x] ."]},
        ],
    },
]


def test_pairs_are_told_apart_by_context_alone(tmp_path):
    result = probe_pairs(Neighbours(), write(tmp_path / "p.json", json.dumps(PAIRS)))
    bank, mixed = result.words
    assert bank.by_layer == (0.5, 1.0)
    assert bank.mean == 1.0
    assert (bank.questions, mixed.questions, result.questions) == (5, 4, 9)
    assert mixed.by_layer == (0.5, 0.0)  # the like neighbour is always in the other sense
    assert result.by_layer == (0.5, 5 / 9)
    assert (bank.margins[1] > 0, mixed.margins[1] > 0, bank.margins[0]) == (True, False, pytest.approx(0))


def test_pairs_are_shown_best_first_and_worst_last_with_their_glosses(tmp_path):
    result = probe_pairs(Neighbours(), write(tmp_path / "p.json", json.dumps(PAIRS[::-1])))
    assert [score.word for score in result.words] == [pair["word"] for pair in PAIRS[::-1]]
    assert [score.word for score in result.best_first()] == [pair["word"] for pair in PAIRS]
    rows = result.exhibit().rows[2:]
    glosses = [" / ".join(sense["gloss"] for sense in pair["senses"]) for pair in PAIRS]
    assert [row[:2] for row in rows] == [(pair["word"], gloss) for pair, gloss in zip(PAIRS, glosses)]
    equal = [replace(result.words[0], word=word, mean=0.5, margin=m) for word, m in (("a", 0.1), ("b", 0.2))]
    assert [score.word for score in replace(result, words=tuple(equal)).best_first()] == ["b", "a"]


def test_words_told_apart_by_a_plain_computation():
    vectors = np.random.default_rng(5).normal(size=(5, 2, 4)).astype(np.float32)
    found = told_apart(vectors, 3)
    for layer, here in enumerate([vectors[:, 0], vectors[:, 1], vectors.mean(axis=1)]):
        unit = here / np.linalg.norm(here, axis=1, keepdims=True)
        within = [unit[i] @ unit[j] for i in range(5) for j in range(i) if (i < 3) == (j < 3)]
        between = [unit[i] @ unit[j] for i in range(3) for j in (3, 4)]
        assert found[layer] == float(np.mean(within) > np.mean(between))
    assert told_apart(np.ones((4, 1, 3), dtype=np.float32), 2).tolist() == [0.5, 0.5]


def test_correct_answers_by_a_plain_computation():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(7, 2, 4)).astype(np.float32)
    found = correct_answers(vectors, 3)
    layers = [vectors[:, 0], vectors[:, 1], vectors.mean(axis=1)]
    for layer, v in enumerate(layers):
        cosine = lambda i, j, v=v: v[i] @ v[j] / np.sqrt((v[i] @ v[i]) * (v[j] @ v[j]))  # noqa: E731
        for i in range(7):
            groups = [range(3), range(3, 7)]
            own, other = groups if i < 3 else groups[::-1]
            near = np.mean([cosine(i, j) for j in own if j != i])
            far = np.mean([cosine(i, j) for j in other])
            assert found[layer, i] == float(near > far)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.pop("word"), "entry 1: expected"),
        (lambda e: e["senses"].pop(), r"entry 1 \('bank'\): expected exactly two senses, found 1"),
        (lambda e: e.pop("senses"), "exactly two senses, found none"),
        (lambda e: e["senses"][1].pop("gloss"), "expected a gloss"),
        (lambda e: e["senses"][1]["contexts"].pop(), "two contexts or more per sense, found 1"),
        (lambda e: e["senses"][1].update(contexts="a [bank]"), "contexts"),
        (lambda e: e["senses"][1]["contexts"].append("no mark"), r"entry 1 \('bank'\): expected one word in"),
        (lambda e: e["senses"][1]["contexts"].append("two [banks]"), "found 'bank' and 'banks': else"),
        (lambda e: e["senses"][1]["contexts"].append("[Bank] !"), "'Bank' .they differ in case only"),
    ],
)
def test_pairs_that_cannot_be_used(tmp_path, change, message):
    entries = json.loads(json.dumps(PAIRS))
    change(entries[0])
    with pytest.raises(ValueError, match=message):
        probe_pairs(Neighbours(), write(tmp_path / "p.json", json.dumps(entries)))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1", '{"a": 1}'])
def test_no_list_of_pairs(tmp_path, text):
    with pytest.raises(ValueError, match=r"p\.json.*(not JSON|expected a JSON list)"):
        read_pairs(write(tmp_path / "p.json", text))


def test_commands_for_tags_texts_and_pairs(elmo_command, model_folder, tmp_path):
    write(tmp_path / "a.conllu", CONLLU)
    write(tmp_path / "glove.txt", "run 1 2\ndo 2 3\n")
    write(tmp_path / "a.tsv", reviews(20, 0))
    write(tmp_path / "p.json", json.dumps(PAIRS))
    model = ("-m", model_folder)
    code, out, err = elmo_command("probe", "pos", "a.conllu", "a.conllu", *model, "--vectors", "glove.txt")
    assert code == 0, err
    for row in ("layer 0 (context-free)", "layer 2", "mean of the layers", "static word", "most frequent tag"):
        assert row in out
    code, out, _ = elmo_command(
        "probe", "tags", "a.conllu", "a.conllu", *model, "--column", "xpos", "--limit", "2", "--json"
    )
    facts = json.loads(out)
    assert (facts["column"], facts["train_sentences"], len(facts["by_layer"])) == ("xpos", 2, 3)
    code, out, _ = elmo_command("probe", "text", "a.tsv", "a.tsv", *model, "--json", "--seed", "1", "--limit", "9")
    assert json.loads(out)["train_examples"] == 9
    assert "side by side" in elmo_command("probe", "text", "a.tsv", "a.tsv", *model, "--threads", "1")[1]
    code, out, _ = elmo_command("probe", "pairs", "p.json", *model, "--json")
    assert json.loads(out)["by_layer"][0] == 0.5
    assert "bank" in elmo_command("probe", "pairs", "p.json", *model)[1]


def test_where_to_save_is_looked_at_before_the_work(elmo_command, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = elmo_command("probe", "pairs", "en", "-m", tmp_path / "no-model", "--save", tmp_path / "file")
    assert code == 1
    assert err.strip() == f"error: {tmp_path / 'file'}: expected a folder to write to, found a file in its place"


def test_errors_are_one_line_and_help_has_examples(elmo_command, model_folder):
    code, _, err = elmo_command("probe", "pos", "none.conllu", "none.conllu", "-m", model_folder)
    assert code == 1
    assert err.strip().splitlines()[-1] == "error: no file none.conllu"
    for command in ("pos", "tags", "wsd", "text", "pairs"):
        code, out, _ = elmo_command("probe", command, "--help")
        assert code == 0
        assert f"elmo probe {command} " in out.split("Example")[1]


def test_the_commands_have_the_librarys_penalty():
    from elmokit.analysis.probes.linear import L2
    from elmokit.cli.probe import pos, tags, text

    assert {inspect.signature(command).parameters["l2"].default for command in (pos, tags, text)} == {L2}

"""Word senses: the framework's files, the scorer and back-off by a plain computation, a model that knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.analysis.probes.sense_corpus import Instance, read_senses, read_wordnet_index
from elmokit.analysis.probes.senses import Score, SenseProbe, probe_senses, score
from helpers.senses import FALL, MONEY, RIVER, Neighbours, bank, corpus, write

SHARED = Path(__file__).parent.parent.parent / "shared" / "data" / "wsd"
INDEX = f"""{RIVER} 09213565 1 25
{MONEY} 08420278 2 20
bank%2:40:00:: 02343595 1 2
new_york%1:15:00:: 09117351 1 5
odd%5:00:00:strange:00 00968010 2 1
odd%3:00:00:: 00968010 1 1
"""


@pytest.fixture
def train(tmp_path):
    sentences = [bank("river", RIVER), bank("money", MONEY), bank("cash", MONEY), [("no",), ("instance",)]]
    return corpus(tmp_path, "train", [*sentences, [("leaves",), ("fell", "fall", "VERB", FALL)]], ".xz")


@pytest.fixture
def test_set(tmp_path):
    return corpus(
        tmp_path,
        "test",
        [
            bank("river", RIVER),
            bank("money", MONEY),
            bank("cash", RIVER, MONEY),  # either is correct
            [("I",), ("bank", "Bank", "VERB", "bank%2:40:00::")],  # another part of speech: not in training
            [("New York", "New York", "NOUN", "new_york%1:15:00::"), ("fell", "fall", "VERB", "fall%2:30:00::")],
            [("zzz", "zzz", "NOUN", "zzz%1:00:00::")],  # nobody knows it
        ],
    )


def test_the_framework_is_read(tmp_path):
    path = corpus(tmp_path, "c", [[("R&amp;D",), ("New York", "New York", "NOUN", "new_york%1:15:00::"), (" ",)]])
    found = read_senses(path)
    assert found.name == "c"
    assert found.sentences[0].tokens == ["R&D", "New", "York"]
    assert found.sentences[0].instances == [Instance("s0.t1", "new_york", "NOUN", 1, 3)]
    assert found.keys == {"s0.t1": ["new_york%1:15:00::"]}


def test_first_senses(tmp_path):
    first = read_wordnet_index(write(tmp_path / "index.sense", INDEX))
    assert first == {
        ("bank", "NOUN"): RIVER,
        ("bank", "VERB"): "bank%2:40:00::",
        ("new_york", "NOUN"): "new_york%1:15:00::",
        ("odd", "ADJ"): "odd%3:00:00::",  # satellites are numbered with the other adjectives
    }


def test_context_tells_senses_apart_and_the_rest_falls_back(train, test_set, tmp_path):
    index = write(tmp_path / "index.sense", INDEX)
    (result,) = probe_senses(Neighbours(), train, [test_set], index=index).tests
    # Seven instances, one of which nobody answers; "fell" has one sense in training, another in the test.
    f1 = lambda correct: 2 * (correct / 6) * (correct / 7) / (correct / 6 + correct / 7)  # noqa: E731
    layer0, layer1 = result.by_layer
    assert layer1 == Score(5 / 6, 5 / 7, pytest.approx(f1(5)))
    assert layer0 == Score(4 / 6, 4 / 7, pytest.approx(f1(4)))  # all senses alike: the frequent one, money
    assert result.mean.f1 == pytest.approx(f1(5))
    assert result.most_frequent == layer0
    assert result.first_sense == Score(4 / 5, 4 / 7, pytest.approx(2 * 0.8 * (4 / 7) / (0.8 + 4 / 7)))
    assert (result.instances, result.unseen, result.senses) == (7, 3, 3)
    assert (result.train_sentences, result.train_instances) == (4, 4)

    (alone,) = probe_senses(Neighbours(), train, [test_set]).tests
    assert alone.by_layer[1] == Score(3 / 4, 3 / 7, pytest.approx(2 * 0.75 * (3 / 7) / (0.75 + 3 / 7)))
    assert alone.first_sense is None
    (one,) = probe_senses(Neighbours(), train, [test_set], limit=1, seed=1).tests
    assert one.train_sentences == one.train_instances == 1


def test_one_call_for_several_test_sets(train, test_set, tmp_path):
    other = corpus(tmp_path, "other", [bank("river", RIVER)])
    told = []
    result = probe_senses(Neighbours(), train, [test_set, other], on_progress=told.append)
    assert [test.test for test in result.tests] == ["test", "other"]
    assert result.tests[:1] == probe_senses(Neighbours(), train, [test_set]).tests
    assert result == probe_senses(Neighbours(), read_senses(train), [read_senses(test_set), other])
    assert [now.stage for now in told if now.done == now.total] == [
        "embedding train", "embedding test", "embedding other"
    ]  # fmt: skip
    facts = result.to_dict()["tests"][1]
    assert (facts["test"], facts["by_layer"][1]) == ("other", {"precision": 1.0, "recall": 1.0, "f1": 1.0})
    assert json.loads(json.dumps(facts)) == facts
    for none in ([], test_set, read_senses(test_set)):
        with pytest.raises(ValueError, match="expected a list of one test set or more"):
            probe_senses(Neighbours(), train, none)


def test_nearest_sense_by_a_plain_computation(tmp_path, elmo):
    rng = np.random.default_rng(0)
    words, senses = "river money steep big old new".split(), [f"bank%1:0{i}:00::" for i in range(4)]

    def some(count):
        return [
            [
                (words[rng.integers(6)],),
                (words[rng.integers(6)],),
                ("bank", "bank", "NOUN", senses[rng.integers(4)]),
            ]
            for _ in range(count)
        ]

    paths = [corpus(tmp_path, "train", some(40)), corpus(tmp_path, "test", some(30))]
    train, test = map(read_senses, paths)
    result = SenseProbe(elmo, train).evaluate(test)
    occurrences = [
        [(elmo.embed([s.tokens])[0][:, 2], s.instances[0].id) for s in c.sentences] for c in (train, test)
    ]
    for layer in range(elmo.layers):
        means = {
            sense: np.mean([v[layer] for v, key in occurrences[0] if train.keys[key] == [sense]], axis=0)
            for sense in senses
        }
        correct = 0
        for vectors, key in occurrences[1]:
            v = vectors[layer]
            cosine = {s: v @ m / np.linalg.norm(v) / np.linalg.norm(m) for s, m in means.items()}
            correct += test.keys[key] == [max(cosine, key=cosine.__getitem__)]
        if layer:  # layer 0 has four equal vectors
            assert result.by_layer[layer].f1 == pytest.approx(correct / 30)
    assert result.by_layer[0] == result.most_frequent


def test_the_score_of_nothing_and_of_everything():
    keys = {"1": ["a", "b"], "2": ["c"]}
    assert score({}, keys) == Score(0, 0, 0)
    assert score({"1": "x"}, keys) == Score(0, 0, 0)
    assert score({"1": "b", "2": "c"}, keys) == Score(1, 1, 1)
    assert score({"1": "b"}, keys) == Score(1, 0.5, pytest.approx(2 / 3))


GOOD = '<corpus><text><sentence><instance id="a" lemma="x" pos="NOUN">x</instance></sentence></text></corpus>'


@pytest.mark.parametrize(
    ("xml", "keys", "message"),
    [
        ("", "", r"line 1: not well-formed XML \(no element found\)"),
        (GOOD[:-9], "a x%1:00:00::", "not well-formed XML"),
        (GOOD.replace("</instance>", ""), "a x%1:00:00::", "mismatched tag"),
        ("<corpus/>", "", "expected sentences with <instance> elements, found none"),
        (GOOD, "", "found none for 1 of 1, such as a"),
        (GOOD, "b x%1:00:00::", "such as a"),
        (GOOD, "a x%1:00:00::\nb x%1:00:00::", "expected each of the 2 instances.*found 1; b is missing"),
        (GOOD, "a\n", "line 1: expected a new instance and its sense keys"),
        (GOOD, "a x%1:00:00::\na x%1:00:00::", "line 2: expected a new instance"),
        (GOOD, "a x", "sense keys, found 'a x'"),
        (GOOD.replace(' lemma="x"', ""), "a x%1:00:00::", "found no lemma"),
        (GOOD.replace(">x<", "> <"), "a x%1:00:00::", "the instance a has no text"),
        (GOOD.replace("<sentence>", "").replace("</sentence>", ""), "", "<instance> outside a <sentence>"),
        ('<!DOCTYPE c [<!ENTITY e "x">]>' + GOOD, "a x%1:00:00::", "declares the entity 'e'"),
        ('<!DOCTYPE c [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + GOOD, "a x%1:00:00::", "the entity 'e'"),
        (GOOD.replace(">x<", ">&e;<"), "a x%1:00:00::", "undefined entity"),
    ],
)
def test_damaged_files(tmp_path, xml, keys, message):
    path = write(tmp_path / "a.data.xml", xml)
    write(tmp_path / "a.gold.key.txt", keys)
    with pytest.raises(ValueError, match=message):
        read_senses(path)


def test_files_that_are_not_there(tmp_path):
    path = write(tmp_path / "a.data.xml", GOOD)
    with pytest.raises(ValueError, match=r"no a\.gold\.key\.txt beside it"):
        read_senses(path)
    with pytest.raises(ValueError, match=r"ends in \.data\.xml"):
        read_senses(write(tmp_path / "b.xml", GOOD))
    keys = write(tmp_path / "keys", "a x%1:00:00::\n")
    assert read_senses(tmp_path / "b.xml", keys).keys == {"a": ["x%1:00:00::"]}


@pytest.mark.parametrize("text", ["", "bank 1 2 3\n", f"{RIVER} 1 1\n", f"{RIVER} 1 2 1\n"])
def test_no_index_of_wordnet(tmp_path, text):
    with pytest.raises(ValueError, match=r"expected WordNet's index\.sense"):
        read_wordnet_index(write(tmp_path / "index.sense", text))


def test_command(elmo_command, model_folder, train, test_set, tmp_path):
    write(tmp_path / "index.sense", INDEX)
    command = ("probe", "wsd", train, test_set, "-m", model_folder)
    code, out, err = elmo_command(*command, test_set, "--index", "index.sense")
    assert code == 0, err
    assert "most frequent sense in training" in out
    assert "test: 7 instances, 3 of a lemma not in training" in out
    code, out, _ = elmo_command(*command, "--limit", "2", "--json")
    (facts,) = json.loads(out)["tests"]
    assert set(facts["by_layer"][0]) == {"precision", "recall", "f1"}
    assert facts["first_sense"] is None


def test_the_real_files():
    if not SHARED.is_dir():
        pytest.skip("the WSD data (shared/data/wsd beside the repository) is not here")
    test = read_senses(SHARED / "semeval2007.data.xml")
    assert len(test.keys) == 455
    first = read_wordnet_index(SHARED / "index.sense.xz")
    instances = [instance for sentence in test.sentences for instance in sentence.instances]
    predicted = {i.id: first[i.lemma, i.pos] for i in instances}
    assert score(predicted, test.keys).f1 == pytest.approx(0.552, abs=0.005)  # Raganato et al. 2017, Table 3

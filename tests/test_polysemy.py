"""One word's occurrences: where they are found, their plane by scikit-learn, their separation by counting."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from sklearn.decomposition import PCA
from typer.testing import CliRunner

from elmokit.analysis.contexts.occurrences import (
    Occurrence,
    occurrences_in_pairs,
    occurrences_in_tagged,
    occurrences_in_text,
)
from elmokit.analysis.contexts.polysemy import polysemy, principal_plane, separation, view_word
from elmokit.analysis.probes.sense_corpus import read_senses, sense_in_words
from elmokit.cli.polysemy import polysemy as polysemy_command
from elmokit.progress import Progress
from elmokit.text.tokens import make_tokenizer
from helpers.senses import FALL, MONEY, RIVER, Neighbours, bank, corpus, write

PAIRS = [
    {
        "word": "배가",
        "senses": [
            {"gloss": "탈것", "contexts": ["짐을 실은 [배가] 왔다", "큰 [배가] 떴다"]},
            {"gloss": "과일", "contexts": ["단 [배가] 난다", "물이 많은 [배가] 열렸다"]},
        ],
    }
]


@pytest.fixture
def tagged(tmp_path):
    sentences = [bank("river", RIVER), bank("river", RIVER), bank("money", MONEY), bank("money", MONEY, RIVER)]
    return corpus(tmp_path, "c", [*sentences, [("they",), ("fell", "fall", "VERB", FALL)]], ".xz")


def run(*arguments):
    app = typer.Typer()
    app.command()(polysemy_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("shape", [(20, 6), (5, 12), (3, 2), (2, 4)])
def test_the_plane_is_that_of_scikit_learn(shape):
    vectors = np.random.default_rng(0).normal(size=shape)
    points, variance = principal_plane(vectors)
    expected = PCA(2, svd_solver="full").fit(vectors)
    theirs = expected.transform(vectors)
    for column in range(1 if shape[0] == 2 else 2):  # two points have one component
        sign = np.sign((points[:, column] * theirs[:, column]).sum())
        np.testing.assert_allclose(points[:, column], sign * theirs[:, column], atol=1e-9)
    assert variance == pytest.approx(expected.explained_variance_ratio_.sum())
    again, _ = principal_plane(vectors.copy(order="F"))
    np.testing.assert_allclose(points, again, atol=1e-9)


def test_equal_vectors_are_one_point():
    vectors = np.ones((4, 3)) + 1e-8 * np.random.default_rng(0).normal(size=(4, 3))
    points, variance = principal_plane(vectors)
    assert not points.any()
    assert variance == 1
    assert principal_plane(np.zeros((2, 1)))[0].tolist() == [[0, 0], [0, 0]]
    np.testing.assert_allclose(principal_plane(np.array([[1.0], [2.0]]))[0], [[-0.5, 0], [0.5, 0]], atol=1e-12)


def test_separation_by_counting():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(2, 12, 5)).astype(np.float32)
    senses = ["a", "b", "b", None, "a", "c", "a", "b", None, "b", "a", "b"]  # c occurs once: it is not asked for
    found, chance = separation(vectors, senses)
    known = [i for i in range(12) if senses[i]]
    for layer in range(2):
        correct, asked, by_chance = 0, 0, 0.0
        for i in known:
            if senses[i] == "c":
                continue
            v = vectors[layer]
            cosine = {j: v[i] @ v[j] / np.linalg.norm(v[i]) / np.linalg.norm(v[j]) for j in known if j != i}
            correct += senses[max(cosine, key=cosine.__getitem__)] == senses[i]
            by_chance += sum(senses[j] == senses[i] for j in cosine) / len(cosine)
            asked += 1
        assert found[layer] == pytest.approx(correct / asked)
        assert chance == pytest.approx(by_chance / asked)


def test_equally_near_is_chance_and_unknown_is_none():
    found, chance = separation(np.ones((1, 5, 3), dtype=np.float32), ["a", "a", "a", "b", "b"])
    assert found == (pytest.approx(chance),)
    assert chance == pytest.approx((3 * 2 / 4 + 2 * 1 / 4) / 5)
    vectors = np.random.default_rng(0).normal(size=(1, 3, 2))
    for senses in ([None, None, None], ["a", "a", "a"], ["a", "b", "c"], [None, "a", "b"]):
        assert separation(vectors, senses) is None


def test_in_plain_text(tmp_path):
    text = "I play . We PLAY and play\n\nplays here\nan NFD e\u0301tude\nplayed\nplay last\n"
    path = write(tmp_path / "a.txt", text)
    model = Neighbours()
    found = occurrences_in_text(model, path, "Play")
    assert [(o.form, o.start) for o in found] == [("play", 1), ("play", 0)]
    assert found[0].sentence == "I [play] . We PLAY and play"
    assert [o.form for o in occurrences_in_text(model, path, "play", forms=["Plays"])] == ["play", "plays", "play"]
    assert len(occurrences_in_text(model, path, "play", limit=1)) == 1
    assert [o.start for o in occurrences_in_text(model, path, "étude")] == [2]
    assert [o.form for o in occurrences_in_text(model, path, "play", split=True)] == ["play", "PLAY", "play"]
    model.tokenizer = make_tokenizer("words")
    assert len(occurrences_in_text(model, path, "play")) == 3


def test_in_pairs(tmp_path):
    path = write(tmp_path / "p.json", json.dumps(PAIRS))
    found = occurrences_in_pairs(Neighbours(), path, "배가")
    assert [o.sense for o in found] == ["탈것", "탈것", "과일", "과일"]
    assert found[0].sentence == "짐을 실은 [배가] 왔다"
    with pytest.raises(ValueError, match="no entry for the word '배': did you mean '배가'"):
        occurrences_in_pairs(Neighbours(), path, "배")


def test_in_a_tagged_corpus(tagged):
    read = read_senses(tagged)
    found = occurrences_in_tagged(read, "Bank")
    assert [o.sense for o in found] == ["noun: object 2", "noun: object 2", "noun: group", "noun: group"]
    assert found[0] == Occurrence(["river", "bank", "."], 1, 2, "noun: object 2", RIVER)
    assert occurrences_in_tagged(read, "bank", limit=2, seed=3) == occurrences_in_tagged(
        read, "bank", limit=2, seed=3
    )
    with pytest.raises(ValueError, match="no instance of the lemma 'banks': did you mean 'bank'"):
        occurrences_in_tagged(read, "banks")
    with pytest.raises(ValueError, match="as a dictionary has it"):
        occurrences_in_tagged(read, "zzzz")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("bank%1:17:01::", "noun: object 2"),
        ("bank%1:14:00::", "noun: group"),
        ("play%1:10:01::", "noun: communication 2"),
        ("play%2:33:00::", "verb: competition"),
        ("able%5:00:00:capable:00", "adj: any, like capable"),
        ("quickly%4:02:00::", "adv: any"),
        ("worn%3:44:00::", "adj: participle"),
        ("bank%9:17:01::", "bank%9:17:01::"),
        ("bank%1:77:01::", "bank%1:77:01::"),
        ("no key", "no key"),
    ],
)
def test_a_sense_key_is_shown_in_words(key, words):
    assert sense_in_words(key) == words


def test_two_forms_without_context_are_two_points():
    two = np.random.default_rng(0).normal(size=(2, 512)).astype(np.float32)[[0, 1, 1, 0, 1, 1, 1]]
    points, variance = principal_plane(two)
    assert not points[:, 1].any()
    assert np.ptp(points[[0, 3], 0]) == pytest.approx(0, abs=1e-9)
    assert variance == pytest.approx(1)


def test_a_model_that_sees_the_word_before(tagged):
    result = view_word(Neighbours(), "bank", occurrences_in_tagged(read_senses(tagged), "bank"), source="c")
    assert result.separation == (pytest.approx(1 / 3), 1.0)
    assert result.chance == pytest.approx(1 / 3)
    assert set(result.points[0]) == {(0.0, 0.0)}
    assert result.points[1][0] == pytest.approx(result.points[1][1])
    assert result.points[1][0] != pytest.approx(result.points[1][2])
    exhibit = result.exhibit()
    assert [row[1] for row in exhibit.rows] == [pytest.approx(33.3333), 100, pytest.approx(33.3333)]
    assert "Layer 0 sees the word alone: all occurrences are one point." in exhibit.notes
    assert "Sense 1, noun: object 2 (2): river [bank] ." in exhibit.notes
    assert "Sense 2, noun: group (2): money [bank] ." in exhibit.notes
    assert exhibit.notes[-1].endswith("best at layer 1 (100.0%; layer 0 33.3%, chance 33.3%).")
    figure = exhibit.figure()
    assert [axes.get_title() for axes in figure.axes] == ["layer 0", "layer 1"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["1st component"] * 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "1  noun: object 2",
        "2  noun: group",
    ]
    colours = {tuple(drawn.get_facecolor()[0]) for drawn in figure.axes[1].collections}
    assert len(colours) == 2
    listing = result.listing()
    assert listing.rows[2][:3] == (3, "noun: group", "money [bank] .")
    assert [o["key"] for o in result.to_dict()["occurrences"]] == [RIVER, RIVER, MONEY, MONEY]
    assert len(listing.columns) == 3 + 2 * 2


def test_one_call_finds_the_occurrences(tagged, tmp_path):
    model, read = Neighbours(), read_senses(tagged)
    expected = view_word(
        model, "bank", occurrences_in_tagged(read, "bank", limit=3, seed=1), source="c.data.xml.xz, seed 1"
    )
    for source in (tagged, read):  # a file, or what was read from it
        assert polysemy(model, "bank", tagged=source, limit=3, seed=1) == expected
    pairs, text = write(tmp_path / "p.json", json.dumps(PAIRS)), write(tmp_path / "a.txt", "큰 배가\n흰 배는\n")
    told = []
    found = polysemy(model, "배가", corpus=text, senses=pairs, forms=["배는"], on_progress=told.append)
    assert [o.sense for o in found.occurrences] == ["탈것", "탈것", "과일", "과일", None, None]
    assert found.source == "a.txt and p.json"
    assert told[-1] == Progress("embedding", 6, 6)


def test_many_senses_and_none():
    model, word = Neighbours(), "w"
    many = [Occurrence([f"t{i}", word], 1, 2, f"s{i // 2}") for i in range(20)]
    exhibit = view_word(model, word, many).exhibit()
    assert "Sense 6, s5 (2): t10 [w]" in exhibit.notes
    assert "Rarer senses: 4, 8 occurrences together." in exhibit.notes
    long = [Occurrence([*"abcdefgh", word, *"ijklmnop"], 8, 9, "s")] * 2
    assert "Sense 1, s (2): … c d e f g h [w] i j k l m n …" in view_word(model, word, long).exhibit().notes
    labels = [text.get_text() for text in exhibit.figure().legends[0].get_texts()]
    assert labels == [*(f"{i + 1}  s{i}" for i in range(6)), "rarer senses"]
    none = view_word(model, "a/b $c$", [Occurrence([f"t{i}", form], 1, 2) for i, form in enumerate("xyx")])
    exhibit = none.exhibit()
    assert exhibit.name == "polysemy-a-b-c"
    assert none.separation is None
    assert "2 forms are as many points" in exhibit.notes[1]
    assert "the senses are not known" in exhibit.notes[-1]
    assert "sense not known" in exhibit.svg()
    same = view_word(model, word, [Occurrence(["t", word], 1, 2, "s")] * 2).exhibit()
    assert "have the same sense" in same.notes[-1]
    worse = [Occurrence([before, word], 1, 2, sense) for before, sense in ("xa", "xb", "ya", "yb")]
    assert "Context does not part the senses" in view_word(model, word, worse).exhibit().notes[-1]
    with pytest.raises(ValueError, match="two occurrences or more of 'w' in text, found 1"):
        view_word(model, word, many[:1], source="text")


def test_several_tokens_are_one_word(elmo):
    tokens = ["in", "New", "York", "."]
    many = [Occurrence(tokens, 1, 3), Occurrence(["New", "York", "!"], 0, 2)]
    result = view_word(elmo, "New York", many)
    assert result.occurrences[0].sentence == "in [New York] ."
    assert set(result.points[0]) == {(0.0, 0.0)}
    first, second = (elmo.embed([o.tokens])[0][:, o.start : o.end].mean(axis=1) for o in many)
    distance = np.linalg.norm(first[2] - second[2])
    assert abs(result.points[2][0][0] - result.points[2][1][0]) == pytest.approx(distance, rel=1e-4)


def test_command(model_folder, tagged, tmp_path):
    out = tmp_path / "out"
    done = run("bank", "-m", model_folder, "--tagged", tagged, "--save", out)
    assert done.exit_code == 0, done.output
    assert "nearest has the same sense" in done.stdout
    assert "chance" in done.stdout
    assert "wrote" in done.stderr
    names = {path.name for path in out.iterdir()}
    assert {f"polysemy-bank.{suffix}" for suffix in ("csv", "json", "png", "svg")} <= names
    assert {f"polysemy-bank-occurrences.{suffix}" for suffix in ("csv", "json")} <= names


def test_command_in_json_and_korean(model_folder, tmp_path):
    pairs, text = write(tmp_path / "p.json", json.dumps(PAIRS)), write(tmp_path / "a.txt", "a b\nc b\nc d\n")
    facts = json.loads(run("배가", "-m", model_folder, "--senses", pairs, "--json").stdout)
    assert facts["senses"] == {"탈것": 2, "과일": 2}
    assert len(facts["occurrences"][0]["points"]) == len(facts["separation"]) == 3
    facts = json.loads(run("b", "-m", model_folder, "--corpus", text, "--form", "d", "--json").stdout)
    assert [o["sentence"] for o in facts["occurrences"]] == ["a [b]", "c [b]", "c [d]"]
    assert facts["separation"] is None
    assert facts["occurrences"][0]["sense"] is None


def test_contexts_of_a_known_sense_among_those_of_a_text(model_folder, tmp_path):
    text = write(tmp_path / "a.txt", "큰 배가 왔다\n배가 고프다\n")
    facts = json.loads(run("배가", "-m", model_folder, "--senses", "ko", "--corpus", text, "--json").stdout)
    senses = [occurrence["sense"] for occurrence in facts["occurrences"]]
    assert senses[-2:] == [None, None]
    assert set(senses[:-2]) == {"물 위를 다니는 탈것", "과일"}
    assert facts["separation"] is not None  # of those that are known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "found none"),
        (("--tagged", "a", "--senses", "b"), "found 2"),
        (("--tagged", "a", "--form", "b"), "go with plain text (--corpus)"),
        (("--corpus", "none.txt"), "no file none.txt"),
    ],
)
def test_choices_that_do_not_fit(model_folder, arguments, message):
    assert message in str(run("bank", "-m", model_folder, *arguments).exception)


def test_help_has_examples():
    assert "elmo polysemy play --tagged" in " ".join(run("--help").stdout.split())


def test_the_bundled_sense_files():
    for name, word in (("en", "bank"), ("ko", "배가")):
        found = occurrences_in_pairs(Neighbours(), name, word)
        assert len({occurrence.sense for occurrence in found}) == 2

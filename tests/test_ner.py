"""Named entities: the files, the scores, the character features, the decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.inputs import InputConfig, Padded, TokenInputs, WordTable
from elmokit.tasks.ner.characters import CharacterFeatures
from elmokit.tasks.ner.entities import Sentence
from elmokit.tasks.ner.network import NerNetwork, NerSettings
from elmokit.tasks.ner.task import NamedEntities
from elmokit.tasks.spans import Span, bioes_may_follow, bioes_tags, spans_of, to_bio
from elmokit.tasks.task import Batch

FIXTURE = Path(__file__).parent / "tasks" / "ner.conll"
TYPES = ["loc", "per"]


def valid(tags: list[str]) -> bool:
    return all(bioes_may_follow(a, b) for a, b in zip([None, *tags], [*tags, None]))


def test_scores_in_per_cent():
    task = NamedEntities(NerSettings(), {"types": ["group", "loc", "per"]})
    tokens = "a b c d e".split()
    examples = [Sentence(tokens, [Span(0, 2, "per"), Span(3, 4, "loc")], "a:1"), Sentence(["f"], [], "a:7")]
    predictions = ["B-per I-per O B-per O".split(), ["B-loc"]]
    assert task.metrics(predictions, examples) == pytest.approx({"f1": 40.0, "precision": 100 / 3, "recall": 50.0})
    rows = {row["label"]: row for row in task.by_label(predictions, examples)}
    assert list(rows) == ["group", "loc", "per"]
    assert rows["per"] == pytest.approx(
        {"label": "per", "precision": 50.0, "recall": 100.0, "f1": 200 / 3, "count": 1}
    )
    assert rows["loc"] == {"label": "loc", "precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 1}
    assert rows["group"]["count"] == 0


def test_the_fixture_has_what_it_should():
    examples = NamedEntities.read(FIXTURE)
    assert NamedEntities.labels_of(examples) == {"types": ["location", "person", "product"]}
    assert {len(example.tokens) for example in examples} >= {1, 2, 19}
    assert [] in [example.entities for example in examples]
    assert examples[1].where == "ner.conll:9"
    assert examples[2].entities == [Span(3, 6, "product"), Span(8, 11, "location")]


def test_conll_2003_and_bilou_are_read(tmp_path):
    path = tmp_path / "eng.train"
    path.write_text(
        "-DOCSTART- -X- O O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\nJo NNP I-NP I-PER\nLi NNP I-NP I-PER\n\n"
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nUN NNP B-NP B-ORG\n"
    )
    first, second = NamedEntities.read(path)
    assert first == Sentence(["U.N.", "official", "Jo", "Li"], [(0, 1, "ORG"), (2, 4, "PER")], "eng.train:3")
    assert second.entities == [(0, 1, "ORG"), (1, 2, "ORG")]
    path.write_text("A b\tB-x\nc\u3000d\tL-x\n")  # where there are tabs, white space is part of a token
    assert NamedEntities.read(path) == [Sentence(["A b", "c\u3000d"], [Span(0, 2, "x")], "eng.train:1")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\nb\n", r"bad\.conll, line 2: expected 2 columns"),
        ("a x y O\nb x I-NP\n", r"bad\.conll, line 2: expected 4 columns, as in line 1, found 3"),
        ("a\tO\n\nb\tQ-x\n", r"bad\.conll, line 3: expected O, or B-.* found the tag 'Q-x'"),
        ("a\tO\nb\tB\n", r"bad\.conll, line 2: expected O, or B-.* found the tag 'B'"),
        ("a\tO\n\tO\n", r"bad\.conll, line 2: expected a token"),
        ("-DOCSTART- O\n\n", r"bad\.conll: expected sentences, found none"),
    ],
)
def test_files_that_are_not_right_are_refused_with_the_line(text, message, tmp_path):
    (tmp_path / "bad.conll").write_text(text)
    with pytest.raises(ValueError, match=message):
        NamedEntities.read(tmp_path / "bad.conll")


def test_types_that_training_does_not_have_are_refused():
    task = NamedEntities(NerSettings(), {"types": ["loc"]})
    with pytest.raises(ValueError, match="dev:4: the type 'per' of 'Jo Li' is not among those of training: loc"):
        task.check([Sentence(["Jo", "Li"], [Span(0, 2, "per")], "dev:4")])
    with pytest.raises(ValueError, match="expected entities to learn from, found none: from train:1 on"):
        NamedEntities.labels_of([Sentence(["a"], [], "train:1")])


@pytest.mark.parametrize("options", [{"cells": ()}, {"cells": (0,)}, {"filter_width": 2}, {"dropout": 1.0}])
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
        NerSettings(**options)


def test_character_features_are_a_convolution_and_a_maximum():
    torch.manual_seed(0)
    module = CharacterFeatures(characters=9, width=3, filters=4, filter_width=3).eval()
    sentences = [["cat", "밥", "cat"], [], ["internationalisation"]]
    found = module(sentences, 4)
    assert found.shape == (3, 4, 4)
    assert not found[1].any()
    assert not found[0, 3].any()
    assert torch.equal(found[0, 0], found[0, 2])
    for token, features in (("cat", found[0, 0]), ("밥", found[0, 1]), ("interna", found[2, 0])):
        spelled = [258, *token.encode(), 259]
        vectors = torch.stack([torch.zeros(3), *(module.embedding.weight[i + 1] for i in spelled), torch.zeros(3)])
        windows = [
            torch.einsum("fec,ce->f", module.convolution.weight, vectors[i : i + 3]) + module.convolution.bias
            for i in range(len(spelled))
        ]
        assert torch.allclose(features, torch.stack(windows).amax(dim=0).relu(), atol=1e-6)
    alone = module([["밥"]], 1)  # without the longer word beside it
    assert torch.allclose(alone[0, 0], found[0, 1], atol=1e-6)


NETWORK = NerNetwork(
    TokenInputs(WordTable(["a"]), None, InputConfig(word_width=4)), NerSettings(cells=(3, 2), filters=4), TYPES
)
SCORES = st.one_of(st.floats(-5, 5, width=32), st.floats(width=32))  # any at all, infinities and NaN among them


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.data())
def test_no_emissions_make_an_invalid_sequence(lengths, data):
    tags = len(bioes_tags(TYPES))
    size = len(lengths) * max(lengths) * tags
    scores = data.draw(st.lists(SCORES, min_size=size, max_size=size))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    emissions = torch.tensor(scores, dtype=torch.float32).view(len(lengths), max(lengths), tags)
    for path, length in zip(NETWORK.crf.best_paths(emissions, mask), lengths):
        assert len(path) == length
        assert valid([NETWORK.tags[i] for i in path])
    padded = Padded([["a"] * n for n in lengths], mask.long(), mask)
    for found, length in zip(NETWORK.decode(emissions, Batch((padded,), {}, len(lengths))), lengths):
        assert len(found) == length
        assert to_bio(spans_of(found), length) == found


def test_a_sentence_without_tokens_is_no_hindrance():
    batch = Batch((Padded([[]], torch.zeros(1, 0).long(), torch.zeros(1, 0).bool()),), {}, 1)
    assert NETWORK.decode(NETWORK(batch), batch) == [[]]


def test_it_is_shown_with_its_entities_marked():
    example = NamedEntities.example("Barack Obama visited Seoul .", str.split, "line 1")
    shown = NamedEntities.show(example, ["B-person", "I-person", "O", "B-location", "O"])
    assert shown == "[Barack Obama](person) visited [Seoul](location) ."

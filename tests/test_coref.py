"""Coreference: documents by segments, the task, and what pruning loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from elmokit.tasks.coref.antecedents import antecedent_loss
from elmokit.tasks.coref.clusters import Document
from elmokit.tasks.coref.network import CorefSettings, Scores
from elmokit.tasks.coref.task import Coreference, candidate_recall
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.text.tokens import make_tokenizer

FIXTURE = Path(__file__).parent / "tasks" / "coref.conll"
SMALL = CorefSettings(cells=5, hidden=6, feature=3, max_width=4, antecedents=4, dropout=0.0)


def model(settings: CorefSettings = SMALL, seed: int = 0) -> TaskModel:
    examples = Coreference.read(FIXTURE)
    words = sorted({token for example in examples for token in example.tokens})
    calm = InputConfig(word_width=7, word_dropout=0.0)
    return TaskModel.fresh(Coreference(settings, {}), WordTable(words), None, calm, seed)


def document(*lengths: int, speakers: list[str] | None = None) -> Document:
    names = iter(f"w{i}" for i in range(sum(lengths)))
    return Document([[next(names) for _ in range(n)] for n in lengths], [], speakers, "x:1")


# Segments


def test_sentences_of_like_lengths_are_encoded_as_all_are_together():
    network = model().network
    lengths = torch.tensor([3, 9, 1, 0, 2, 9, 4])
    mask = torch.arange(9) < lengths.unsqueeze(1)
    x = torch.randn(7, 9, network.inputs.width, requires_grad=True)
    learned = [x, *network.encoder.parameters()]
    for count in (1, 3, 7):
        there, token = x[:count], mask[:count]
        ours, right = network._states(there, token), network.encoder(there, token)
        torch.testing.assert_close(ours, right, atol=1e-5, rtol=1e-5)
        weights = torch.randn_like(right)
        gradients = (torch.autograd.grad((states * weights).sum(), learned) for states in (ours, right))
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_training_reads_a_window_and_prediction_all_by_segments():
    trained = model(replace(SMALL, train_sentences=2))
    texts = [document(3, 4, 5, 2, 6), document(4)]
    torch.manual_seed(0)
    windows = {tuple(map(len, trained.task.excerpt(texts[0]).sentences)) for _ in range(40)}
    assert windows == {(3, 4), (4, 5), (5, 2), (2, 6)}
    assert trained.task.excerpt(texts[1]) is texts[1]
    trained.network.eval()
    batch = trained.batch(texts)
    assert [tuple(padded.mask.shape) for padded in batch.sentences] == [(2, 4), (2, 5), (1, 6), (1, 4)]
    long, short = trained.network(batch)
    assert [(s.first, len(s.scores)) for s in long.segments] == [(0, 7), (7, 7), (14, 6)]
    assert [(s.first, len(s.scores)) for s in short.segments] == [(0, 4)]
    assert len(long.spans) == 3 + 3 + 2  # 0.3 of a segment's tokens, rounded up
    assert long.spans == sorted(long.spans)
    assert long.antecedents.shape == (8, 5)
    assert torch.isfinite(long.antecedents[4, 1:]).all()  # its antecedents are in the segment before


def test_a_window_has_the_documents_own_answers():
    """Those that lie in it, counted from its beginning as its spans are."""
    trained = model(replace(SMALL, train_sentences=1, kept=10.0, mention_weight=0.0))
    trained.network.train()
    text = replace(document(3, 3), clusters=[[(0, 1), (1, 2)], [(4, 5), (5, 6)]])
    for sentence, gold in ((0, {0, 1}), (1, {1, 2})):
        batch = trained.batch([text.excerpt(sentence, sentence + 1)])
        output = trained.network(batch)
        ids = torch.tensor([int(e == s + 1 and s in gold) for s, e in output[0].spans])
        assert ids.sum() == 2
        right = antecedent_loss(output[0].antecedents, ids)
        torch.testing.assert_close(trained.network.loss(output, batch), right)


def test_documents_without_mentions_of_one_token_or_of_none_are_read():
    trained = model()
    texts = [document(1), document(5), document(1, 1, 1), replace(document(), sentences=[])]
    batch = trained.batch(texts)
    trained.network.train()
    loss = trained.network.loss(trained.network(batch), batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in trained.network.parameters() if p.grad is not None)
    predictions = trained.predict(texts)
    assert predictions[0] == predictions[3] == []
    assert set(trained.task.metrics(predictions, texts)) == {"f1", "muc", "b3", "ceaf", "mention recall"}
    assert trained.predict([replace(texts[3])]) == [[]]


def test_who_speaks_makes_a_difference():
    trained = model()
    trained.network.eval()
    quiet, same, other = (
        trained.network(trained.batch([document(4, 4, speakers=speakers)]))[0].antecedents
        for speakers in (None, ["Ada"] * 8, ["Ada"] * 4 + ["Bob"] * 4)
    )
    assert not torch.allclose(quiet[1:, 1], same[1:, 1])
    assert not torch.allclose(same, other)


# The task


def test_the_batch_knows_the_gold_answers():
    examples = Coreference.read(FIXTURE)
    features = Coreference(SMALL, {}).collate([examples[0], examples[6]])
    assert features["segments"].tolist() == [1, 1]
    assert Coreference(replace(SMALL, train_sentences=2), {}).collate([examples[6]])["segments"].tolist() == [2]
    assert features["mentions"].tolist() == [
        [0, 0, 1, 1],
        [0, 11, 12, 1],
        [1, 0, 1, 1],
        [1, 7, 8, 1],
        [1, 13, 14, 1],
    ]
    assert features["speakers"].tolist() == [0] * 14 + [1] * 6 + [2] * 7 + [1] * 5
    assert "mentions" not in Coreference(SMALL, {}).collate([replace(examples[0], clusters=None)])


def test_a_line_becomes_a_document_and_its_prediction_marked_text():
    text = "Ada told her sister that she was late. The girl laughed."
    example = Coreference.example(text, make_tokenizer("words").tokens, "line 1")
    assert [len(sentence) for sentence in example.sentences] == [9, 4]
    clusters = [[[0, 1], [2, 3]], [[2, 4], [5, 6], [9, 11]]]
    assert Coreference.show(example, clusters) == (
        "[Ada]1 told [[her]1 sister]2 that [she]2 was late . [The girl]2 laughed .\n"
        "  1: Ada, her\n"
        "  2: her sister, she, The girl"
    )
    shown = Coreference(SMALL, {}).as_json(example, clusters)
    assert shown["prediction"] == clusters
    assert shown["clusters"] == [["Ada", "her"], ["her sister", "she", "The girl"]]
    with pytest.raises(ValueError, match=r"line 1: expected a line of text .* `elmo task evaluate"):
        Coreference.example("#begin document (d); part 000", str.split, "line 1")
    assert model().predict([example]) is not None


def test_the_score_is_the_mean_of_three():
    examples = Coreference.read(FIXTURE)
    task = Coreference(SMALL, {})
    gold = [[[list(span) for span in cluster] for cluster in e.clusters] for e in examples]
    assert set(task.metrics(gold, examples).values()) == {100.0}
    half = [clusters[:1] for clusters in gold]
    scores = task.metrics(half, examples)
    assert scores["f1"] == pytest.approx((scores["muc"] + scores["b3"] + scores["ceaf"]) / 3)
    assert 0 < scores["mention recall"] < 100
    assert [row["label"] for row in task.by_label(half, examples)] == ["muc", "b3", "ceaf", "mentions"]


def test_single_mentions_are_predicted_where_they_are_asked_for():
    settings = replace(SMALL, singletons=True)
    output = Scores([(0, 1), (2, 4), (5, 6)], torch.tensor([1.0, 2.0, -1.0]), torch.zeros(3, 3), [])
    assert model(settings).network.decode([output], None) == [[[[0, 1]], [[2, 4]]]]
    assert model().network.decode([output], None) == [[]]
    with pytest.raises(ValueError, match="singletons: expected a mention_weight of more than 0"):
        CorefSettings(singletons=True, mention_weight=0.0)


def test_what_pruning_and_width_lose_is_known():
    examples = Coreference.read(FIXTURE)
    words_only = model(replace(SMALL, kept=100.0, max_width=1))
    assert candidate_recall(words_only, examples) == pytest.approx(100 * 18 / 24)
    assert [*words_only.task.ceilings(words_only, examples).values()] == [pytest.approx(75)]
    assert candidate_recall(model(replace(SMALL, kept=0.01)), examples) < 50
    assert words_only.task.ceilings(words_only, [document(3, 4)]) == {}  # nothing to lose


@pytest.mark.parametrize("wrong", [{"cells": 0}, {"hidden": 0}, {"feature": 0}, {"dropout": 1.0}, {"kept": 0.0}])
def test_sizes_that_cannot_be_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        CorefSettings(**wrong)
    with pytest.raises(ValueError, match="mention_weight: expected 0 or more"):
        CorefSettings(mention_weight=-1.0)


@pytest.mark.parametrize("recipe", ["laptop", "paper"])
def test_a_batch_of_the_recipes_is_a_document(recipe):
    settings, train = Coreference.recipes[recipe]
    assert train.examples == 1
    assert settings.train_sentences <= 50

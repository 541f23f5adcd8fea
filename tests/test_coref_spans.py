"""Mentions and antecedents, as if every span and every pair were scored alone; pruning, loss, clusters."""

from __future__ import annotations

import pytest
import torch

from elmokit.tasks.coref import antecedents
from elmokit.tasks.coref.antecedents import AntecedentScorer, antecedent_loss, follow
from elmokit.tasks.coref.mentions import SpanScorer, prune

INF = float("inf")


# Spans


def test_spans_are_scored_as_if_each_were_made_alone():
    torch.manual_seed(0)
    sentence = torch.tensor([0, 0, 0, 0, 0, 1, 2, 2])
    x, states = torch.randn(8, 7), torch.randn(8, 10)
    scorer = SpanScorer(7, 10, max_width=4, hidden=6, feature=3, p=0.0)
    with torch.no_grad():
        scorer.attention.first.weight.mul_(5)
        spans = scorer(x, states, sentence)
        alpha = scorer.attention.score(states @ scorer.attention.first.weight.t())
        for n in range(8):
            for w in range(4):
                inside = n + w < 8 and sentence[n] == sentence[n + w]
                assert bool(spans.valid[n, w]) is bool(inside)
                if not inside:
                    continue
                head = alpha[n : n + w + 1].softmax(0) @ x[n : n + w + 1]
                g = torch.cat([states[n], states[n + w], head, scorer.span_width.weight[w]])
                hidden = torch.relu(scorer.mention.second(torch.relu(scorer.mention.first(g))))
                assert spans.scores[n, w] == pytest.approx(float(scorer.mention.output(hidden)), abs=1e-5)
                made = scorer.vectors(spans, torch.tensor([n]), torch.tensor([w]))[0]
                torch.testing.assert_close(made, g, atol=1e-5, rtol=1e-5)


def test_the_best_spans_are_kept_unless_they_cross():
    scores = torch.tensor([[0.1, 9.0, 0.2], [0.3, 8.0, 7.0], [5.0, 0.4, 0.0], [0.5, 0.0, 0.0]])
    valid = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)
    start, width = prune(scores, valid, 3)
    # [0, 2) is best; [1, 3) and [1, 4) cross it; then [2, 3) and [3, 4).
    assert list(zip(start.tolist(), width.tolist())) == [(0, 1), (2, 0), (3, 0)]
    start, width = prune(scores, valid, 100)
    kept = [(s, s + w + 1) for s, w in zip(start.tolist(), width.tolist())]
    assert kept == [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (3, 4)]  # [0, 3) crosses [2, 4), which is better


# Antecedents


def test_antecedents_are_scored_as_if_each_pair_were_made_alone(monkeypatch):
    torch.manual_seed(0)
    scorer = AntecedentScorer(9, most=4, hidden=6, feature=3, p=0.0)
    g, mention = torch.randn(7, 9), torch.randn(7)
    speakers = torch.tensor([1, 0, 2, 1, 1, 2, 0])
    with torch.no_grad():
        scores = scorer(g, mention, speakers)
        assert scores.shape == (7, 1 + 4)
        for i in range(7):
            assert scores[i, 0] == 0
            for back in range(1, 5):
                j = i - back
                if j < 0:
                    assert scores[i, back] == -INF
                    continue
                same = 0 if 0 in (speakers[i], speakers[j]) else 1 if speakers[i] == speakers[j] else 2
                features = scorer.distance.weight[back - 1], scorer.speaker.weight[same]
                pair = torch.cat([g[i], g[j], g[i] * g[j], *features])
                hidden = torch.relu(scorer.pair.second(torch.relu(scorer.pair.first(pair))))
                expected = float(mention[i] + mention[j] + scorer.pair.output(hidden))
                assert scores[i, back] == pytest.approx(expected, abs=1e-5)
        monkeypatch.setattr(antecedents, "CHUNK", 80)  # two rows at once
        torch.testing.assert_close(scorer(g, mention, speakers), scores)


@pytest.mark.parametrize(("chunk", "count"), [(1, 7), (80, 7), (16_000_000, 7), (80, 1), (80, 2)])
def test_antecedents_and_gradients_are_those_of_the_joined_pairs(monkeypatch, chunk, count):
    """The formula as the paper has it: one feed-forward network over [g_i ; g_j ; g_i * g_j ; features]."""
    monkeypatch.setattr(antecedents, "CHUNK", chunk)
    torch.manual_seed(0)
    scorer = AntecedentScorer(9, most=4, hidden=6, feature=3, p=0.0)
    g, mention = torch.randn(count, 9, requires_grad=True), torch.randn(count, requires_grad=True)
    speakers = torch.tensor([1, 0, 2, 1, 1, 2, 0])[:count]
    learned = [g, mention, *scorer.parameters()]

    i = torch.arange(count).unsqueeze(1)
    back = torch.arange(1, 1 + max(1, min(4, count - 1)))
    j = (i - back).clamp(min=0)  # [M, K]
    unknown = (speakers[i] == 0) | (speakers[j] == 0)
    same = torch.where(unknown, 0, torch.where(speakers[i] == speakers[j], 1, 2))
    one, other = torch.broadcast_tensors(g.unsqueeze(1), g[j])
    distance = scorer.distance.weight[back - 1].expand(count, -1, -1)
    pairs = torch.cat([one, other, one * other, distance, scorer.speaker.weight[same]], dim=-1)
    hidden = torch.relu(scorer.pair.second(torch.relu(scorer.pair.first(pairs))))
    expected = mention.unsqueeze(1) + mention[j] + scorer.pair.output(hidden).squeeze(-1)
    expected = expected.masked_fill(i < back, -INF)

    scores = scorer(g, mention, speakers)
    torch.testing.assert_close(scores[:, 1:], expected, atol=1e-5, rtol=1e-5)
    clusters = torch.tensor([1, 2, 1, 1, 0, 2, 1])[:count]
    gradients = torch.autograd.grad(antecedent_loss(scores, clusters), learned)
    joined = torch.cat([torch.zeros(count, 1), expected], dim=1)
    for ours, theirs in zip(gradients, torch.autograd.grad(antecedent_loss(joined, clusters), learned)):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_distances_fall_into_the_papers_buckets():
    least = torch.tensor(antecedents.BUCKETS)
    found = torch.bucketize(torch.tensor([1, 2, 4, 5, 7, 8, 15, 16, 63, 64, 250]), least, right=True) - 1
    assert found.tolist() == [0, 1, 3, 4, 4, 5, 5, 6, 7, 8, 8]


def test_the_loss_is_that_of_all_gold_antecedents_together():
    scores = torch.tensor([[0.0, -INF, -INF], [0.0, 1.0, -INF], [0.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
    e = scores.exp()
    # Span 2 has both before it; span 3 is of a cluster whose other mention is out of reach.
    rows = [e[0, 0] / e[0].sum(), e[1, 1] / e[1].sum(), (e[2, 1] + e[2, 2]) / e[2].sum(), e[3, 0] / e[3].sum()]
    right = -torch.stack(rows).log().mean()
    assert antecedent_loss(scores, torch.tensor([1, 1, 1, 2])) == pytest.approx(float(right))
    none = -(e[:, 0] / e.sum(dim=1)).log().mean()
    assert antecedent_loss(scores, torch.zeros(4, dtype=torch.int64)) == pytest.approx(float(none))


def test_clusters_follow_the_best_antecedents():
    scores = torch.full((6, 4), -1.0)
    scores[:, 0] = 0.0
    scores[2, 2] = 1.0  # 2 -> 0
    scores[3, 2] = 0.5  # 3 -> 1
    scores[4, 2] = 2.0  # 4 -> 2
    scores[5, 1] = -0.5
    assert follow(scores) == [[0, 2, 4], [1, 3]]
    assert follow(torch.zeros(3, 2)) == []

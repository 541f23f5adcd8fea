from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import UserError
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.pretrain import perplexity as module
from elmokit.pretrain.perplexity import expect, fill, perplexity, score
from helpers.language_models import MODEL, TEXT, WORDS, make_model, without_head
from reference import ReferenceBiLM


class Reference(ReferenceBiLM):
    """Scores in float64: [(log p forward, log p backward), ...] of <S>, w1 .. wn, </S>; nan if not predicted."""

    def scores(self, tokens, state=None):
        read = ["<S>", *tokens, "</S>"]
        xs = [self.token_vector(token) for token in read]
        state = state or self.zero_state()
        forward, forward_state = self._direction(0, xs, state)
        backward, backward_state = self._direction(1, xs[::-1], state)
        ids = [{"<S>": 0, "</S>": 1}.get(w, WORDS.index(w) + 3 if w in WORDS else 2) for w in read]
        scores = np.full((len(read), 2), np.nan)
        for k in range(len(read) - 1):
            scores[k + 1, 0] = self.log_softmax(forward[-1][k])[ids[k + 1]]
            scores[k, 1] = self.log_softmax(backward[-1][::-1][k + 1])[ids[k]]
        return scores, [forward_state, backward_state]

    @staticmethod
    def log_softmax(h):
        logits = MODEL.head.weight.detach().numpy().astype(np.float64) @ h + MODEL.head.bias.detach().numpy()
        return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())

    def streams(self, streams):
        """The scores of every sentence, each stream read from zero on."""
        scores = []
        for sentences in streams:
            state = None
            for tokens in sentences:
                own, state = self.scores(tokens, state)
                scores.append(own)
        return scores


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Reference:
    folder = tmp_path_factory.mktemp("pair")
    write_bilm(MODEL, folder / "options.json", folder / "weights.hdf5")
    return Reference(folder / "options.json", folder / "weights.hdf5")


def expected_perplexity(scores):
    nll = -np.nanmean(np.concatenate(scores), axis=0)
    return np.exp([*nll, nll.mean()])


def numbers(scores):
    none = math.nan
    return [[[none if v is None else v for v in token[1:3]] for token in sentence] for sentence in scores]


LONGER = [line.split() for line in ["He sat", "the bank of a river .", "b", "the the 밥을", "of . a sat by"] * 4]


@pytest.mark.parametrize("batch_tokens", [1, 20, 2048])
def test_zero_equals_an_independent_computation(reference, batch_tokens):
    expected = [reference.scores(tokens)[0] for tokens in TEXT]
    found = list(score(MODEL, TEXT, batch_tokens=batch_tokens))
    assert [[s.token for s in sentence] for sentence in found] == [["<S>", *s, "</S>"] for s in TEXT]
    for one, other in zip(numbers(found), expected):
        np.testing.assert_allclose(one, other, atol=1e-5)
    whole = perplexity(MODEL, TEXT, state="zero", batch_tokens=batch_tokens)
    np.testing.assert_allclose(whole[:3], expected_perplexity(expected), rtol=1e-5)


def test_carry_equals_an_independent_computation(reference):
    expected = reference.streams([TEXT])
    for one, other in zip(numbers(score(MODEL, TEXT, state="carry")), expected):
        np.testing.assert_allclose(one, other, atol=1e-5)
    whole = perplexity(MODEL, TEXT)
    np.testing.assert_allclose(whole[:3], expected_perplexity(expected), rtol=1e-5)
    assert abs(whole.mean - perplexity(MODEL, TEXT, state="zero").mean) > 1e-3  # else this would show nothing


@pytest.mark.parametrize("batch_tokens", [1, 2048])
@pytest.mark.parametrize(
    ("sentences", "streams"),
    [
        (3, [[0, 1, 2]]),  # no more than a stretch: one stream
        (5, [[0, 1, 2], [3, 4]]),
        (14, [[0, 1, 2, 6, 7, 8, 12, 13], [3, 4, 5, 9, 10, 11]]),
        (17, [[0, 1, 2, 6, 7, 8, 12, 13, 14], [3, 4, 5, 9, 10, 11, 15, 16]]),
    ],
)
def test_a_text_is_dealt_to_streams_in_stretches(reference, monkeypatch, sentences, streams, batch_tokens):
    monkeypatch.setattr(module, "STRETCH", 3)
    expected = reference.streams([[LONGER[i] for i in stream] for stream in streams])
    found = perplexity(MODEL, LONGER[:sentences], rows=2, batch_tokens=batch_tokens)
    np.testing.assert_allclose(found[:3], expected_perplexity(expected), rtol=1e-5)
    assert found.sentences == sentences
    assert found.predictions == sum(len(tokens) + 1 for tokens in LONGER[:sentences])


SENTENCE = st.lists(st.sampled_from([*WORDS, "unheard", "먹었다", "x" * 60, "<UNK>"]), max_size=9)


@settings(max_examples=25, deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=12).filter(any), st.integers(1, 60), st.randoms())
def test_perplexity_is_that_of_the_scores_in_any_order_and_batch(sentences, batch_tokens, random):
    scores = list(score(MODEL, sentences))
    assert [len(s) for s in scores] == [len(tokens) + 2 if tokens else 0 for tokens in sentences]
    shuffled = random.sample(sentences, len(sentences))
    found = perplexity(MODEL, iter(shuffled), state="zero", batch_tokens=batch_tokens)
    tokens = [token for sentence in scores for token in sentence]
    forward = [-token.forward for token in tokens if token.forward is not None]
    backward = [-token.backward for token in tokens if token.backward is not None]
    expected = np.exp([np.mean(forward), np.mean(backward), np.mean(forward + backward)])
    np.testing.assert_allclose(found[:3], expected, rtol=1e-6)
    words = [word for sentence in sentences for word in sentence]
    assert found.predictions == len(forward) == len(backward)
    assert found.sentences == sum(map(bool, sentences))
    assert found.unknown == pytest.approx(sum(word not in WORDS for word in words) / len(words))
    carried = list(score(MODEL, sentences, state="carry"))
    forward = [-token.forward for sentence in carried for token in sentence[1:]]
    assert perplexity(MODEL, sentences, rows=1).forward == pytest.approx(np.exp(np.mean(forward)), rel=1e-6)


@pytest.mark.parametrize("state", ["carry", "zero"])
def test_a_head_that_knows_nothing_is_as_perplexed_as_it_has_words(state):
    model = make_model()
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    assert perplexity(model, TEXT, state=state)[:3] == pytest.approx([len(WORDS) + 3] * 3, rel=1e-6)


def test_perplexity_beyond_all_numbers_is_infinite():
    model = make_model()
    torch.nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([1e6, *[0.0] * (len(WORDS) + 2)]))  # sure of <S>, which is never next
    found = perplexity(model, [["the"]])
    assert (found.forward, found.mean) == (math.inf, math.inf)


def test_an_unknown_word_is_scored_as_unknown_and_read_by_its_characters():
    (one,) = score(MODEL, [["the", "unheard", "bank"]])
    (other,) = score(MODEL, [["the", "unseen", "bank"]])
    assert [token.unknown for token in one] == [False, False, True, False, False]
    assert one[2].forward == pytest.approx(other[2].forward, abs=1e-6)
    assert abs(one[3].forward - other[3].forward) > 1e-3


@pytest.mark.parametrize("state", ["carry", "zero"])
def test_sentences_without_tokens_are_left_out(state):
    with_gaps = [[], TEXT[0], [], [], *TEXT[1:], []]
    assert perplexity(MODEL, with_gaps, state=state) == pytest.approx(perplexity(MODEL, TEXT, state=state))
    found = list(score(MODEL, with_gaps, state=state))
    assert found[0] == found[2] == found[3] == found[-1] == []
    for one, other in zip(numbers(filter(None, found)), numbers(score(MODEL, TEXT, state=state)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for nothing in ([], [[], []]):
        with pytest.raises(UserError, match="found no sentence with a token"):
            perplexity(MODEL, nothing, state=state)


def test_text_is_taken_apart_and_tokens_are_normalized():
    model = make_model(["é", *WORDS], published=False)
    (text,) = score(model, ["the e\u0301"])
    (tokens,) = score(model, [("the", "é")])
    assert text == tokens
    assert not text[2].unknown


@settings(max_examples=25, deadline=None)
@given(SENTENCE, SENTENCE)
def test_fill_is_the_score_of_each_filled_sentence_less_that_of_the_word_alone(left, right):
    found = fill(MODEL, [*left, "___", *right], top=1000, punctuation=True)
    assert sorted(candidate.word for candidate in found) == sorted(WORDS)
    assert sum(candidate.probability for candidate in found) == pytest.approx(1)
    assert [c.probability for c in found] == sorted((c.probability for c in found), reverse=True)
    together = {}
    for candidate, scores in zip(found, score(MODEL, [[*left, c.word, *right] for c in found])):
        filled = scores[len(left) + 1]  # what stands in the gap is never seen by its own prediction
        assert candidate.forward == pytest.approx(filled.forward, abs=1e-5)
        assert candidate.backward == pytest.approx(filled.backward, abs=1e-5)
        place = WORDS.index(candidate.word) + 1
        alone = math.log((place + 1) / place) ** 0.75  # log-uniform: the most frequent word has place 1
        together[candidate.word] = math.exp(filled.forward + filled.backward) / alone
    for candidate in found:
        assert candidate.probability == pytest.approx(together[candidate.word] / sum(together.values()), rel=1e-4)
    assert fill(MODEL, [*left, "___", *right], top=3, punctuation=True) == found[:3]
    words = fill(MODEL, [*left, "___", *right], top=1000)
    assert [c.word for c in words] == [c.word for c in found if c.word != "."]
    assert sum(candidate.probability for candidate in words) == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(SENTENCE, st.integers(1, 20))
def test_what_is_expected_is_what_fills_the_gap_and_what_each_direction_scores(tokens, top):
    found = expect(MODEL, tokens, top=top)
    (scores,) = score(MODEL, [tokens])
    assert len(found) == len(tokens)
    for k, (expected, scored) in enumerate(zip(found, scores[1:-1])):
        assert expected.score[::3] == scored[::3]
        assert expected.score[1:3] == pytest.approx(scored[1:3], abs=1e-5)
        gap = [*tokens[:k], "___", *tokens[k + 1 :]]
        filled = fill(MODEL, gap, top=1000, punctuation=True)
        assert len(expected.both) == min(top, len(WORDS))
        by_word = {candidate.word: candidate for candidate in filled}
        if tokens[k] in WORDS:
            assert expected.probability == pytest.approx(by_word[tokens[k]].probability, rel=1e-4)
        else:
            assert expected.probability is None
        for one, other in zip(expected.both, filled):
            assert one.probability == pytest.approx(other.probability, rel=1e-4)
            assert one[1:] == pytest.approx(by_word[one.word][1:], rel=1e-4, abs=1e-5)
        for direction in ("forward", "backward"):
            best = sorted((getattr(candidate, direction) for candidate in filled), reverse=True)[:top]
            own = getattr(expected, direction)
            assert [getattr(candidate, direction) for candidate in own] == pytest.approx(best, abs=1e-5)
            assert [candidate.probability for candidate in own] == pytest.approx(np.exp(best), rel=1e-4)
            assert all(c[2:] == pytest.approx(by_word[c.word][2:], abs=1e-5) for c in own)


def test_neither_direction_expects_by_what_is_on_the_other_side():
    one, other = (expect(MODEL, line)[1] for line in ("He sat of the bank", "the a of He unheard"))
    left = expect(MODEL, "He river a a .")[1]
    right = expect(MODEL, "unheard . of the bank")[1]
    assert left.forward[0].word == one.forward[0].word
    assert left.score.forward != one.score.forward  # the word itself is another
    assert left.forward[0].forward == pytest.approx(one.forward[0].forward, abs=1e-6)
    assert right.backward[0].backward == pytest.approx(one.backward[0].backward, abs=1e-6)
    assert abs(other.forward[0].forward - one.forward[0].forward) > 1e-3
    assert abs(other.backward[0].backward - one.backward[0].backward) > 1e-3


def test_what_is_expected_is_found_in_chunks_of_a_large_vocabulary(monkeypatch):
    whole = expect(MODEL, TEXT[4])
    sizes = []
    monkeypatch.setattr(module, "LOGITS", 20 * (len(WORDS) + 3))
    hook = MODEL.head.register_forward_hook(lambda head, inputs, output: sizes.append(output.numel()))
    chunked = expect(MODEL, TEXT[4])
    hook.remove()
    assert len(sizes) > 1
    assert max(sizes) <= module.LOGITS
    for one, other in zip(chunked, whole, strict=True):
        assert [c.word for c in one.both] == [c.word for c in other.both]
        assert one.score[1:3] == pytest.approx(other.score[1:3], abs=1e-6)


def test_of_candidates_that_fit_equally_well_the_rarer_says_more():
    model = make_model()
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    rare_first = [word for word in reversed(WORDS) if word != "."]
    assert [candidate.word for candidate in fill(model, "the ___ .", top=4)] == rare_first[:4]


def test_fill_offers_punctuation_on_request_only():
    model = make_model([",", "..", "7", "a", '"'], published=False)
    assert {c.word for c in fill(model, "He ___ .")} == {"7", "a"}
    assert {c.word for c in fill(model, "He ___ .", punctuation=True)} == {",", "..", "7", "a", '"'}
    assert fill(make_model([",", ".."], published=False), "He ___ .") == []


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("en-small", "He went to the ___ ."),
        ("en-small", "She ___ him a letter ."),
        ("ko-small", "나는 ___ 먹었다 ."),
    ],
)
def test_fill_puts_a_word_first_and_not_what_is_frequent_everywhere(model, sentence):
    words = [candidate.word for candidate in fill(model, sentence, top=5)]
    assert all(word.isalpha() for word in words)
    assert not {"the", "of", "a", "그", "이"} & set(words)


def test_a_vocabulary_larger_than_memory_is_scored_in_chunks(monkeypatch):
    whole = numbers(score(MODEL, TEXT))
    sizes = []
    monkeypatch.setattr(module, "LOGITS", 20 * (len(WORDS) + 3))
    hook = MODEL.head.register_forward_hook(lambda head, inputs, output: sizes.append(output.numel()))
    chunked = numbers(score(MODEL, TEXT))
    hook.remove()
    assert max(sizes) == module.LOGITS
    for one, other in zip(chunked, whole):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("state", ["carry", "zero"])
def test_an_endless_text_is_read_no_further_than_needed(state):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield ["the", "bank"]

    next(score(MODEL, endless(), state=state, batch_tokens=40))
    assert taken <= 10  # 4 tokens each with the boundaries

    def stop(so_far):
        assert so_far.sentences == 1
        raise KeyboardInterrupt

    taken = 0
    with pytest.raises(KeyboardInterrupt):
        perplexity(MODEL, endless(), state=state, batch_tokens=40, rows=2, report=stop)
    assert taken <= 2 * module.STRETCH


def test_the_report_ends_with_the_result():
    reports = []
    result = perplexity(MODEL, TEXT, report=reports.append)
    assert [so_far.sentences for so_far in reports] == [1, 2, 3, 4, 5]
    assert reports[-1] == result


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_is_being_trained_is_left_as_it_was(training):
    model = make_model()
    model.bilm.train(training)
    before = {name: tensor.clone() for name, tensor in model.bilm.state_dict().items()}
    assert perplexity(model, TEXT) == perplexity(MODEL, TEXT)
    assert model.bilm.training is training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.bilm.state_dict().items())
    (model.bilm(torch.ones(1, 2, 50, dtype=torch.int64)).layers.sum()).backward()  # gradients still flow


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: perplexity(without_head(), TEXT), "predicts no words: it has no softmax head .* Use a model"),
        (lambda: score(without_head(), TEXT), "predicts no words"),
        (lambda: fill(without_head(), ["___"]), "predicts no words"),
        (lambda: expect(without_head(), ["a"]), "predicts no words"),
        (lambda: expect(MODEL, "a", top=0), "top: expected 1 or more, found 0"),
        (lambda: perplexity(MODEL, "the bank"), "found one string"),
        (lambda: perplexity(MODEL, TEXT, state="warm"), 'state: expected "carry" or "zero", found \'warm\''),
        (lambda: score(MODEL, TEXT, state="warm"), "found 'warm'"),
        (lambda: perplexity(MODEL, TEXT, rows=0), "rows: expected 1 or more, found 0"),
        (lambda: score(MODEL, TEXT, batch_tokens=0), "batch_tokens: expected 1 or more, found 0"),
        (lambda: fill(MODEL, "the bank"), "expected one gap, written ___ as a token of its own, found 0 in"),
        (lambda: fill(MODEL, ["___", "or", "___"]), "found 2 in '___ or ___'"),
        (lambda: fill(MODEL, "the ___s"), "found 0"),
        (lambda: fill(MODEL, "the ___", top=0), "top: expected 1 or more, found 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(call, message):
    with pytest.raises(UserError, match=message):
        call()

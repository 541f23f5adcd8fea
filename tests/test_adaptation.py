"""Training that begins from something: a model and a domain, or given word vectors."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.pretrain.adaptation import extend_vocabulary, word_counts, words_before
from elmokit.pretrain.comparison import compare, fewer_words
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.perplexity import perplexity, score
from helpers.models import make_elmo
from helpers.training import OPTIONS, made_up_text, make_corpus, make_trainer


def test_new_words_begin_as_the_unknown_word_and_old_ones_stay(tmp_path):
    corpus = make_corpus(tmp_path, "the the the of neu neu selten\n")
    trainer = make_trainer(corpus, vocabulary=4, min_count=1)  # three specials and `the`
    trainer.close()
    model = trainer.model
    assert list(model.vocabulary) == ["<S>", "</S>", "<UNK>", "the"]
    more = extend_vocabulary(model, word_counts(corpus), most=10, min_count=2)
    assert list(more.vocabulary)[4:] == ["neu"]
    assert torch.equal(more.head.weight[:4], model.head.weight)
    assert torch.equal(more.head.weight[4], model.head.weight[2])
    assert more.head.projection_weight is None
    most = extend_vocabulary(model, word_counts(corpus), most=2, min_count=1)
    assert list(most.vocabulary)[4:] == ["neu", "of"]
    with pytest.raises(UserError, match="without a softmax head"):
        extend_vocabulary(make_elmo().checkpoint, {}, most=1, min_count=1)


@pytest.fixture
def extended(tmp_path) -> tuple[Checkpoint, Checkpoint, dict[str, int]]:
    """A model of few words, the same with words of another text added, and that text's counts."""
    trainer = make_trainer(make_corpus(tmp_path, made_up_text(40)), vocabulary=9)
    trainer.close()
    torch.nn.init.normal_(trainer.model.head.bias)
    counts = Counter(DOMAIN.split())
    return trainer.model, extend_vocabulary(trainer.model, counts, most=3, min_count=2), counts


DOMAIN = made_up_text(60, seed=9).replace("the", "qoph").replace("of", "zeta")


def test_a_new_word_begins_with_its_share_of_the_unknown_words_probability(extended):
    model, more, counts = extended
    new = list(more.vocabulary)[len(model.vocabulary) :]
    assert len(new) == 3
    unknown = {word: count for word, count in counts.items() if word not in model.vocabulary}
    total = sum(unknown.values()) + 1  # and one for the words that the text does not hold
    shares = {word: count / total for word, count in unknown.items() if word in new}
    rest = 1 - sum(shares.values())
    h = torch.randn(20, 8, dtype=torch.float64)
    untouched, extended_p = (checkpoint.head.double()(h).exp() for checkpoint in (model, more))
    expected = untouched.clone()
    expected[:, 2] *= rest
    torch.testing.assert_close(extended_p[:, : len(model.vocabulary)], expected)
    for word, share in shares.items():
        torch.testing.assert_close(extended_p[:, more.vocabulary.id(word)], untouched[:, 2] * share)


def test_before_is_the_untouched_model_with_a_new_word_as_unknown_times_its_share(extended):
    model, more, counts = extended
    assert words_before(more) == len(model.vocabulary)
    assert words_before(model) == len(model.vocabulary)
    unknown = {word: count for word, count in counts.items() if word not in model.vocabulary}
    total = sum(unknown.values()) + 1
    new = set(more.vocabulary) - set(model.vocabulary)
    share = {word: unknown[word] / total for word in new}
    rest = 1 - sum(share.values())
    text = [line.split() for line in DOMAIN.splitlines()]
    text[3].append("nowhere")
    lines = [
        [
            value + (math.log(share.get(token.token, rest)) if token.unknown else 0)
            for token in sentence
            for value in (token.forward, token.backward)
            if value is not None
        ]
        for sentence in score(model, text)
    ]
    numbers = [value for line in lines for value in line]
    expected = math.exp(-sum(numbers) / len(numbers))
    assert perplexity(more, text, state="zero").mean == pytest.approx(expected, rel=1e-5)
    whole, known = compare(more, more, {"domain": text}, lambda progress: None)
    assert (whole.words, known.words) == (len(more.vocabulary), len(model.vocabulary))
    assert whole.before == whole.after == perplexity(more, text)
    untouched = perplexity(model, text)
    assert known.before == pytest.approx(untouched, rel=1e-5)
    assert whole.before.mean > untouched.mean


def test_words_that_are_told_apart_no_more_are_together_with_the_unknown_word(extended):
    _, more, _ = extended
    head, count = more.head.double(), 5
    h = torch.randn(7, 8, dtype=torch.float64)
    p, fewer = head(h).exp(), fewer_words(more, count).head(h).exp()
    assert fewer.shape == (7, count)
    assert torch.equal(fewer[:, [0, 1, 3, 4]], p[:, [0, 1, 3, 4]])
    torch.testing.assert_close(fewer[:, 2], p[:, 2] + p[:, count:].sum(dim=1))
    torch.testing.assert_close(fewer.sum(dim=1), torch.ones(7, dtype=torch.float64))


def test_new_words_leave_the_map_before_the_softmax_as_it_is(tmp_path):
    corpus = make_corpus(tmp_path, "the the the of neu neu selten\n")
    trainer = make_trainer(corpus, vocabulary=4, min_count=1, softmax_width=5)
    trainer.close()
    model = trainer.model
    more = extend_vocabulary(model, word_counts(corpus), most=10, min_count=2)
    assert torch.equal(more.head.projection_weight, model.head.projection_weight)
    assert more.head.projection_weight is not model.head.projection_weight
    h = torch.randn(3, 8)
    before, after = model.head(h), more.head(h)
    torch.testing.assert_close(after[:, [0, 1, 3]], before[:, [0, 1, 3]])


def test_finetuning_keeps_a_softmax_of_another_width(elmo_command):
    Path("text.txt").write_text(made_up_text(60))
    wide = ["--set", "train.softmax_width=5"]
    assert elmo_command("pretrain", "text.txt", "--out", "base", "--tokens", "500", *OPTIONS, *wide)[0] == 0
    Path("domain.txt").write_text(made_up_text(60, seed=9).replace("the", "qoph"))
    own = ["--new-words", "5", "--held-out", "0.1", "--set", "train.rows=8"]
    measuring = ["--evaluations", "2", "--held-out-sentences", "3"]
    code, _, err = elmo_command("finetune", "-m", "base/model", "domain.txt", "--out", "tuned", *own, *measuring)
    assert code == 0, err
    before, after = Checkpoint.load("tuned/start"), Checkpoint.load("tuned/model")
    assert "qoph" in after.vocabulary
    assert after.head.projection_weight.shape == (5, 8)
    assert torch.equal(before.head.projection_weight, Checkpoint.load("base/model").head.projection_weight)
    assert not torch.equal(after.head.projection_weight, before.head.projection_weight)
    assert sum("perplexity" in row for row in read_metrics(Path("tuned"))) == 2
    other = ["--set", "train.softmax_width=7"]
    code, _, err = elmo_command("finetune", "-m", "base/model", "domain.txt", "--out", "other", *own, *other)
    assert code == 1
    assert "expected the model's own, 5, or 0, found 7" in err
    assert not Path("other").exists()
    assert elmo_command("finetune", "-m", "base/model", "domain.txt", "--out", "same", *own, *wide)[0] == 0


@pytest.mark.slow
def test_finetuning_learns_a_domain(elmo_command):
    Path("general.txt").write_text(made_up_text(150))
    lines = made_up_text(150, seed=9).splitlines()
    Path("domain.txt").write_text("\n".join("zeta " + line.replace("the", "qoph") for line in lines) + "\n")
    assert elmo_command("pretrain", "general.txt", "--out", "base", "--tokens", "3000", *OPTIONS)[0] == 0
    code, out, err = elmo_command(
        *(
            "finetune",
            "-m",
            "base/model",
            "domain.txt",
            "--out",
            "tuned",
            "--general",
            "general.txt",
            "--epochs",
            "4",
        ),
        *("--new-words", "5", "--held-out", "0.1", "--set", "train.rows=8", "--set", "train.min_count=2"),
        *("--set", "optimizer.learning_rate=0.01"),
    )
    assert code == 0, err
    assert "domain, held out" in out
    assert "general (general.txt)" in out
    before, after = Checkpoint.load("tuned/start"), Checkpoint.load("tuned/model")
    assert {"zeta", "qoph"} <= set(after.vocabulary)
    assert before.digest != after.digest
    text = [line.split() for line in Path("domain.txt").read_text().splitlines()]
    assert perplexity(after, text).mean < 0.7 * perplexity(before, text).mean


def test_pretraining_over_given_vectors_keeps_them(elmo_command):
    Path("text.txt").write_text(made_up_text(100))
    vectors = {word: [float(i), 1.0, -1.0, 0.5] for i, word in enumerate("the of and to".split())}
    Path("glove.txt").write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in vectors.items()))
    code, _, err = elmo_command(
        *("pretrain", "text.txt", "--out", "run", "--tokens", "600", "--vectors", "glove.txt", *OPTIONS)
    )
    assert code == 0, err
    elmo = Elmo.from_pretrained("run/model")
    assert elmo.bilm.config.encoder.kind == "words"
    start = Checkpoint.load("run/start")
    table = "encoder.word_embedding.weight"
    assert torch.equal(elmo.bilm.state_dict()[table], start.bilm.state_dict()[table])
    name = "forward_lstms.0.input_weight"
    assert not torch.equal(elmo.bilm.state_dict()[name], start.bilm.state_dict()[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("finetune --out new", "expected a model and the text"),
        ("finetune -m {model} text.txt --out new", "predicts no words"),
        ("finetune -m {model} text.txt --out {model}", "exists already"),
        ("finetune --out {model} --resume", "holds no training run"),
        ("pretrain --out new", "no text given"),
        ("pretrain text.txt --out new --recipe smal", "did you mean 'small'"),
        ("pretrain text.txt --out new --recipe tiny --set train.row=3", "did you mean 'rows'"),
        ("pretrain text.txt --out new --recipe tiny --tokens 9 --hours 1", "three ways to say one thing"),
        ("pretrain none.txt --out new --recipe tiny", "none.txt"),
        ("pretrain empty.txt --out new --recipe tiny", "no"),
        ("pretrain junk.txt --out new --recipe tiny", "junk.txt"),
        ("pretrain text.txt --resume --out new", "new holds no training run"),
        ("pretrain --resume --out {model}", "holds no training run"),
    ],
)
def test_what_is_wrong_is_said(elmo_command, model_folder, arguments, message):
    Path("text.txt").write_text("one two\n")
    Path("empty.txt").write_text("")
    Path("junk.txt").write_bytes(bytes(range(256)) * 50)
    code, _, err = elmo_command(*arguments.format(model=model_folder).split())
    assert code == 1
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["pretrain text.txt", "finetune text.txt"])
@pytest.mark.parametrize("option", ["--evaluations", "--held-out-sentences"])
@pytest.mark.parametrize("value", ["0", "-1", "few"])
def test_numbers_that_measure_nothing_are_refused(elmo_command, command, option, value):
    code, _, err = elmo_command(*command.split(), "--out", "new", option, value)
    assert code == 2
    assert f"Invalid value for '{option}'" in err
    assert "Traceback" not in err
    assert not Path("new").exists()


@pytest.mark.parametrize("text", ["word\n", "one two three\n", "밥\n밥\n"])
def test_the_smallest_corpora_train(elmo_command, text):
    Path("text.txt").write_text(text)
    code, _, err = elmo_command("pretrain", "text.txt", "--out", "run", "--tokens", "100", *OPTIONS)
    assert code == 0, err
    assert Elmo.from_pretrained("run/model").embed(["word"])[0].shape == (3, 1, 16)

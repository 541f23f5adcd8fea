"""Training that begins from something: a model and a domain, or given word vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import make_elmo
from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.pretrain.adapt import extend_vocabulary, word_counts
from test_run import OPTIONS
from test_train import made_up_text, make_corpus, make_trainer


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
    most = extend_vocabulary(model, word_counts(corpus), most=2, min_count=1)
    assert list(most.vocabulary)[4:] == ["neu", "of"]
    with pytest.raises(ValueError, match="without a softmax head"):
        extend_vocabulary(make_elmo().checkpoint, {}, most=1, min_count=1)


def test_finetuning_learns_a_domain(elmo_command):
    Path("general.txt").write_text(made_up_text(150))
    lines = made_up_text(150, seed=9).splitlines()
    Path("domain.txt").write_text("\n".join("zeta " + line.replace("the", "qoph") for line in lines) + "\n")
    assert elmo_command("pretrain", "general.txt", "--out", "base", "--tokens", "3000", *OPTIONS)[0] == 0
    code, out, err = elmo_command(
        *("finetune", "base/model", "domain.txt", "--out", "tuned", "--general", "general.txt", "--epochs", "4"),
        *("--new-words", "5", "--held-out", "0.1", "--set", "train.rows=8", "--set", "train.min_count=2"),
        *("--set", "optimiser.learning_rate=0.01"),
    )
    assert code == 0, err
    assert "domain, held out" in out
    assert "general (general.txt)" in out
    before, after = Checkpoint.load("tuned/start"), Checkpoint.load("tuned/model")
    assert {"zeta", "qoph"} <= set(after.vocabulary)
    assert before.digest != after.digest
    from elmokit.pretrain.perplexity import perplexity

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
        ("finetune {model} text.txt --out new", "predicts no words"),
        ("finetune {model} text.txt --out {model}", "exists already"),
        ("finetune --out {model} --resume", "holds no training run"),
        ("pretrain --out new", "no text given"),
        ("pretrain text.txt --out new --recipe smal", "did you mean 'small'"),
        ("pretrain text.txt --out new --recipe tiny --set train.row=3", "did you mean 'rows'"),
        ("pretrain text.txt --out new --recipe tiny --tokens 9 --hours 1", "three ways to say one thing"),
        ("pretrain none.txt --out new --recipe tiny", "none.txt"),
        ("pretrain empty.txt --out new --recipe tiny", "no"),
        ("pretrain junk.txt --out new --recipe tiny", "junk.txt"),
        ("pretrain text.txt --resume --out new", "leave TEXT out"),
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


@pytest.mark.parametrize("text", ["word\n", "one two three\n", "밥\n밥\n"])
def test_the_smallest_corpora_train(elmo_command, text):
    Path("text.txt").write_text(text)
    code, _, err = elmo_command("pretrain", "text.txt", "--out", "run", "--tokens", "100", *OPTIONS)
    assert code == 0, err
    assert Elmo.from_pretrained("run/model").embed(["word"])[0].shape == (3, 1, 16)

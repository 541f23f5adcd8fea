"""The training step: its loss against NumPy, exact resuming, and that it learns."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.checkpoint import Checkpoint
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.pretrain.adaptation import fresh_model
from elmokit.pretrain.optimizer import OptimizerConfig
from elmokit.pretrain.perplexity import perplexity
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.step import NEGATIVES, TrainConfig, Trainer
from elmokit.text.tokens import TokenizerConfig
from helpers.models import small_config
from helpers.training import FAST, made_up_text, make_corpus, make_trainer
from reference import ReferenceBiLM


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path, made_up_text(40))


STEPS_BY_HEART = 450
MUON = OptimizerConfig("muon", 0.01, adamw_learning_rate=0.01, softmax_learning_rate=0.02)
GOLDEN = Path(__file__).parent / "golden" / "loss_curve.json"


def expected_losses(trainer, corpus, windows, folder, negatives=None):
    """Mean negative log likelihoods of each direction, by windows: NumPy, float64, from the definitions."""
    write_bilm(trainer.model, folder / "o.json", folder / "w.hdf5")
    reference = ReferenceBiLM(folder / "o.json", folder / "w.hdf5")
    weight, bias = (p.detach().numpy().astype(np.float64) for p in (trainer.head.weight, trainer.head.bias))
    if trainer.head.projection_weight is not None:  # by h of the LSTM's width: W (M h) = (W M) h
        weight = weight @ trainer.head.projection_weight.detach().numpy().astype(np.float64)
    vocabulary = trainer.model.vocabulary
    names = ["<S>", "</S>", *corpus.types]
    size = len(vocabulary)
    p = np.log1p(1 / (np.arange(size) + 1.0)) / np.log(size + 1.0)
    losses = []
    states = [[reference.zero_state() for _ in range(trainer.config.rows)] for _ in range(2)]
    for i, window in enumerate(windows):
        both = []
        for direction, inputs, targets in (
            (0, window.forward_inputs, window.forward_targets),
            (1, window.backward_inputs, window.backward_targets),
        ):
            total, count = 0.0, 0
            for row in range(len(inputs)):
                xs = [reference.token_vector(names[t]) for t in inputs[row]]
                state = states[direction][row]
                layers, after = reference._direction(direction, xs, state)
                state[direction] = after
                for h, target in zip(layers[-1], targets[row]):
                    if target < 0:
                        continue
                    word = vocabulary.id(names[target])
                    if negatives is None:
                        logits = weight @ h + bias
                        total += np.log(np.exp(logits).sum()) - logits[word]
                    else:
                        drawn, tries = negatives[i]
                        drawn = np.asarray(drawn)
                        correct = -np.log(-np.expm1(tries * np.log1p(-p)))
                        true = weight[word] @ h + bias[word] + correct[word]
                        others = drawn[drawn != word]
                        logits = weight[others] @ h + bias[others] + correct[others]
                        total += np.log(np.exp(true) + np.exp(logits).sum()) - true
                    count += 1
            both.append(total / count)
        losses.append(both)
    return losses


@pytest.mark.parametrize("softmax_width", [0, 5])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_loss_is_that_of_an_independent_computation(corpus, tmp_path, sampled, softmax_width):
    """Three windows, the state carried; a learning rate of nothing keeps the weights as they are."""
    still = dataclasses.replace(OptimizerConfig(), learning_rate=1e-30, weight_decay=0.0)
    options = {"full_softmax": 1, "negatives": 6} if sampled else {}
    options["softmax_width"] = softmax_width
    trainer = make_trainer(corpus, optimizer=still, **options)
    with torch.no_grad():
        torch.nn.init.normal_(trainer.head.bias, generator=torch.Generator().manual_seed(1))
    assert (trainer.sampler is not None) == sampled
    shadow = make_trainer(corpus, **options)
    windows = [next(shadow.windows) for _ in range(3)]
    negatives, results = [], []
    for _ in range(3):
        if sampled:
            drawn = trainer.sampler.sample(6, trainer._random(NEGATIVES))
            negatives.append((drawn.ids, drawn.tries))
        results.append(trainer.train_step(0.5))
    expected = expected_losses(trainer, corpus, windows, tmp_path, negatives if sampled else None)
    found = [(result.forward, result.backward) for result in results]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    for t in (trainer, shadow):
        t.close()


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.state_dict().items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"full_softmax": 1, "negatives": 6},
        {"state": "reset"},
        {"state": "either"},
        {"softmax_width": 5},
        {"softmax_width": 12, "full_softmax": 1, "negatives": 6},
        {"optimizer": MUON},
        {"optimizer": MUON, "softmax_width": 12, "full_softmax": 1, "negatives": 6},
        {"precision": "bfloat16"},
        {"precision": "bfloat16", "dropout": 0.0},
        {"precision": "bfloat16", "softmax_width": 12, "full_softmax": 1, "negatives": 6, "state": "either"},
    ],
)
@pytest.mark.parametrize("stop", [0, 1, 7])
def test_stopped_and_taken_up_again_is_bit_for_bit_the_same(corpus, options, stop):
    options = {"dropout": 0.2, **options}
    whole = make_trainer(corpus, **options)
    for i in range(10):
        whole.train_step(i / 10)
    first = make_trainer(corpus, **options)
    for i in range(stop):
        first.train_step(i / 10)
    saved = weights(first)
    second = make_trainer(corpus, **options)
    second.load_state_dict(saved)
    for i in range(stop, 10):
        second.train_step(i / 10)
    one, two = weights(whole), weights(second)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name
    for trainer in (whole, first, second):
        trainer.close()


@pytest.mark.parametrize(("kind", "rate"), [("adamw", 0.02), ("muon", 0.02), ("adagrad", 0.5)])
@pytest.mark.parametrize("options", [{}, {"full_softmax": 1, "negatives": 6}])
def test_the_map_before_the_softmax_is_trained_clipped_and_saved(corpus, tmp_path, options, kind, rate):
    optimizer = OptimizerConfig(kind=kind, learning_rate=rate, clip_norm=0.3, warmup=0.0, schedule="constant")
    trainer = make_trainer(corpus, softmax_width=5, optimizer=optimizer, **options)
    head, bound = trainer.head, []
    text = [line.split() for line in made_up_text(40).splitlines()]
    untrained = perplexity(trainer.model, text)
    assert head.projection_weight.shape == (5, 8)
    assert any(parameter is head.projection_weight for parameter in trainer.optimizer.dense)
    head.projection_weight.register_post_accumulate_grad_hook(lambda p: bound.append(p.grad))
    before = head.projection_weight.detach().clone()
    results = [trainer.train_step(0.5) for _ in range(60)]
    assert results[0].norm > 0.3
    assert bound[0].norm() <= 0.3  # scaled in place with all the others
    assert (head.projection_weight != before).all()
    trainer.close()
    after = perplexity(trainer.model, text)
    assert after.mean < 0.9 * untrained.mean

    trainer.model.save(tmp_path / "model")
    again = Checkpoint.load(tmp_path / "model")
    for name, tensor in head.state_dict().items():
        assert torch.equal(again.head.state_dict()[name], tensor), name
    assert perplexity(again, text) == after


def test_the_gradient_that_is_clipped_counts_the_map(corpus):
    """The norm that a step reports is that of all gradients, the map's among them."""
    trainer = make_trainer(corpus, softmax_width=5, full_softmax=1, negatives=6)
    squares = []
    for parameter in trainer.optimizer.dense:
        parameter.register_post_accumulate_grad_hook(lambda p: squares.append(p.grad.double().square().sum()))
    made = trainer.head.rows
    kept = []
    trainer.head.rows = lambda *ids: kept.append(made(*ids)) or kept[-1]
    norm = trainer.train_step(0.5).norm  # far below clip_norm: the rows' gradients are as they were
    squares += [tensor.grad.double().square().sum() for tensor in (kept[0].weight, kept[0].bias)]
    assert norm == pytest.approx(float(sum(squares)) ** 0.5, rel=1e-5)
    trainer.close()


def test_muon_takes_what_multiplies(corpus):
    """Every matrix but the table of characters and the softmax, whose rows are looked up."""
    trainer = make_trainer(corpus, softmax_width=5, optimizer=MUON)
    names = {id(p): name for part in (trainer.bilm, trainer.head) for name, p in part.named_parameters()}
    left = {name for part in (trainer.bilm, trainer.head) for name, p in part.named_parameters() if p.dim() == 2}
    left -= {names[id(matrix)] for matrix in trainer.optimizer.muon.matrices}
    assert left == {"encoder.character_embedding.weight", "weight"}
    assert len(trainer.optimizer.muon.matrices) == 12 + 4 + 1 + 1  # of LSTMs, highways and both projections
    trainer.close()


def test_reset_makes_sentences_independent_of_what_came_before(corpus):
    trainer = make_trainer(corpus, state="reset")
    window = next(trainer.windows)
    before = trainer.hidden(window)[0]
    trainer.state = type(trainer.state)(*(torch.randn_like(part) for part in trainer.state))
    after = trainer.hidden(window)[0]
    for one, two in zip(before, after):  # every row of the first window begins with a sentence
        torch.testing.assert_close(one, two)
    trainer.close()


def test_either_forgets_before_some_sentences_and_not_before_others(corpus):
    trainer = make_trainer(corpus, state="either", rows=64)
    window = next(trainer.windows)
    before = trainer.hidden(window)[0][0]  # [R, T, P]
    trainer.state = type(trainer.state)(*(torch.randn_like(part) for part in trainer.state))
    after = trainer.hidden(window)[0][0]
    same = (before - after).abs().amax(dim=(1, 2)) < 1e-6  # every row of the first window begins with a sentence
    assert 16 < same.sum() < 48
    begins = trainer._begins(window)
    assert not (begins & ~torch.from_numpy(window.begins)).any()
    assert torch.equal(begins, trainer._begins(window))  # the same step draws the same
    trainer.step += 1
    assert not torch.equal(begins, trainer._begins(window))
    trainer.close()


def test_dropout_is_drawn_anew_every_step_and_scaled(corpus):
    trainer = make_trainer(corpus, dropout=0.5)
    x = torch.ones(4, 5, 8)
    places = [(direction, layer) for direction in (0, 1) for layer in (0, 1, 2)]
    first, second = trainer._dropout(x, 0, 0), trainer._dropout(x, 0, 1)
    assert len({trainer._dropout(x, *place).numpy().tobytes() for place in places}) == len(places)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)
    assert torch.equal(trainer._dropout(x, 0, 0), first)  # the same step draws the same
    trainer.step += 1
    assert not torch.equal(trainer._dropout(x, 0, 0), first)
    trainer.close()


def test_the_golden_loss_curve(tmp_path):
    """Twenty steps that any refactoring must reproduce. To make it anew on purpose: delete the file."""
    curves = {}
    sampled = {"full_softmax": 1, "negatives": 12}
    for name, optimizer, options in (("full", FAST, {}), ("sampled", FAST, sampled), ("muon", MUON, sampled)):
        folder = tmp_path / name
        folder.mkdir()
        corpus = make_corpus(folder, made_up_text(60))
        trainer = make_trainer(corpus, rows=8, steps=10, dropout=0.1, optimizer=optimizer, **options)
        curves[name] = [round(trainer.train_step(i / 20).loss, 6) for i in range(20)]
        trainer.close()
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(curves, indent=1) + "\n")
    expected = json.loads(GOLDEN.read_text())
    for name, curve in curves.items():
        np.testing.assert_allclose(curve, expected[name], atol=2e-4, err_msg=name)
        assert np.mean(curve[-4:]) < np.mean(curve[:4])


@pytest.mark.slow
def test_it_learns_two_hundred_sentences_by_heart(tmp_path):
    """Each sentence has a first and a last word of its own, so that both directions can know what comes; which
    of the 200 it is, nobody can know: that alone is a perplexity of 1.38."""
    lines = [
        f"f{i} " + line.removesuffix(" .") + f" l{i}"
        for i, line in enumerate(made_up_text(200, shortest=10, longest=18).splitlines())
    ]
    corpus = make_corpus(tmp_path, "\n".join(lines) + "\n")
    config = TrainConfig(rows=40, steps=16, dropout=0.0, min_count=1, state="reset")
    model = small_config(cells=128, width=32)
    recipe = Recipe(model=model, tokenizer=TokenizerConfig("whitespace"), train=config, optimizer=FAST)
    trainer = Trainer(fresh_model(recipe, corpus), corpus, config, FAST)
    for i in range(STEPS_BY_HEART):
        trainer.train_step(i / STEPS_BY_HEART)
    trainer.close()
    assert perplexity(trainer.model, [line.split() for line in lines], state="zero").mean < 2


def test_a_model_without_a_head_is_refused(corpus):
    trainer = make_trainer(corpus)
    trainer.close()
    with pytest.raises(ValueError, match="without a softmax head"):
        make_trainer(corpus, model=dataclasses.replace(trainer.model, head=None))


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"dropout": 1.0}, {"steps": -1}, {"softmax_width": -1}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TrainConfig(**wrong)

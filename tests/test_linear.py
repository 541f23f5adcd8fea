"""The linear probe against scikit-learn's on the same features, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from elmokit import Elmo
from elmokit.analysis.probes.linear import fit
from elmokit.analysis.probes.pairs import read_pairs


def blobs(classes: int, examples: int = 3000, width: int = 24):
    """Correlated features of very different sizes, one of them constant; classes that overlap."""
    rng = np.random.default_rng(classes)
    hidden = rng.normal(size=(examples, width)) @ (rng.normal(size=(width, width)) * np.linspace(0.01, 1, width))
    scores = hidden @ rng.normal(size=(width, classes)) * 0.2 + rng.gumbel(size=(examples, classes))
    features = hidden * np.logspace(-2, 2, width) + np.linspace(-5, 5, width)
    features[:, 3] = 7.0
    return features.astype(np.float32), scores.argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3, 17])
@pytest.mark.parametrize("l2", [0.1, 1.0, 50.0])
def test_it_equals_scikit_learn(classes, l2):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    features, labels = blobs(classes)
    train, dev = slice(0, 2000), slice(2000, None)
    scale = features[train].std(axis=0)
    wide = features.astype(np.float64)
    standard = (wide - wide[train].mean(axis=0)) / np.where(scale > 0, scale, 1)
    theirs = linear_model.LogisticRegression(C=(2 if classes == 2 else 1) / l2, tol=1e-7, max_iter=5000)
    theirs.fit(standard[train], labels[train])
    tight = fit(features[train], labels[train], classes, l2, tolerance=1e-6, iterations=1000)
    ours = tight.weights.numpy().T - tight.weights.numpy().T.mean(axis=0)
    expected = theirs.coef_ if classes > 2 else np.concatenate([-theirs.coef_, theirs.coef_]) / 2
    # The penalty makes the sum over the classes zero at the minimum.
    np.testing.assert_allclose(ours, expected, atol=2e-3 * np.abs(expected).max())
    for probe in (tight, fit(features[train], labels[train], classes, l2)):
        accuracy = probe.accuracy(features[dev], labels[dev])
        assert accuracy == pytest.approx(theirs.score(standard[dev], labels[dev]), abs=0.001 + 1e-9)
    assert tight.iterations < 1000


@pytest.mark.slow
def test_it_equals_scikit_learn_on_the_layers_of_a_bilm():
    """Few examples that can almost be told apart: a flat way to the minimum."""
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    elmo = Elmo.from_pretrained("en-small")
    contexts = (text for pair in read_pairs("en") for sense in pair.contexts for text in sense)
    sentences = [elmo.tokens(text.replace("[", "").replace("]", "")) for text in contexts]
    features = np.concatenate([layers[1] for layers in elmo.embed(sentences)])
    letters = sorted({token[-1] for sentence in sentences for token in sentence})
    labels = np.array([letters.index(token[-1]) for sentence in sentences for token in sentence])
    train, dev = slice(0, 2500), slice(2500, 4000)
    mean, scale = features[train].mean(axis=0), features[train].std(axis=0)
    theirs = linear_model.LogisticRegression(tol=1e-6, max_iter=5000)
    theirs.fit((features[train] - mean) / scale, labels[train])
    expected = theirs.score((features[dev] - mean) / scale, labels[dev])
    ours = fit(features[train], labels[train], len(letters)).accuracy(features[dev], labels[dev])
    assert ours == pytest.approx(expected, abs=0.001 + 1e-9)


def test_twice_the_same_to_the_bit_and_float16_is_enough():
    features, labels = blobs(5)
    first, second = (fit(features, labels, 5) for _ in range(2))
    assert (first.weights == second.weights).all()
    assert first.converged
    half = features.astype(np.float16)
    assert fit(half, labels, 5).accuracy(half, labels) == pytest.approx(
        first.accuracy(features, labels), abs=0.005
    )


def test_a_label_that_training_did_not_have_is_never_right():
    features = np.array([[0.0], [1.0]] * 20, dtype=np.float32)
    probe = fit(features, [0, 1] * 20, 2, 0.01)
    assert probe.predict(features[:2]).tolist() == [0, 1]
    assert probe.accuracy(features[:4], [0, 1, -1, -1]) == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros(4, np.float32)}, "examples, features"),
        ({"labels": [0, 1, 1]}, "one label per example"),
        ({"labels": [0, 1, 2, 1]}, "from 0 to 1, found 0 to 2"),
        ({"labels": [0, 0, 0, 0], "classes": 1}, "two classes or more"),
        ({"l2": 0.0}, "l2: expected a number above 0"),
        ({"features": np.full((4, 2), np.nan, np.float32)}, "finite numbers"),
    ],
)
def test_what_it_refuses(change, message):
    arguments = {"features": np.eye(4, 2, dtype=np.float32), "labels": [0, 1, 1, 0], "classes": 2, **change}
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


def test_other_features_than_in_training_are_refused():
    probe = fit(np.eye(4, 2, dtype=np.float32), [0, 1, 1, 0], 2)
    with pytest.raises(ValueError, match="expected 2 per row, as in training, found 3"):
        probe.predict(np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="as many labels"):
        probe.accuracy(np.zeros((1, 2), np.float32), [1, 0])

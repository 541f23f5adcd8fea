"""The linear probe: multinomial logistic regression by L-BFGS, to the minimum. Nothing in it is random.

Features are standardized by the training set's mean and variance. What is minimized is

    sum over examples of the cross entropy + l2 / 2 * sum of the squared weights (not of the biases),

which is what scikit-learn's LogisticRegression(C=1 / l2) minimizes on standardized features. With two classes
scikit-learn fits one vector, the difference of our two: there it is C=2 / l2.

The layers of a biLM have strongly correlated features, along which L-BFGS creeps. So it works on u, where the
weights are T u and T = (covariance / K + l2 / N)^(-1/2) makes the loss about equally curved in all directions at
u = 0. That changes the way to the minimum, not the minimum.

Shapes: N examples, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent, watched

Features = NDArray[np.floating[Any]]
Labels = Sequence[int] | NDArray[np.integer[Any]]

# Of powers of ten, the best or near it on parts of the training sets that were kept apart: parts of speech from
# 5,000 to 184,000 words, Korean reviews from 500 to 20,000; features 64 to 256 wide, of small or random models.
L2 = 1.0
ITERATIONS = 500
# The largest element of the mean loss's gradient by u. Few examples can almost be told apart, and the way to the
# minimum is long and flat: with 3e-4, 5,000 words were up to half a point from scikit-learn's accuracy.
TOLERANCE, ENOUGH = 3e-4, 150_000  # for so many examples; for fewer as much less,
LEAST = 1e-5  # but not what float32 cannot show
ROWS = 8192  # at one time: their features and scores stay in the processor's cache


@dataclass(frozen=True)
class LinearProbe:
    weights: Tensor  # [D, K], for standardized features
    bias: Tensor  # [K]
    mean: Tensor  # [D]
    scale: Tensor  # [D]
    iterations: int
    converged: bool  # False where `iterations` ran out first

    def predict(self, features: Features) -> NDArray[np.int64]:
        """[N, D] -> [N], the likeliest class of each."""
        self._check(features)
        predicted = np.empty(len(features), dtype=np.int64)
        for start in range(0, len(features), ROWS):
            scores = self._scores(features[start : start + ROWS])
            predicted[start : start + ROWS] = scores.argmax(dim=1).numpy()
        return predicted

    def probabilities(self, features: Features) -> NDArray[np.float32]:
        """[N, D] -> [N, K], of each class."""
        self._check(features)
        shares: NDArray[np.float32] = self._scores(features).softmax(dim=1).numpy()
        return shares

    def _scores(self, features: Features) -> Tensor:  # [N, D] -> [N, K]
        rows = torch.from_numpy(features.astype(np.float32))
        return ((rows - self.mean) / self.scale) @ self.weights + self.bias

    def _check(self, features: Features) -> None:
        _check_features(features)
        if features.shape[1] != len(self.mean):
            raise UserError(
                f"features: expected {len(self.mean)} per row, as in training, found {features.shape[1]}"
            )

    def accuracy(self, features: Features, labels: Labels) -> float:
        """The share of correct predictions, 0 to 1. A label that training did not have (-1) is never predicted."""
        gold = np.asarray(labels)
        if len(gold) != len(features) or not len(gold):
            raise UserError(f"expected as many labels as features, found {len(gold)} and {len(features)}")
        return float((self.predict(features) == gold).mean())


def fit(
    features: Features,
    labels: Labels,
    classes: int,
    l2: float = L2,
    *,
    iterations: int = ITERATIONS,
    tolerance: float | None = None,
) -> LinearProbe:
    """features [N, D] (float16 or wider), labels [N] from 0 to classes - 1."""
    _check_features(features)
    gold = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    if gold.shape != (len(features),) or not len(gold):
        raise UserError(f"expected one label per example, found {tuple(gold.shape)} and {len(features)} examples")
    if classes < 2 or int(gold.min()) < 0 or int(gold.max()) >= classes:
        raise UserError(
            f"labels: expected two classes or more, numbered from 0 to {classes - 1}, found "
            f"{int(gold.min())} to {int(gold.max())}"
        )
    if not l2 > 0:
        raise UserError(f"l2: expected a number above 0, found {l2}")
    if tolerance is None:
        tolerance = max(LEAST, TOLERANCE * min(1.0, len(features) / ENOUGH))
    mean, scale = _moments(features)
    x = torch.from_numpy(features.astype(np.float32)).sub_(mean).div_(scale)
    turn = _curvature(x, classes, l2)
    inverse = turn @ turn
    single = turn.float()
    for rows in torch.split(x, ROWS):
        rows.copy_(rows @ single)

    # The parameters in float64: a line search compares losses that hardly differ.
    u = torch.zeros(x.shape[1], classes, dtype=torch.float64)
    bias = torch.zeros(classes, dtype=torch.float64)
    optimizer = torch.optim.LBFGS(
        [u, bias],
        max_iter=iterations,
        max_eval=2 * iterations,
        tolerance_grad=tolerance,
        tolerance_change=1e-10,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        loss, slope, bias.grad = _cross_entropy(x, gold, u, bias)
        pull = l2 / len(x) * (inverse @ u)
        u.grad = slope + pull
        return loss + float((pull * u).sum()) / 2

    with torch.no_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        closure()
    assert u.grad is not None
    assert bias.grad is not None
    largest = max(float(u.grad.abs().max()), float(bias.grad.abs().max()))
    done = int(optimizer.state[u]["n_iter"])
    return LinearProbe((turn @ u).float(), bias.float(), mean, scale, done, largest <= tolerance)


def accuracies(
    features: Iterable[tuple[Features, Features]],
    kinds: int,
    labels: Labels,
    gold: Labels,
    classes: int,
    l2: float = L2,
    on_progress: OnProgress = silent,
) -> list[float]:
    """The accuracy of one probe per kind of features: so many pairs, of the training and the development set.

    labels   of the training examples.
    gold     of the development examples; -1 is a label that training does not have.
    """
    pairs = watched(features, kinds, "fitting", on_progress)
    return [fit(train, labels, classes, l2).accuracy(dev, gold) for train, dev in pairs]


def _cross_entropy(x: Tensor, labels: Tensor, u: Tensor, bias: Tensor) -> tuple[float, Tensor, Tensor]:
    """The mean over the examples, and its gradient by u and bias; sums in float64."""
    single, offset = u.float(), bias.float()
    loss, slope, bias_slope = 0.0, torch.zeros_like(u), torch.zeros_like(bias)
    for rows, gold in zip(torch.split(x, ROWS), torch.split(labels[:, None], ROWS)):
        log_p = torch.addmm(offset, rows, single).log_softmax(dim=1)  # [rows, K]
        loss -= float(log_p.gather(1, gold).sum(dtype=torch.float64))
        error = log_p.exp_().scatter_add_(1, gold, torch.full(gold.shape, -1.0))
        slope += rows.T @ error
        bias_slope += error.sum(dim=0, dtype=torch.float64)
    return loss / len(x), slope.div_(len(x)), bias_slope.div_(len(x))


def _curvature(x: Tensor, classes: int, l2: float) -> Tensor:
    """T [D, D], the inverse root of the loss's second derivative where all classes are equally likely."""
    covariance = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for rows in torch.split(x, ROWS):
        covariance += rows.T @ rows
    values, vectors = torch.linalg.eigh(covariance / (len(x) * classes))
    turn: Tensor = (vectors / (values.clamp_min(0.0) + l2 / len(x)).sqrt()) @ vectors.T
    return turn


def _moments(features: Features) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [D]; 1 for a feature that never changes."""
    total = np.zeros(features.shape[1])
    for start in range(0, len(features), ROWS):
        total += features[start : start + ROWS].sum(axis=0, dtype=np.float64)
    mean = total / len(features)
    squares = np.zeros(features.shape[1])
    for start in range(0, len(features), ROWS):
        squares += np.square(features[start : start + ROWS] - mean).sum(axis=0)
    scale = np.sqrt(squares / len(features))
    if not np.isfinite(scale).all():
        raise UserError("features: expected finite numbers, found NaN or an infinite one")
    scale[scale <= 1e-6 * np.maximum(1.0, np.abs(mean))] = 1.0
    return torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(scale.astype(np.float32))


def _check_features(features: Features) -> None:
    if features.ndim != 2:
        raise UserError(f"features: expected an array [examples, features], found the shape {features.shape}")

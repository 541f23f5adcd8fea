"""One word in many contexts, in two dimensions by layer: do its senses part?

Each layer's vectors are shown by their two principal components. How well senses part is measured in all
dimensions: the share of occurrences whose nearest other one, by cosine, has the same sense. Of others that are
equally near, as at layer 0, each counts its part.

Shapes: L layers, N occurrences, D width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.marked import cosines, word_vectors
from elmokit.analysis.contexts.occurrences import (
    LIMIT,
    Occurrence,
    occurrences_in_pairs,
    occurrences_in_tagged,
    occurrences_in_text,
)
from elmokit.analysis.model import Model, open_model
from elmokit.analysis.probes.sense_corpus import SenseCorpus, read_senses
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Cell, Exhibit, percent, stem
from elmokit.show.figures import COLOURS, INK, MARKERS, legend_below, plain

LIKE = 1e-6  # cosines that differ by less are equal
NUMBERED = 30  # so many points may carry their number in the figure
KINDS = len(COLOURS) - 1  # senses with a colour of their own; yellow is too pale for points
OTHER = "#999999"
AROUND = 6  # words of an example before and after the word


@dataclass(frozen=True)
class PolysemyResult:
    word: str
    source: str  # where the occurrences are from
    occurrences: tuple[Occurrence, ...]
    points: tuple[tuple[tuple[float, float], ...], ...]  # by layer, one per occurrence; the token layer first
    variance: tuple[float, ...]  # by layer: the share that two dimensions show, 0 to 1; 1 where there is none
    separation: tuple[float, ...] | None  # by layer, 0 to 1; None where senses are unknown or there is one only
    chance: float | None  # what separation would be if the nearest were any other

    @property
    def senses(self) -> list[tuple[str, int]]:
        """The senses and how many occurrences have each, the frequent first."""
        return Counter(o.sense for o in self.occurrences if o.sense is not None).most_common()

    @property
    def forms(self) -> int:
        return len({occurrence.form for occurrence in self.occurrences})

    def exhibit(self) -> Exhibit:
        """A row and a panel per layer."""
        rows: list[tuple[Cell, ...]] = []
        for layer, variance in enumerate(self.variance):
            share = None if self.separation is None else percent(self.separation[layer])
            rows.append((f"layer {layer}", share, percent(variance)))
        if self.chance is not None:
            rows.append(("chance", percent(self.chance), None))
        return Exhibit(
            name=f"polysemy-{stem(self.word)}",
            title=f"{self.word}: its occurrences, by layer",
            columns=("representation", "nearest has the same sense (%)", "variance in two dimensions (%)"),
            rows=tuple(rows),
            notes=self._notes(),
            draw=self._draw,
            paper="section 5.3",
        )

    def listing(self) -> Exhibit:
        """Every occurrence: its number in the figure, its sentence, where it stands in each layer."""
        axes = [f"layer {layer} {axis}" for layer in range(len(self.points)) for axis in "xy"]
        rows = tuple(
            (number, o.sense, o.sentence, *(round(c, 6) for layer in self.points for c in layer[number - 1]))
            for number, o in enumerate(self.occurrences, start=1)
        )
        name = f"polysemy-{stem(self.word)}-occurrences"
        columns = ("number", "sense", "sentence", *axes)
        return Exhibit(name, f"{self.word}: the occurrences", columns, rows, (self._drawn_from(),))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        occurrences = [
            {
                "sentence": o.sentence,
                "form": o.form,
                "sense": o.sense,
                "key": o.key,
                "points": [layer[i] for layer in self.points],
            }
            for i, o in enumerate(self.occurrences)
        ]
        return {
            "word": self.word,
            "separation": self.separation,
            "chance": self.chance,
            "variance": self.variance,
            "senses": dict(self.senses),
            "occurrences": occurrences,
        }

    def _drawn_from(self) -> str:
        forms = "one form" if self.forms == 1 else f"{self.forms} forms"
        return f"{len(self.occurrences):,} occurrences of {forms}, from {self.source}"

    def _notes(self) -> tuple[str, ...]:
        alone = "all occurrences are one point" if self.forms == 1 else f"{self.forms} forms are as many points"
        notes = [self._drawn_from(), f"Layer 0 sees the word alone: {alone}."]
        if self.senses:
            notes += [
                f"Sense {i}, {sense} ({count:,}): {self._example(sense)}"
                for i, (sense, count) in enumerate(self.senses[:KINDS], start=1)
            ]
            if rare := [count for _, count in self.senses[KINDS:]]:
                notes.append(f"Rarer senses: {len(rare)}, {sum(rare):,} occurrences together.")
        if self.separation is None:
            why = "all occurrences have the same sense" if self.senses else "the senses are not known"
            return (*notes, f"How well senses part is not measured: {why}.")
        best = int(np.argmax(self.separation))
        if best and self.separation[best] > self.separation[0]:
            found = f"Senses part better with context than without, best at layer {best}"
        else:
            found, best = "Context does not part the senses: no layer is above layer 0", 0
        beside = f"layer 0 {self.separation[0]:.1%}, " if best else ""
        return (*notes, f"{found} ({self.separation[best]:.1%}; {beside}chance {self.chance or 0:.1%}).")

    def _example(self, sense: str) -> str:
        """The first occurrence that has it, and the words around it."""
        tokens, start, end, *_ = next(o for o in self.occurrences if o.sense == sense)
        before, after = tokens[max(0, start - AROUND) : start], tokens[end : end + AROUND]
        part = [*before, f"[{' '.join(tokens[start:end])}]", *after]
        return " ".join(
            [*(["…"] if start > AROUND else []), *part, *(["…"] if len(tokens) > end + AROUND else [])]
        )

    def _draw(self, figure: Any) -> None:
        panels = len(self.points)
        figure.set_size_inches(max(3.2 * panels, 4.5), 3.7)
        numbers = {sense: i for i, (sense, _) in enumerate(self.senses[:KINDS])}
        drawn: list[Any] = []
        for layer, axes in enumerate(figure.subplots(1, panels, squeeze=False)[0]):
            drawn = _scatter(axes, self.points[layer], self.occurrences, numbers)
            axes.set(title=f"layer {layer}", xlabel="1st component", ylabel="2nd component" if layer == 0 else "")
            if not np.any(self.points[layer]):
                axes.set(xlim=(-1, 1), ylim=(-1, 1))
                axes.annotate(
                    f"all {len(self.occurrences)} in one point",
                    (0, 0),
                    (0, 12),
                    textcoords="offset points",
                    ha="center",
                )
            elif len(self.occurrences) <= NUMBERED and len(set(self.points[layer])) > self.forms:
                for number, point in enumerate(self.points[layer], start=1):
                    axes.annotate(str(number), point, (4, 3), textcoords="offset points", fontsize=7)
            plain(axes)
        legend_below(figure, drawn)


def polysemy(
    model: Model,
    word: str,
    *,
    corpus: str | Path | None = None,
    senses: str | Path | None = None,
    tagged: str | Path | SenseCorpus | None = None,
    forms: Collection[str] = (),
    limit: int = LIMIT,
    seed: int = 0,
    tokenizer: str | None = None,
    on_progress: OnProgress = silent,
) -> PolysemyResult:
    """The occurrences of a word, found in what is given, as every layer sees them.

    corpus      plain text: senses unknown. The first `limit` occurrences of the word, or of its other `forms`.
    senses      a file of word pairs, or en or ko: two senses. Alone, or beside a corpus.
    tagged      a sense-tagged corpus, X.data.xml with its keys beside it, or what `read_senses` read: `limit`
                occurrences by the `seed`, of the word as a dictionary has it.
    tokenizer   instead of the model's own, for a model given by its name.
    """
    given = [source for source in (corpus, senses, tagged) if source is not None]
    if len(given) != 1 and (not given or tagged is not None):
        found = len(given) or "none of them"
        raise UserError(
            "expected a sense-tagged corpus (--tagged), or plain text (--corpus) or senses (--senses) or these "
            f"two, found {found}"
        )
    if forms and corpus is None:
        raise UserError("other forms (--form) go with plain text (--corpus): elsewhere the word is marked")
    elmo = open_model(model, tokenizer)
    paths = [source.path if isinstance(source, SenseCorpus) else Path(source) for source in given]
    source = " and ".join(path.name for path in paths)
    if tagged is not None:
        read = tagged if isinstance(tagged, SenseCorpus) else read_senses(tagged)
        occurrences = occurrences_in_tagged(read, word, limit=limit, seed=seed)
        source += f", seed {seed}"
    else:
        known = [] if senses is None else occurrences_in_pairs(elmo, senses, word)
        unknown = [] if corpus is None else occurrences_in_text(elmo, corpus, word, forms=forms, limit=limit)
        occurrences = known + unknown
    return view_word(elmo, word, occurrences, source=source, on_progress=on_progress)


def view_word(
    elmo: Elmo,
    word: str,
    occurrences: Sequence[Occurrence],
    *,
    source: str = "",
    on_progress: OnProgress = silent,
) -> PolysemyResult:
    """The occurrences of a word as every layer sees them. `source` is named in the notes."""
    if len(occurrences) < 2:
        raise UserError(
            f"expected two occurrences or more of {word!r}{f' in {source}' if source else ''}, found "
            f"{len(occurrences)}: give a longer text, or another word or form"
        )
    marked = [occurrence.marked for occurrence in occurrences]
    layers = word_vectors(elmo, marked, on_progress).swapaxes(0, 1)  # [L, N, D]
    planes = [principal_plane(vectors) for vectors in layers]
    parted = separation(layers, [occurrence.sense for occurrence in occurrences])
    return PolysemyResult(
        word=word,
        source=source,
        occurrences=tuple(occurrences),
        points=tuple(tuple((float(x), float(y)) for x, y in points) for points, _ in planes),
        variance=tuple(share for _, share in planes),
        separation=None if parted is None else parted[0],
        chance=None if parted is None else parted[1],
    )


def principal_plane(vectors: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float64], float]:
    """[N, D] -> the first two principal components [N, 2], and the share of the variance that they show.

    A component's sign is that which makes its largest weight positive. Vectors that are equal but for rounding
    are one point.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    rounding = 1e-6 * np.linalg.norm(vectors)
    if lengths[0] <= rounding:
        return np.zeros((len(vectors), 2)), 1.0
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    points = np.zeros((len(vectors), 2))
    kept = int((lengths[:2] > rounding).sum())  # points on a line do not part across it
    points[:, :kept] = (left * lengths * signs)[:, :kept]
    return points, float((lengths[:2] ** 2).sum() / (lengths**2).sum())


def separation(
    layers: NDArray[np.floating[Any]], senses: Sequence[str | None]
) -> tuple[tuple[float, ...], float] | None:
    """[L, N, D] -> the share, by layer, of occurrences whose nearest other has their sense; and that by chance.

    A sense that occurs once cannot be correct: it is not asked for, but may be the nearest. None where fewer than
    two senses are known or none occurs twice.
    """
    known = [i for i, sense in enumerate(senses) if sense is not None]
    named = np.array([senses[i] for i in known])
    same = (named[:, None] == named[None, :]) & ~np.eye(len(known), dtype=bool)
    asked = same.any(axis=1)
    if len(set(named)) < 2 or not asked.any():
        return None
    shares = []
    for near in cosines(layers[:, known].swapaxes(0, 1).astype(np.float32)):
        np.fill_diagonal(near, -np.inf)
        nearest = near >= near.max(axis=1, keepdims=True) - LIKE
        shares.append(float(((nearest & same).sum(axis=1) / nearest.sum(axis=1))[asked].mean()))
    return tuple(shares), float(same.sum(axis=1)[asked].mean() / (len(known) - 1))


def _scatter(
    axes: Any,
    points: Sequence[tuple[float, float]],
    occurrences: Sequence[Occurrence],
    numbers: dict[str, int],
) -> list[Any]:
    """One colour and marker per sense; small grey dots for the rare ones, and for those that are not known."""
    kinds = [None if occurrence.sense is None else numbers.get(occurrence.sense, -1) for occurrence in occurrences]
    named = {number: f"{number + 1}  {sense}" for sense, number in numbers.items()}
    drawn = []
    for kind, label in [*named.items(), (-1, "rarer senses"), (None, "sense not known")]:
        chosen = [point for point, of in zip(points, kinds) if of == kind]
        if not chosen:
            continue
        style = (COLOURS[kind], MARKERS[kind]) if kind is not None and kind >= 0 else (OTHER, ".")
        drawn.append(
            axes.scatter(
                *zip(*chosen), s=30, color=style[0], marker=style[1], edgecolors=INK, linewidths=0.4, label=label
            )
        )
    return drawn

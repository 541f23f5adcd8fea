"""The curve of a run: ticks that can be read, and a legend that names every line."""

from __future__ import annotations

import json

import pytest

from elmokit.pretrain import metrics

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("perplexities", "ticks"),
    [((7000.0, 900.0, 160.0), {"200", "500", "1,000", "2,000", "5,000"}), ((230.0, 200.0, 190.0), {"200"})],
)
def test_the_curve_has_readable_ticks_and_a_legend(tmp_path, monkeypatch, perplexities, ticks):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k)))
    with (tmp_path / metrics.FILE).open("w") as lines:
        for i, p in enumerate(perplexities, start=1):
            lines.write(json.dumps({"step": i, "tokens": 10**6 * i, "loss": 9.0 - i}) + "\n")
            values = {"perplexity": p, "perplexity_forward": p - 5, "perplexity_backward": p + 5}
            lines.write(json.dumps({"step": i, "tokens": 10**6 * i, **values}) + "\n")
    assert metrics.draw_curve(tmp_path).is_file()
    (figure,) = drawn
    loss, right = figure.axes
    low, high = right.get_ylim()
    majors = zip(right.yaxis.get_majorticklocs(), right.yaxis.get_majorticklabels())
    labels = {label.get_text() for place, label in majors if low <= place <= high}
    assert ticks <= labels
    assert 2 <= len(labels) <= 12
    assert not any("$" in label for label in labels)
    assert not any(label.get_text() for label in right.yaxis.get_minorticklabels())
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [line.get_label() for line in (*loss.lines, *right.lines)]
    assert names[0] == "training loss (left)"

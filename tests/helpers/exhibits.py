"""An exhibit with everything that is awkward: quotes, markup, gaps, Korean, and a figure of bars."""

from __future__ import annotations

from elmokit.show.exhibit import Exhibit
from elmokit.show.figures import draw_bars


def bars(figure):
    draw_bars(
        figure, ["배", "$x", "_y"], {"눈 [a]": [1.0, 2.0, 3.0]}, xlabel="단어", ylabel="%", lines={"기준": 2.5}
    )


def make_exhibit(draw=bars) -> Exhibit:
    """A new one: a figure is drawn once for each."""
    return Exhibit(
        name="words-1",
        title="Words <b> [bold]",
        columns=("word", "score (%)", "count"),
        rows=(('눈, "quoted"\nline', 66.66666, 1234), ("[red]plain[/red]", None, None), ("-", float("nan"), 0)),
        notes=("seed 0", "배"),
        draw=draw,
        paper="Table 9",
    )

"""elmo score: the log probability of every token, in both directions."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    Header,
    Model,
    OnBadLine,
    State,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    check_texts,
    use_threads,
)

if TYPE_CHECKING:
    from elmokit.pretrain.perplexity import Scores


def score(
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="One sentence per line; also .gz .bz2 .xz .zst; - is stdin.")
    ] = "-",
    *,
    model: Model = DEFAULT_MODEL,
    state: State = "zero",
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON per sentence instead of columns.")
    ] = False,
) -> None:
    """How probable each token is, given those before it (forward) and given those after it (backward).

    Prints a line per token: the token, log p forward, log p backward, and 1 for an unknown word (scored as
    `<UNK>`), with tabs between them and an empty line after each sentence. Nothing predicts `<S>` forward or
    `</S>` backward: these fields are empty.

    Examples:

    `elmo score text.txt > scores.tsv`

    `echo "He sat on the bank ." | elmo score --json`
    """
    check_texts([source])
    use_threads(threads)
    from elmokit.pretrain.perplexity import BATCH_TOKENS, score
    from elmokit.text.columns import asked_columns
    from elmokit.text.corpus import open_text

    waiting = source == "-" and sys.stdin.isatty()  # somebody types: answer each line
    columns = asked_columns(text_column, None, header, table_format)
    with open_text(source, on_bad_line, columns) as lines:
        sentences = (line.text for line in lines)
        batch_tokens = 1 if waiting else BATCH_TOKENS
        for scores in score(model, sentences, state=state, tokenizer=tokenizer, batch_tokens=batch_tokens):
            typer.echo(_as_json(scores) if as_json else _as_columns(scores))
    if lines.skipped:
        typer.echo(f"skipped {len(lines.skipped):,} lines that cannot be read", err=True)


def _as_columns(scores: Scores) -> str:
    return "".join(f"{s.token}\t{_shown(s.forward)}\t{_shown(s.backward)}\t{int(s.unknown)}\n" for s in scores)


def _shown(log_p: float | None) -> str:
    return "" if log_p is None else f"{log_p:.6f}"


def _as_json(scores: Scores) -> str:
    totals = {
        "forward": sum(s.forward or 0.0 for s in scores),
        "backward": sum(s.backward or 0.0 for s in scores),
    }
    return json.dumps({"tokens": [s._asdict() for s in scores], **totals}, ensure_ascii=False)

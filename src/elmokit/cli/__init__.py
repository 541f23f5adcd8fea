"""The command `elmo`. One file per command; whatever is heavy is imported when a command runs."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated

import typer

from elmokit import __version__
from elmokit.cli.bench import bench
from elmokit.cli.convert import convert
from elmokit.cli.embed import embed
from elmokit.cli.fill import fill
from elmokit.cli.finetune import finetune
from elmokit.cli.index import index
from elmokit.cli.info import info
from elmokit.cli.models import models
from elmokit.cli.neighbours import neighbours
from elmokit.cli.perplexity import perplexity
from elmokit.cli.play import play
from elmokit.cli.polysemy import polysemy
from elmokit.cli.pretrain import pretrain
from elmokit.cli.probe import probe
from elmokit.cli.report import report
from elmokit.cli.score import score
from elmokit.cli.serve import serve
from elmokit.cli.shared.help import Command, Group
from elmokit.cli.shared.notices import show_notices
from elmokit.cli.similar import similar
from elmokit.cli.study import study
from elmokit.cli.task import task
from elmokit.errors import UserError

DEBUG = "ELMOKIT_DEBUG"  # 1: a bug is shown with its traceback

app = typer.Typer(
    name="elmo",
    cls=Group,
    help="ELMo: contextual word vectors on the machine you have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Example: `elmo embed text.txt -o vectors.h5`. Each command has its own --help.",
)
for command in (
    *(embed, similar, neighbours, info, models, convert, bench),
    *(pretrain, finetune, perplexity, score, fill),
    *(polysemy, study, report, serve, play),
):
    app.command(cls=Command)(command)
for group in (index, probe, task):
    app.add_typer(group)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"elmokit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    longest_line: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="Of text that is read; 64 MiB if not given.")
    ] = None,
) -> None:
    if longest_line is not None:
        os.environ["ELMO_LONGEST_LINE"] = str(longest_line)  # as text/corpus.py reads it
    show_notices()


def main() -> None:
    """What a user did wrong, or what the machine refused, is one line; anything else is a bug, and says so."""
    warnings.showwarning = _warn
    _let_threads_rest()
    try:
        app()
    except UserError as error:
        _fail(str(error))
    except Exception as error:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            raise
        _fail(refusal(error) or bug(error))


def _let_threads_rest() -> None:
    """torch's threads spin for milliseconds when they have nothing to do, on the cores that the kernels' threads
    need: a training step took a third longer. OpenMP reads this when torch is imported, which nobody has done yet.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "1000"


def refusal(error: Exception) -> str | None:
    """What the machine refused: a file that is not there, a full disk, too little memory."""
    if isinstance(error, FileExistsError) and error.errno is None:
        return str(error)  # ours: what exists is replaced only if asked
    if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's is a RuntimeError
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    where = f" ({error.filename})" if error.filename else ""
    hint = ": free some space, then run the same command again" if error.errno == errno.ENOSPC else ""
    return f"{error.strerror}{where}{hint}"


def bug(error: Exception) -> str:
    what = " ".join([f"{type(error).__name__}:", *str(error).split()])
    return (
        f"{what}\nThis is a bug in elmokit {__version__}, please report it. "
        f"{DEBUG}=1 before the same command shows where it happened."
    )


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning, for whoever has no line of code that it could be about."""
    typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    typer.echo(str(message), err=True)


def _fail(message: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(message.encode("utf-8", "backslashreplace").decode(), err=True)
    sys.exit(1)

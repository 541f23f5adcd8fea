"""What a user did wrong, and numbers and lists in messages, never longer than a reader wants."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Something that the caller can mend: the message says what was expected, what was found and what to do.

    The command shows it as one line. Whatever else is raised is a bug in elmokit, but for what the machine refused
    (OSError).
    """


def listed(items: Iterable[object], most: int = 10, longest: int = 60) -> str:
    """Names for a message: the first ones, each cut short, and how many more there are."""
    names = [clipped(item, longest) for item in items]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def listed_paths(paths: Iterable[object], most: int = 10) -> str:
    """A path that is cut short cannot be found."""
    return listed(paths, most, 1000)


def clipped(item: object, most: int = 60) -> str:
    """A name or a piece of data for a message: one line, not longer than what shows which it is."""
    text = " ".join(str(item)[: 4 * most].split())
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, noun: str) -> str:
    """1 sentence, 2 sentences."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")

"""Help pages: a flag takes no value, so none is shown for it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_values(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_values(super().get_params(ctx))


def without_values(params: list[Any]) -> list[Any]:
    """Newer versions of typer write <bool> behind every flag, --help too."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params

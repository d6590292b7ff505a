"""Shared by the commands: lists in flags, forms of output."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import typer

from streamgauge.errors import InputError

T = TypeVar("T")


class Form(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"
    html = "html"


def listed(text: str | None, kind: Callable[[str], T], flag: str, what: str) -> tuple[T, ...] | None:
    """ "4,12" -> (4, 12); None stays None."""
    if text is None:
        return None
    try:
        values = tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{flag}: {text!r} is not a comma-separated list of {what}") from None
    if not values:
        raise InputError(f"{flag}: {text!r} is an empty list; give {what}, or leave {flag} out")
    return values


def names(text: str | None, flag: str = "--select") -> tuple[str, ...]:
    """Codes, names or family letters of rules."""
    return listed(text, str, flag, "names") or ()


def rules_of(select: str | None, ignore: str | None) -> dict[str, Any]:
    """The arguments select, ignore, thresholds of `examine`: from the flags, else from the project's settings."""
    from streamgauge.settings import load_settings

    settings = load_settings()
    return {
        "select": settings.select if select is None else names(select),
        "ignore": settings.ignore if ignore is None else names(ignore, "--ignore"),
        "thresholds": settings.thresholds,
    }


def path(text: str) -> Path:
    """A path that was given: an empty one would mean the current folder."""
    if not text.strip():
        raise typer.BadParameter("an empty path; give the name of a file or folder")
    return Path(text)

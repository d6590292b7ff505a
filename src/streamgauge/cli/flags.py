"""Shared by the commands: lists in flags, forms of output."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

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
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{flag}: {text!r} is not a comma-separated list of {what}") from None


def names(text: str | None) -> tuple[str, ...]:
    """Codes, names or family letters of rules."""
    return listed(text, str, "--select", "names") or ()

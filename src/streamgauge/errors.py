"""The one error that a user's input can cause, and the closest match that goes into it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message is one line that names what is wrong, where, and how to mend it; the command line prints it and
    leaves with exit code 2.
    """


LISTED = 12
"""A hint lists at most this many names."""


def closest(name: str, known: Iterable[str]) -> str:
    """A hint that ends an error about a misspelt name: the closest known name, else the names, at most `LISTED`."""
    names = sorted(known)
    match = difflib.get_close_matches(str(name)[:100], names, n=1, cutoff=0.6)
    if match:
        return f"did you mean {match[0]!r}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"known: {', '.join(names[:LISTED])}{more}"


def unknown(what: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that no registry or table holds."""
    return InputError(f"unknown {what} {name!r}; {closest(str(name), known)}")

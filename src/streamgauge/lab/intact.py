"""Whether a run's store can be read through, told before anything is made of it."""

from __future__ import annotations

import sqlite3
from typing import Any

from streamgauge.errors import InputError
from streamgauge.gauge.stored import StoredRun

DAMAGE = (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def check_intact(run: StoredRun) -> None:
    """InputError, one line, where a table, a page or a value of the store is damaged; reads all of it."""
    try:
        _read(run)
    except (
        sqlite3.Error,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{run.path}: the store is damaged ({why[:200]}); train it anew or restore a copy") from None


def _read(run: StoredRun) -> None:
    kinds: dict[str, type[Any]] = {"config": dict, "facts": dict, "versions": dict}
    for name, kind in kinds.items():
        if not isinstance(value := getattr(run, name), kind):
            raise TypeError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    entropy = run.facts.get("unigram_entropy")
    if entropy is not None and not isinstance(entropy, int | float):
        raise TypeError("unigram_entropy is no number")
    _ = (run.wiring, run.status, run.meta, run.events(), run.saved_findings())
    for name in run.signals:
        run.readings(name)

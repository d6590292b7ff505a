"""Reading a run back: its meta data, wiring, readings, events and saved findings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from streamgauge.errors import InputError, unknown
from streamgauge.gauge.process import alive
from streamgauge.gauge.schema import FILE, damaged, reading, store_file
from streamgauge.gauge.signals import SIGNALS
from streamgauge.gauge.store import Status
from streamgauge.vocabulary import RUN, Finding, Place, Reading, Readings, Wiring

Connect = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Event(NamedTuple):
    """Something that happened at a step; step is None for what belongs to no step."""

    step: int | None
    kind: str
    detail: Any


class StoredRun:
    """A run as its store holds it at the moment of each call, so that a run under way can be followed."""

    def __init__(self, path: Path | None, connect: Connect) -> None:
        self.path = path
        self.connect = connect

    def _all(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with self.connect() as connection:
                return connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the driver decodes text
            raise self._damaged(error) from None

    def _damaged(self, why: object) -> InputError:
        return damaged(None if self.path is None else self.path / FILE, why)

    def _json(self, text: Any, where: str, kind: type | None = None) -> Any:
        try:
            value = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._damaged(f"{where} is not JSON ({error})") from None
        if kind is not None and not isinstance(value, kind):
            raise self._damaged(f"{where} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    @property
    def meta(self) -> dict[str, Any]:
        """Table `run` as it stands: config, facts, wiring, versions, status, process ..."""
        return {key: self._json(text, f"run.{key}") for key, text in self._all("SELECT key, value FROM run")}

    def _meta(self, key: str, default: Any, kind: type | None = None) -> Any:
        rows = self._all("SELECT value FROM run WHERE key = ?", (key,))
        return self._json(rows[0][0], f"run.{key}", kind) if rows else default

    @property
    def config(self) -> dict[str, Any]:
        """What the run was started with, as given to the gauge."""
        return self._meta("config", {})  # type: ignore[no-any-return]

    @property
    def facts(self) -> dict[str, Any]:
        """What is known about model, optimizer and data beyond the readings."""
        return self._meta("facts", {}, dict)  # type: ignore[no-any-return]

    @property
    def versions(self) -> dict[str, str]:
        """The software that made the run."""
        return self._meta("versions", {}, dict)  # type: ignore[no-any-return]

    @property
    def wiring(self) -> Wiring | None:
        """The wiring of the model, or None where none was read."""
        data = self._meta("wiring", None)
        try:
            return None if data is None else Wiring.from_dict(data)
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(f"run.wiring is no wiring ({error})") from None

    @property
    def status(self) -> Status:
        """running, finished, or interrupted: by an exception, or by the death of the process."""
        meta = self.meta
        status = meta.get("status", "interrupted")
        if status not in get_args(Status):
            raise self._damaged(f"run.status is {status!r}")
        try:
            lives = status != "running" or alive(meta.get("process", {}), float(meta.get("updated", 0.0)))
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise self._damaged("run.process or run.updated says nothing of a process") from None
        return status if lives else "interrupted"

    @property
    def signals(self) -> dict[str, str]:
        """Name -> unit of the signals that have readings."""
        return dict(self._all("SELECT name, unit FROM signal ORDER BY id"))

    @property
    def places(self) -> tuple[Place, ...]:
        """The sublayers where the gauge measures, in execution order."""
        rows = self._all('SELECT "index", path, kind FROM place WHERE "index" >= 0 ORDER BY "index"')
        if any(not isinstance(index, int) for index, *_ in rows):
            raise self._damaged("a place has no number")
        return tuple(Place(*row) for row in rows)

    def readings(self, signal: str) -> Readings:
        """All readings of one signal; no steps for a signal that is known but was never measured."""
        rows = self._all("SELECT id, unit, level FROM signal WHERE name = ?", (signal,))
        if not rows and signal not in SIGNALS:
            raise unknown("signal", signal, {*SIGNALS, *self.signals})
        key, unit, level = rows[0] if rows else (-1, SIGNALS[signal].unit, SIGNALS[signal].level)
        places = (RUN,) if level == "run" else self.places
        found = self._all("SELECT step, place, value FROM reading WHERE signal = ? ORDER BY step, place", (key,))
        try:
            table = np.array(found, dtype=np.float64).reshape(-1, 3)  # NULL becomes NaN
        except (TypeError, ValueError):
            raise self._damaged(f"a reading of {signal} is no number") from None
        steps, row = np.unique(table[:, 0].astype(np.int64), return_inverse=True)
        column = {place.index: i for i, place in enumerate(places)}
        values = np.full((len(steps), len(places)), np.nan)
        try:
            values[row, [column[int(index)] for index in table[:, 1]]] = table[:, 2]
        except (KeyError, ValueError, OverflowError) as error:
            raise self._damaged(f"a reading of {signal} lies at an unknown place ({error})") from None
        return Readings(signal, values, steps, places, unit)

    def non_finite(self) -> list[Reading]:
        """The readings that were taken and are NaN or infinite, by step and place."""
        rows = self._all(
            "SELECT step, name, place, value FROM reading JOIN signal ON signal.id = reading.signal "
            "WHERE value IS NULL OR abs(value) > 1.7976931348623157e308 ORDER BY step, place"
        )
        return [Reading(step, name, place, np.nan if value is None else value) for step, name, place, value in rows]

    def events(self, kind: str | None = None) -> list[Event]:
        """What happened, in order: wiring, places, alarm, non-finite, exception ..., or one kind of it."""
        rows = self._all("SELECT step, kind, json FROM event ORDER BY id")
        return [Event(step, k, self._json(detail, f"event {k}")) for step, k, detail in rows if kind in (None, k)]

    def saved_findings(self) -> list[Finding]:
        """The findings that the rules saved with the run."""
        texts = self._all("SELECT json FROM finding ORDER BY id")
        try:
            return [Finding.from_json(text) for (text,) in texts]
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(f"a finding cannot be read ({error})") from None

    def to_pandas(self) -> Any:
        """All readings as a DataFrame with the columns step, signal, unit, place, path, kind, value."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_pandas needs pandas; install it with: pip install 'streamgauge[pandas]'") from None
        rows = self._all(
            "SELECT step, name, unit, reading.place, path, kind, value FROM reading "
            "JOIN signal ON signal.id = reading.signal JOIN place ON place.id = reading.place ORDER BY 2, 1, 4"
        )
        frame = pd.DataFrame(rows, columns=["step", "signal", "unit", "place", "path", "kind", "value"])
        try:
            return frame.astype({"value": "float64"})
        except (TypeError, ValueError):
            raise self._damaged("a reading is no number") from None


def load_run(path: str | Path) -> StoredRun:
    """Open a run folder (or its run.sqlite) for reading: finished, under way, or left behind by a killed process.

    Raises InputError, one line: no such folder, no store in it, not a store, a newer format.
    """
    file = store_file(path)
    with reading(file):
        return StoredRun(file.parent, partial(reading, file))

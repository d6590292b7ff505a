"""The store of a run, written as the run goes: one SQLite file with a write-ahead log."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import math
import os
import sqlite3
import sys
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from streamgauge.errors import InputError
from streamgauge.gauge import given
from streamgauge.gauge.ledger import Row
from streamgauge.gauge.plain import dumps
from streamgauge.gauge.process import alive, this_process
from streamgauge.gauge.schema import FILE, TABLES, damaged, store_file, verify
from streamgauge.vocabulary import Finding, Place

Mode = Literal["new", "append", "replace"]
Status = Literal["running", "finished", "interrupted"]
OPEN: weakref.WeakValueDictionary[Path, Store] = weakref.WeakValueDictionary()  # the stores this process writes
# what SQLite or its driver refuse for the value itself; any other error is the file's or the disk's
REFUSED = (
    OverflowError,
    ValueError,
    TypeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
READING = "INSERT OR REPLACE INTO reading VALUES (?, ?, ?, ?)"
FINDING = "INSERT INTO finding (code, name, severity, place, message, json) VALUES (?, ?, ?, ?, ?, ?)"


class Store:
    """Rows wait in memory until `flush` commits them in one transaction; None as folder keeps all in memory.

    mode "new" refuses a folder that holds a run, "append" continues it, "replace" removes it first. A process that
    is killed loses what was entered since the last flush and nothing else. NaN is stored as NULL, SQLite has no NaN.
    """

    def __init__(self, folder: str | Path | None, *, mode: Mode = "new") -> None:
        if mode not in ("new", "append", "replace"):
            raise InputError(f"unknown mode {mode!r}; known: new, append, replace")
        self.folder = given.folder(folder)
        self.closed, self._owner = False, os.getpid()
        self._name = None if self.folder is None else self.folder.resolve()
        if self._name is not None:
            _refuse_second(self._name)
        self.connection = _connect(self.folder, mode)
        if self._name is not None:
            OPEN[self._name] = self
        self._rows: list[tuple[int, int, int, float | None]] = []
        self._commands: list[tuple[str, Sequence[Any]]] = []
        self._signals = {name: key for key, name in self._read("SELECT id, name FROM signal")}
        self._warned: set[str] = set()
        self.put("status", "running")
        self.put("started", datetime.now(UTC).isoformat(timespec="seconds"))
        self.put("process", this_process())
        self.flush()
        self._at_exit = _at_exit(weakref.ref(self))
        atexit.register(self._at_exit)

    def _read(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(sql).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise damaged(self.folder, error) from None

    def put(self, key: str, value: Any) -> None:
        """Set one entry of table `run`: anything with a form in JSON."""
        self._do("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, dumps(value, key)))

    def declare(self, name: str, unit: str, level: str) -> None:
        """Make a signal known; readings of it can follow."""
        if name not in self._signals:
            self._signals[name] = max(self._signals.values(), default=0) + 1
            self._do("INSERT INTO signal VALUES (?, ?, ?, ?)", (self._signals[name], name, unit, level))

    def place(self, places: Iterable[Place]) -> None:
        """Make places known; their index is their id."""
        for place in places:
            row = (place.index, place.path, place.index, place.kind)
            self._do("INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)", row)

    def add(self, rows: Iterable[Row]) -> None:
        """Enter readings (step, signal, place, value); a later one for the same step, signal and place replaces."""
        self.require_open()
        for step, signal, place, value in rows:
            self._rows.append((step, self._signals[signal], place, None if math.isnan(value) else value))

    def event(self, step: int | None, kind: str, detail: Any) -> None:
        """Enter something that happened."""
        values = (step, kind, dumps(detail, f"event {kind}"))
        self._do("INSERT INTO event (step, kind, json) VALUES (?, ?, ?)", values)

    def write_findings(self, findings: Iterable[Finding]) -> None:
        """Replace the saved findings by these, and commit."""
        self._do("DELETE FROM finding", ())
        for row in _rows(findings):
            self._do(FINDING, row)
        self.flush()

    def next_step(self) -> int:
        """The step after the last one that has readings; 0 in a new run."""
        ((last,),) = self._read("SELECT max(step) FROM reading")
        return 0 if last is None else int(last) + 1

    def forget_from(self, step: int) -> None:
        """Drop the readings and events of `step` and later: a resumed run makes them again."""
        self.flush()
        self._do("DELETE FROM reading WHERE step >= ?", (step,))
        self._do("DELETE FROM event WHERE step >= ?", (step,))

    def _do(self, sql: str, values: Sequence[Any]) -> None:
        self.require_open()
        self._commands.append((sql, values))

    def require_open(self) -> None:
        """Raise InputError after `close`."""
        if self.closed:
            raise InputError(f"the run {self.folder or 'in memory'} is closed; open it with mode='append' to go on")

    def flush(self) -> None:
        """Commit everything entered so far, and never raise.

        A full disk gives one warning, and the rows wait for the next flush. A row that SQLite refuses is dropped, with
        one warning, and the others are committed.
        """
        if self.closed or os.getpid() != self._owner:  # a forked data loader shares the file but must not write
            return
        try:
            try:
                self._commit(one_by_one=False)
            except REFUSED:
                self._roll_back()
                self._commit(one_by_one=True)
        except (sqlite3.Error, *REFUSED) as error:
            self._roll_back()
            self._warn(f"cannot write {self.folder}: {error}; trying again")
            return
        self._commands.clear()
        self._rows.clear()

    def _commit(self, one_by_one: bool) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        for sql, values in self._commands:
            self._execute(sql, values, one_by_one)
        if one_by_one:
            for row in self._rows:
                self._execute(READING, row, one_by_one)
        else:
            self.connection.executemany(READING, self._rows)
        self.connection.execute("INSERT OR REPLACE INTO run VALUES ('updated', ?)", (str(time.time()),))
        self.connection.execute("COMMIT")

    def _execute(self, sql: str, values: Sequence[Any], drop: bool) -> None:
        try:
            self.connection.execute(sql, values)
        except REFUSED as error:
            if not drop:
                raise
            self._warn(f"cannot store a row in {self.folder or 'memory'}: {error}; it is dropped")

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")

    def _warn(self, what: str) -> None:
        kind = what[:14]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(f"streamgauge {what}", stacklevel=4)

    def close(self, status: Status = "finished") -> None:
        """Commit, mark how the run ended, and close the file; closing twice is harmless."""
        if self.closed:
            return
        atexit.unregister(self._at_exit)
        if os.getpid() == self._owner:
            self.put("status", status)
            self.put("ended", datetime.now(UTC).isoformat(timespec="seconds"))
            self.flush()
            if self.folder is not None:
                self.connection.close()
        self.closed = True
        if self._name is not None and OPEN.get(self._name) is self:
            del OPEN[self._name]


def _at_exit(ref: weakref.ref[Store]) -> Any:
    def close() -> None:
        store = ref()
        if store is not None:
            store.close("interrupted" if getattr(sys, "last_value", None) is not None else "finished")

    return close


def _refuse_second(folder: Path) -> None:
    if folder in OPEN:
        gc.collect()  # a gauge that nobody holds any more still hangs together in a cycle
    other = OPEN.get(folder)
    if other is not None and other._owner == os.getpid():
        raise InputError(f"{folder} is being written by another gauge of this process; close that one first")


def _connect(folder: Path | None, mode: Mode) -> sqlite3.Connection:
    if folder is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(TABLES)
        return connection
    file = folder / FILE
    if file.exists() and mode == "new":
        raise InputError(f"{folder} already holds a run; give another folder, or mode='append' or mode='replace'")
    try:
        if file.exists():
            _claim(file)
        if file.exists() and mode == "replace":
            remove(file)
        if not file.exists():
            _create(file)
        connection = sqlite3.connect(file, timeout=10.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"cannot write a run to {folder}: {error}; give a folder that can be written") from None
    return connection


def _create(file: Path) -> None:
    # made under another name and renamed: a process killed here leaves no half-made store behind
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")
    draft.replace(file)


def _claim(file: Path) -> None:
    """Raise InputError unless `file` is a store that no other living process writes."""
    with contextlib.closing(sqlite3.connect(file, timeout=10.0)) as connection:
        verify(connection, file)
        try:
            meta = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM run")}
            process = meta.get("process", {})
            other = process.get("pid") != os.getpid()
            taken = meta.get("status") == "running" and other and alive(process, float(meta.get("updated", 0.0)))
        except (sqlite3.DatabaseError, AttributeError, TypeError, ValueError, OverflowError) as error:
            raise damaged(file, error) from None
    if taken:
        raise InputError(
            f"{file.parent} is being written by process {process.get('pid')}; stop it or give another folder"
        )


def remove(file: Path) -> None:
    """Delete a store with its log."""
    for part in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        part.unlink(missing_ok=True)


def _rows(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    return [(f.code, f.name, f.severity, f.place, f.message, f.to_json()) for f in findings]


def write_findings(path: str | Path, findings: Iterable[Finding]) -> None:
    """Save findings into the store of a run that has ended, in place of those saved before."""
    file = store_file(path)
    with contextlib.closing(sqlite3.connect(file, timeout=10.0, isolation_level=None)) as connection:
        verify(connection, file)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM finding")
            connection.executemany(FINDING, _rows(findings))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(f"cannot save findings into {file}: {error}; check its permissions") from None

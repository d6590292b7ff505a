"""The tables of a run's store, and how the file is opened for reading without leaving a trace."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from streamgauge.errors import InputError

VERSION = 1
FILE = "run.sqlite"
APPLICATION = 0x53475247  # "SGRG"

NAMES = ("run", "signal", "place", "reading", "event", "finding")
TABLES = f"""
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE signal (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL, level TEXT NOT NULL);
CREATE TABLE place (id INTEGER PRIMARY KEY, path TEXT NOT NULL, "index" INTEGER NOT NULL UNIQUE, kind TEXT NOT NULL);
CREATE TABLE reading (step INTEGER NOT NULL, signal INTEGER NOT NULL, place INTEGER NOT NULL, value REAL,
                      PRIMARY KEY (signal, step, place)) WITHOUT ROWID;
CREATE TABLE event (id INTEGER PRIMARY KEY, step INTEGER, kind TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE finding (id INTEGER PRIMARY KEY, code TEXT NOT NULL, name TEXT NOT NULL, severity TEXT NOT NULL,
                      place TEXT NOT NULL, message TEXT NOT NULL, json TEXT NOT NULL);
INSERT INTO place VALUES (-1, 'run', -1, 'run');
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


def store_file(path: str | Path) -> Path:
    """The store that `path` means: a run folder, or the file itself. One line of advice where there is none."""
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    if not path.exists():
        raise InputError(f"no run at {path}: the folder does not exist; give the folder that was passed as run=")
    if not file.is_file():
        raise InputError(f"no run at {path}: it holds no {FILE}; give the folder that was passed as run=")
    return file


def damaged(file: str | Path | None, why: object) -> InputError:
    """The error for a store that is ours and cannot be read as one."""
    what = " ".join(str(why).split())[:120]
    advice = "restore a copy of it, or remove it and start the run again"
    return InputError(f"{file or 'the run in memory'} is damaged: {what}; {advice}")


def verify(connection: sqlite3.Connection, file: Path) -> None:
    """Raise InputError unless this is a store of a version that is understood here."""
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} is not a run: {error}; it was written by another program or is damaged") from None
    if application != APPLICATION:
        what = "is empty" if file.stat().st_size == 0 else "was written by another program"
        raise InputError(f"{file} is not a run: it {what}; remove it or give another folder")
    if version > VERSION:
        raise InputError(
            f"{file} has format {version}, this streamgauge reads up to {VERSION}; update it with pip install -U"
        )
    try:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise damaged(file, error) from None
    if missing := [name for name in NAMES if name not in found]:
        raise damaged(file, f"it has no table {', '.join(missing)}")


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection, also while the run is being written, after kill -9, and on read-only media.

    A store without a write-ahead log is opened as immutable, which creates no file beside it. One with a log is
    opened through the log; where that needs to write and may not, a temporary copy of both is read instead.
    """
    log = Path(f"{file}-wal")
    with tempfile.TemporaryDirectory() as scratch:
        if not log.exists():
            connection = _open(file, "immutable=1")
        else:
            connection = _open(file, "mode=ro")
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                for part in (file, log):
                    shutil.copy(part, scratch)
                connection = _open(Path(scratch) / file.name, "mode=rw")
        with closing(connection):
            verify(connection, file)
            yield connection


def _open(file: Path, mode: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(f"{file.resolve().as_uri()}?{mode}", uri=True, timeout=10.0, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise InputError(f"cannot read {file}: {error}; check its permissions") from None

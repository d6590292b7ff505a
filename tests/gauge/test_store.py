from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamgauge.errors import InputError
from streamgauge.gauge import FILE, Store, load_run, write_findings
from streamgauge.vocabulary import Finding, Place, Quantity

FINDINGS = [
    Finding("W001", "missing-residual", "error", "blocks.0", "no addition", {"loss": Quantity(3.1, "nat")}),
    Finding("T001", "vanishing-gradient", "warning", "0-7", "shrinks", consequences=()),
]


def filled(folder: Path) -> Store:
    store = Store(folder)
    store.declare("loss", "nat", "run")
    store.declare("stream_rms", "1", "place")
    store.place([Place(0, "blocks.0", "attention"), Place(1, "blocks.1", "ffn")])
    store.add([(0, "loss", -1, 2.5), (0, "stream_rms", 0, 1.0), (0, "stream_rms", 1, math.nan)])
    store.event(0, "alarm", {"why": "jump"})
    return store


def test_the_tables_are_those_of_record(tmp_path: Path) -> None:
    filled(tmp_path / "run").close()
    connection = sqlite3.connect(tmp_path / "run" / FILE)
    columns = {
        table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    version = connection.execute("PRAGMA user_version").fetchone()
    mode = connection.execute("PRAGMA journal_mode").fetchone()
    joined = connection.execute(
        "SELECT step, signal.name, place.path, value FROM reading JOIN signal ON signal.id = reading.signal "
        "JOIN place ON place.id = reading.place WHERE signal.name = 'stream_rms' ORDER BY place"
    ).fetchall()
    connection.close()
    assert columns["run"] == ["key", "value"]
    assert columns["signal"] == ["id", "name", "unit", "level"]
    assert columns["place"] == ["id", "path", "index", "kind"]
    assert columns["reading"] == ["step", "signal", "place", "value"]
    assert columns["event"][-3:] == ["step", "kind", "json"]
    assert {"code", "name", "severity", "place"} <= set(columns["finding"])
    assert version == (1,)
    assert mode == ("wal",)
    assert joined == [(0, "stream_rms", "blocks.0", 1.0), (0, "stream_rms", "blocks.1", None)]


def test_a_later_reading_replaces_an_earlier_one(tmp_path: Path) -> None:
    with_two = filled(tmp_path / "run")
    with_two.add([(0, "loss", -1, 9.0)])
    with_two.close()
    assert load_run(tmp_path / "run").readings("loss").values.tolist() == [[9.0]]


def test_rows_are_there_after_a_flush_and_not_before(tmp_path: Path) -> None:
    store = filled(tmp_path / "run")
    assert len(load_run(tmp_path / "run").readings("loss")) == 0
    store.flush()
    assert len(load_run(tmp_path / "run").readings("loss")) == 1
    store.close()


def test_a_new_run_does_not_touch_an_old_one(tmp_path: Path) -> None:
    filled(tmp_path / "run").close()
    before = (tmp_path / "run" / FILE).read_bytes()
    with pytest.raises(InputError, match="already holds a run; give another folder, or mode='append' or"):
        Store(tmp_path / "run")
    assert (tmp_path / "run" / FILE).read_bytes() == before


def test_append_goes_on_and_replace_starts_again(tmp_path: Path) -> None:
    filled(tmp_path / "run").close()
    store = Store(tmp_path / "run", mode="append")
    assert store.next_step() == 1
    store.add([(1, "loss", -1, 2.0)])
    store.close()
    assert load_run(tmp_path / "run").readings("loss").values[:, 0].tolist() == [2.5, 2.0]
    Store(tmp_path / "run", mode="replace").close()
    assert len(load_run(tmp_path / "run").readings("loss")) == 0


def test_replace_leaves_a_foreign_file_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("my notes")
    with pytest.raises(InputError, match="is not a run"):
        Store(tmp_path, mode="replace")
    assert (tmp_path / FILE).read_text() == "my notes"


def test_two_processes_do_not_write_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path / "run")
    store.flush()
    monkeypatch.setattr("streamgauge.gauge.store.os.getpid", lambda: -1)
    for mode in ("append", "replace"):
        with pytest.raises(InputError, match="is being written by process"):
            Store(tmp_path / "run", mode=mode)  # type: ignore[arg-type]
    monkeypatch.undo()
    store.close()


def test_a_forked_child_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path / "run")
    monkeypatch.setattr("streamgauge.gauge.store.os.getpid", lambda: -1)
    store.flush()
    monkeypatch.undo()
    assert len(load_run(tmp_path / "run").readings("loss")) == 0
    store.close()


def test_an_unknown_mode_and_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown mode 'overwrite'; known: new, append, replace"):
        Store(tmp_path / "run", mode="overwrite")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write a run to"):
        Store(tmp_path / "file" / "run")


def test_a_full_disk_warns_once_and_keeps_the_rows(tmp_path: Path) -> None:
    store = filled(tmp_path / "run")
    real, calls = store.connection, []

    def execute(sql: str, *values: object) -> object:
        calls.append(sql)
        if sql.startswith("BEGIN"):
            raise sqlite3.OperationalError("database or disk is full")
        return real.execute(sql, *values)  # type: ignore[arg-type]

    store.connection = SimpleNamespace(execute=execute)  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="disk is full"):
        store.flush()
    store.flush()
    assert sum(sql.startswith("BEGIN") for sql in calls) == 2
    store.connection = real
    store.close()
    assert load_run(tmp_path / "run").readings("loss").values.tolist() == [[2.5]]


def test_findings_are_saved_during_the_run_and_after(tmp_path: Path) -> None:
    store = filled(tmp_path / "run")
    store.write_findings(FINDINGS)
    assert load_run(tmp_path / "run").saved_findings() == FINDINGS
    store.close()
    write_findings(tmp_path / "run", FINDINGS[1:])
    assert load_run(tmp_path / "run").saved_findings() == FINDINGS[1:]


def test_after_the_end_nothing_more_can_be_entered(tmp_path: Path) -> None:
    store = filled(tmp_path / "run")
    store.close()
    store.close()
    with pytest.raises(InputError, match=r"is closed; open it with mode='append'"):
        store.event(1, "late", {})


def test_a_run_in_memory_needs_no_folder() -> None:
    store = Store(None)
    store.declare("loss", "nat", "run")
    store.add([(0, "loss", -1, 1.0)])
    store.flush()
    assert store.connection.execute("SELECT value FROM reading").fetchall() == [(1.0,)]
    store.close()

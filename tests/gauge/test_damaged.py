"""A damaged store is told in one line that names the file and says what to do, whatever part of it is read."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.errors import InputError
from streamgauge.gauge import FILE, Gauge, StoredRun, load_run, watch, write_findings

READ: dict[str, Callable[[StoredRun], object]] = {
    "meta": lambda r: r.meta,
    "config": lambda r: r.config,
    "facts": lambda r: r.facts,
    "versions": lambda r: r.versions,
    "wiring": lambda r: r.wiring,
    "status": lambda r: r.status,
    "signals": lambda r: r.signals,
    "places": lambda r: r.places,
    "readings": lambda r: [r.readings(name) for name in ("loss", "stream_rms")],
    "non_finite": lambda r: r.non_finite(),
    "events": lambda r: r.events(),
    "saved_findings": lambda r: r.saved_findings(),
}


@pytest.fixture
def run(tmp_path: Path, toy: SimpleNamespace) -> Path:
    model = toy.build()
    optimizer = toy.adam(model)
    with Gauge(model, optimizer, run=tmp_path / "run", every=1, wiring=toy.wiring(3), config={"a": 1}) as gauge:
        toy.train(model, optimizer, 40, gauge)
    return tmp_path / "run"


def check(error: InputError, run: Path) -> None:
    assert "\n" not in str(error)
    assert str(run / FILE) in str(error)
    assert any(word in str(error) for word in ("remove it", "is damaged", "another program"))


def refusals(run: Path) -> set[str]:
    """The parts that cannot be read; anything else than an InputError of one line fails the test."""
    try:
        stored = load_run(run)
    except InputError as error:
        check(error, run)
        return set(READ)
    refused = set()
    for part, read in READ.items():
        try:
            read(stored)
        except InputError as error:
            check(error, run)
            refused.add(part)
    return refused


def alter(run: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(run / FILE)) as connection, connection:
        connection.execute(sql, values)


def test_a_sound_store_is_read_in_all_parts(run: Path) -> None:
    assert refusals(run) == set()


@pytest.mark.filterwarnings("ignore:streamgauge cannot")
@pytest.mark.parametrize("seed", range(12))
def test_garbled_bytes(run: Path, toy: SimpleNamespace, seed: int) -> None:
    content = bytearray((run / FILE).read_bytes())
    chance = random.Random(seed)
    page = 4096
    if seed < 2:  # half of it zero
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    elif seed < 4:  # all pages but the first
        content[page:] = chance.randbytes(len(content) - page)
    elif seed == 4:  # cut off
        del content[2 * page :]
    else:
        for at in chance.sample(range(100, len(content)), 400):
            content[at] = chance.randrange(256)
    (run / FILE).write_bytes(content)
    refused = refusals(run)
    assert refused or seed > 4
    for mode in ("append", "replace"):
        with suppress(InputError):
            watch(toy.build(), run=run, wiring=toy.wiring(3), mode=mode).close()  # type: ignore[arg-type]


@pytest.mark.parametrize("table", ["run", "signal", "place", "reading", "event", "finding"])
def test_a_missing_table(run: Path, table: str) -> None:
    alter(run, f"DROP TABLE {table}")
    with pytest.raises(InputError, match=f"is damaged: it has no table {table}; restore a copy"):
        load_run(run)
    with pytest.raises(InputError, match="is damaged"):
        write_findings(run, [])


@pytest.mark.parametrize("bad", ["{", "[1]", "3", '"x"', '{"joins": [{"index": "x"}]}', "[" * 100_000])
@pytest.mark.parametrize("key", ["facts", "wiring", "versions", "config", "status", "process", "updated"])
def test_json_of_the_wrong_shape(run: Path, key: str, bad: str) -> None:
    if key in ("process", "updated"):
        alter(run, "UPDATE run SET value = '\"running\"' WHERE key = 'status'")
    alter(run, "UPDATE run SET value = ? WHERE key = ?", bad, key)
    refused = refusals(run)
    broken_json = (bad[0] == "{" and len(bad) == 1) or len(bad) > 1000
    if broken_json:
        assert {"meta", "status"} <= refused
    if broken_json or (key in ("facts", "versions", "wiring") and bad[0] != "{"):
        assert key in refused or key in ("process", "updated")


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("INSERT INTO reading SELECT 99, signal, 17, 1.0 FROM reading LIMIT 1", "readings"),
        ("UPDATE reading SET value = 'text'", "readings"),
        ("UPDATE reading SET value = x'ff00'", "readings"),
        ("UPDATE reading SET place = 'text' WHERE step = 3 AND place = 1", "readings"),
        ('UPDATE place SET "index" = \'first\' WHERE "index" = 0', "places"),
        ("UPDATE event SET json = '{'", "events"),
        ("UPDATE event SET json = x'ff'", "events"),
        ("INSERT INTO finding VALUES (1, 'a', 'b', 'c', 'd', 'e', '[]')", "saved_findings"),
        ("INSERT INTO finding VALUES (1, 'a', 'b', 'c', 'd', 'e', 'x')", "saved_findings"),
        ("UPDATE run SET value = CAST(x'ff' AS TEXT)", "meta"),
    ],
)
def test_rows_of_the_wrong_kind(run: Path, sql: str, part: str) -> None:
    alter(run, sql)
    assert part in refusals(run)

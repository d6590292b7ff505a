from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from streamgauge.errors import InputError
from streamgauge.gauge import FILE, Gauge, Store, load_run
from streamgauge.gauge.store import remove


@pytest.fixture
def run(tmp_path: Path, toy: SimpleNamespace) -> Path:
    """A finished run of five steps, sampled at 0, 2 and 4."""
    model = toy.build()
    optimizer = toy.adam(model)
    with Gauge(
        model,
        optimizer,
        run=tmp_path / "run",
        every=2,
        wiring=toy.wiring(3),
        facts={"unigram_entropy": 2.4},
        config={"depth": 3},
    ) as gauge:
        toy.train(model, optimizer, 5, gauge)
        gauge.record("val_loss", 2.0, 4)
    return tmp_path / "run"


def test_what_was_written_is_read(run: Path, toy: SimpleNamespace) -> None:
    stored = load_run(run)
    assert stored.path == run
    assert stored.status == "finished"
    assert stored.config == {"depth": 3}
    assert stored.facts["unigram_entropy"] == 2.4
    assert stored.facts["optimizer"] == "AdamW"
    assert stored.facts["betas"] == [0.9, 0.999]
    assert stored.facts["parameters"] == sum(p.numel() for p in toy.build().parameters())
    assert stored.versions["torch"]
    assert stored.wiring == toy.wiring(3)
    assert [place.path for place in stored.places] == ["blocks.0", "blocks.1", "blocks.2"]
    assert stored.signals["grad_rms"] == "loss"
    assert stored.meta["every"] == 2


def test_readings_are_a_table_of_steps_by_places(run: Path) -> None:
    rms, loss, val = (load_run(run).readings(name) for name in ("stream_rms", "loss", "val_loss"))
    assert rms.values.shape == (3, 3)
    assert rms.steps.tolist() == [0, 2, 4]
    assert np.isfinite(rms.values).all()
    assert loss.values.shape == (5, 1)
    assert loss.places[0].index == -1
    assert val.steps.tolist() == [4]
    assert val.unit == "nat"


def test_a_known_signal_without_readings_is_empty_and_an_unknown_one_an_error(tmp_path: Path) -> None:
    Store(tmp_path / "run").close()
    stored = load_run(tmp_path / "run")
    assert stored.readings("retention").values.shape == (0, 0)
    assert stored.readings("loss").values.shape == (0, 1)
    with pytest.raises(InputError, match="unknown signal 'stream_rm'; did you mean 'stream_rms'"):
        stored.readings("stream_rm")


def test_places_that_were_not_measured_are_nan(tmp_path: Path, toy: SimpleNamespace) -> None:
    store = Store(tmp_path / "run")
    store.declare("stream_rms", "1", "place")
    from streamgauge.vocabulary import Place

    store.place([Place(0, "a"), Place(1, "b")])
    store.add([(0, "stream_rms", 1, 2.0), (3, "stream_rms", 0, float("inf")), (3, "stream_rms", 1, float("nan"))])
    store.close()
    stored = load_run(tmp_path / "run")
    np.testing.assert_array_equal(stored.readings("stream_rms").values, [[np.nan, 2.0], [np.inf, np.nan]])
    bad = stored.non_finite()
    assert [(r.step, r.place) for r in bad] == [(3, 0), (3, 1)]
    assert bad[0].value == np.inf
    assert np.isnan(bad[1].value)


def test_reading_a_finished_run_leaves_no_trace(run: Path) -> None:
    before = sorted(p.name for p in run.iterdir())
    load_run(run).readings("loss")
    assert sorted(p.name for p in run.iterdir()) == before == [FILE]


def test_a_run_under_way_is_followed(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    store.declare("loss", "nat", "run")
    stored = load_run(tmp_path / "run")
    assert stored.status == "running"
    for step in range(3):
        store.add([(step, "loss", -1, float(step))])
        store.flush()
        assert stored.readings("loss").steps.tolist() == list(range(step + 1))
    store.close()
    assert stored.status == "finished"


@pytest.mark.parametrize("with_log", [False, True])
def test_a_folder_that_cannot_be_written_is_read(
    tmp_path: Path, with_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "run")
    store.declare("loss", "nat", "run")
    store.add([(0, "loss", -1, 1.5)])
    store.flush()
    copy = tmp_path / "copy"
    if not with_log:
        store.close()
    copy.mkdir()
    for part in (tmp_path / "run").iterdir():
        if not part.name.endswith("-shm"):
            shutil.copy(part, copy)
    store.close()
    for part in copy.iterdir():
        part.chmod(0o444)
    copy.chmod(0o555)
    if os.geteuid() == 0 and with_log:  # root may write anywhere: let the connection that would need to write fail
        refuse_logs(monkeypatch)
    assert load_run(copy).readings("loss").values.tolist() == [[1.5]]
    copy.chmod(0o755)


def refuse_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.gauge import schema

    real = schema._open

    def refusing(file: Path, mode: str) -> object:
        if mode == "mode=ro":
            failing = sqlite3.connect(":memory:")
            failing.close()
            return SimpleNamespace(execute=_unable, close=lambda: None)
        return real(file, mode)

    monkeypatch.setattr(schema, "_open", refusing)


def _unable(*_: object) -> None:
    raise sqlite3.OperationalError("unable to open database file")


def test_a_path_may_name_the_file(run: Path) -> None:
    assert load_run(run / FILE).path == run
    assert load_run(str(run)).status == "finished"


def bad_store(folder: Path, kind: str) -> None:
    folder.mkdir()
    file = folder / FILE
    if kind == "empty file":
        file.touch()
    elif kind == "text":
        file.write_text("this is no database, it is a page of notes about one" * 40)
    elif kind == "another database":
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE cats (name TEXT)")
        connection.commit()
        connection.close()
    elif kind in ("newer", "cut short"):
        Store(folder).close()
        if kind == "newer":
            connection = sqlite3.connect(file)
            connection.execute("PRAGMA user_version = 99")
            connection.close()
        else:
            file.write_bytes(file.read_bytes()[:700])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no store", "it holds no run.sqlite"),
        ("empty file", "is not a run: it is empty"),
        ("text", "is not a run: file is not a database"),
        ("another database", "was written by another program"),
        ("newer", "has format 99, this streamgauge reads up to 1; update it"),
        ("cut short", "is not a run"),
    ],
)
def test_what_cannot_be_read_gives_one_line(tmp_path: Path, kind: str, says: str) -> None:
    bad_store(tmp_path / "run", kind)
    with pytest.raises(InputError) as caught:
        load_run(tmp_path / "run").readings("loss")
    message = str(caught.value)
    assert says in message
    assert str(tmp_path / "run") in message
    assert "\n" not in message


def test_a_missing_folder_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        load_run(tmp_path / "nowhere")


def test_removing_a_store_takes_its_log_along(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    assert len(list((tmp_path / "run").iterdir())) > 1
    remove(tmp_path / "run" / FILE)
    assert list((tmp_path / "run").iterdir()) == []
    store.connection.close()
    store.closed = True


def test_pandas_is_named_when_it_is_not_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas; install it with: pip install 'streamgauge\[pandas\]'"):
        load_run(run).to_pandas()


def test_a_frame_has_one_row_per_reading(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        def __init__(self, rows: list[tuple[object, ...]], columns: list[str]) -> None:
            self.rows, self.columns = rows, columns

        def astype(self, kinds: dict[str, str]) -> Frame:
            assert kinds == {"value": "float64"}
            return self

    module = ModuleType("pandas")
    module.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)
    stored = load_run(run)
    frame = stored.to_pandas()
    assert frame.columns == ["step", "signal", "unit", "place", "path", "kind", "value"]
    total = sum(len(list(stored.readings(name))) for name in stored.signals)
    assert len(frame.rows) == total
    assert (4, "val_loss", "nat", -1, "run", "run", 2.0) in frame.rows

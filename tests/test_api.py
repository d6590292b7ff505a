"""The public verbs on real, tiny runs: watch, compare, load, report."""

from __future__ import annotations

import json
import shutil
import sqlite3
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import streamgauge as sg
from streamgauge import nn


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("api") / "tiny"
    sg.compare(
        None, out, progress=False, schemes=("none", "pre"), depth=6, width=16, heads=2, context=32, batch=8, steps=12
    )
    return out


def train(net: torch.nn.Module, steps: int, **options: object) -> sg.api.Watch:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ids = torch.randint(64, (4, 16))
    with sg.watch(net, optimizer, every=5, **options) as gauge:
        for _ in range(steps):
            loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
            optimizer.zero_grad()
            loss.backward()
            gauge.step(loss)
            optimizer.step()
    return gauge


def test_the_public_names_are_those_of_record() -> None:
    for name in ("read_wiring", "check", "watch", "load", "report", "nn", "fix", "Guard", "explain"):
        assert hasattr(sg, name), name
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = sg.chek


def test_watch_load_and_findings(tmp_path: Path) -> None:
    gauge = train(nn.Decoder(64, 4, 16, 2, context=16), 11, run=tmp_path / "run", facts={"vocab": 64})
    run = sg.load(tmp_path / "run")
    readings = run.readings("stream_rms")
    assert readings.values.shape == (3, 8)
    assert readings.steps.tolist() == [0, 5, 10]
    assert len(run.readings("loss")) == 11
    assert run.findings() == gauge.findings()
    assert run.status == "finished"
    assert run.wiring is not None
    assert run.wiring.placements == {"pre": 8}
    assert run.outcome() is not None


def test_watch_in_memory_judges_too() -> None:
    gauge = train(nn.Decoder(64, 8, 16, 2, scheme="none", context=16), 6)
    assert gauge.findings()[0].name == "missing-residual"
    assert {c.name for c in gauge.findings()[0].consequences} >= {"token-collapse"}


def test_a_comparison_loads_as_its_arms(comparison: Path) -> None:
    loaded = sg.load(comparison)
    assert list(loaded.arms) == ["none", "pre"]
    assert loaded.failed == {}
    none, pre = loaded.arms["none"], loaded.arms["pre"]
    assert none.findings()[0].name == "missing-residual"
    assert [f.name for f in none.saved_findings()] == [f.name for f in none.findings()]
    assert all(f.severity == "info" for f in pre.findings())
    assert none.facts["corpus_sha256"] == pre.facts["corpus_sha256"]
    assert none.facts["unigram_entropy"] == pytest.approx(3.1, abs=0.3)


def test_the_report_names_arms_command_and_cause(comparison: Path, tmp_path: Path) -> None:
    page = sg.report(comparison, tmp_path / "page.html").read_text()
    for word in ("missing-residual", "pre", "streamgauge compare", torch.__version__.split("+")[0]):
        assert word in page
    assert (comparison / "report.html").stat().st_size > 100_000


def test_a_single_run_has_a_report(comparison: Path) -> None:
    path = sg.report(comparison / "arms" / "pre")
    assert path == comparison / "arms" / "pre" / "report.html"
    assert "Pre-LN" in path.read_text() or "pre" in path.read_text()


def test_the_same_comparison_goes_on_and_another_is_refused(comparison: Path) -> None:
    before = (comparison / "arms" / "pre" / "run.sqlite").read_bytes()
    settings = {"depth": 6, "width": 16, "heads": 2, "context": 32, "batch": 8, "steps": 12}
    sg.compare(None, comparison, progress=False, schemes=("none", "pre"), **settings)
    assert sg.load(comparison / "arms" / "pre").readings("loss").steps.tolist() == list(range(12))
    assert len(before) > 0
    with pytest.raises(sg.InputError, match="depth"):
        sg.compare(None, comparison, progress=False, schemes=("none", "pre"), **{**settings, "depth": 4})


def test_an_arm_without_a_store_is_shown_as_not_assessed(comparison: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    content = json.loads((comparison / "comparison.json").read_text())
    content["arms"]["pre"] = {"status": "failed", "note": "out of memory", "seconds": None}
    (tmp_path / "c" / "comparison.json").write_text(json.dumps(content))
    loaded = sg.load(tmp_path / "c")
    assert loaded.failed == {"pre": "out of memory"}
    assert loaded.report().arms[1].verdict.answer == "not assessed"
    assert "out of memory" in sg.report(tmp_path / "c").read_text()


@pytest.mark.parametrize("place", ["missing/folder/page.html", "."])
def test_a_report_that_cannot_be_written_is_one_line(comparison: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(sg.InputError) as caught:
        sg.report(comparison, tmp_path / place)
    assert "\n" not in str(caught.value)


def test_import_is_light() -> None:
    """`import streamgauge` alone must not pull torch in: the command line answers --help at once."""
    import subprocess
    import sys

    code = "import sys, streamgauge; sys.exit('torch' in sys.modules)"
    with warnings.catch_warnings():
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def damaged(comparison: Path, folder: Path, sql: str) -> Path:
    """A copy of the comparison whose arm `pre` is damaged."""
    shutil.copytree(comparison, folder)
    file = folder / "arms" / "pre" / "run.sqlite"
    if sql == "zeros":
        with file.open("r+b") as store:
            size = file.stat().st_size
            store.seek(size // 4)
            store.write(bytes(size // 2))
    elif sql == "text":
        file.write_text("not a database" * 100)
    elif sql == "empty":
        file.write_text("")
    else:
        with sqlite3.connect(file) as connection:
            connection.executescript(sql)
        connection.close()
    return folder


DAMAGES = [
    "zeros",
    "text",
    "empty",
    "DROP TABLE reading",
    "DROP TABLE run",
    "UPDATE run SET value = '{'",
    "UPDATE run SET value = '[]' WHERE key = 'facts'",
    "UPDATE run SET value = '3' WHERE key = 'wiring'",
    "UPDATE run SET value = '[1]' WHERE key = 'config'",
    "UPDATE run SET value = 'null' WHERE key = 'versions'",
    "UPDATE run SET value = '{\"unigram_entropy\": \"high\"}' WHERE key = 'facts'",
    "DELETE FROM place",
    "UPDATE reading SET value = 'much'",
    "PRAGMA user_version = 99",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_arm_is_not_assessed_and_the_others_are(comparison: Path, tmp_path: Path, damage: str) -> None:
    folder = damaged(comparison, tmp_path / "c", damage)
    with pytest.raises(sg.InputError) as caught:
        sg.report(folder / "arms" / "pre", tmp_path / "one.html")
    assert "\n" not in str(caught.value)
    none, pre = sg.load(folder).report().arms
    assert (pre.verdict.answer, pre.verdict.reason) == ("not assessed", str(caught.value))
    assert len(none.readings["loss"]) == 12
    assert "not assessed" in sg.report(folder).read_text()


@pytest.mark.parametrize("value", [1e-320, 1.7e308, -1.7e308, 0.0])
def test_the_largest_and_smallest_readings_are_drawn(comparison: Path, tmp_path: Path, value: float) -> None:
    folder = damaged(comparison, tmp_path / "c", f"UPDATE reading SET value = {value!r}")
    assert sg.report(folder).stat().st_size > 0
    mixed = damaged(comparison, tmp_path / "e", f"UPDATE reading SET value = {value!r} WHERE step % 2")
    assert sg.report(mixed).stat().st_size > 0


@pytest.mark.parametrize("file", ["comparison.json", "arms/pre/run.sqlite", "arms/pre/config.json", "notes.html"])
def test_a_report_is_written_over_nothing_but_a_report(comparison: Path, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "c"
    shutil.copytree(comparison, folder)
    (folder / "notes.html").write_text("<p>mine</p>")
    before = (folder / file).read_bytes()
    (folder / "link.html").symlink_to(folder / file)
    for out in (folder / file, folder / "link.html"):
        with pytest.raises(sg.InputError, match="give a") as caught:
            sg.report(folder, out)
        assert "\n" not in str(caught.value)
    assert (folder / file).read_bytes() == before
    assert sg.report(folder, folder / "new.htm") == sg.report(folder, folder / "new.htm")


def test_first_use_leaves_the_random_state_alone() -> None:
    import subprocess
    import sys

    code = (
        "import random, streamgauge as sg; random.seed(1); before = random.getstate(); "
        "[getattr(sg, name) for name in sg.__all__]; import sys; sys.exit(random.getstate() != before)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

from __future__ import annotations

import json

import pytest

from streamgauge.lab import calibrate
from streamgauge.lab.corpus import standard_library
from streamgauge.rules import RULES


def test_grid_leaves_out_what_is_not_healthy():
    runs = calibrate.grid(["post", "pre"], [4, 24], [1e-3, 3e-3], [0])
    assert ("pre", 24, 3e-3, 0) in runs
    assert [(d, lr) for s, d, lr, _ in runs if s == "post"] == [(4, 1e-3)]


def test_every_quantity_names_rules_that_exist():
    named = {name for text in calibrate.RESTS_ON.values() for name in text.split(", ")} - {"all"}
    assert named <= set(RULES)


def test_goes_on_after_a_kill(tmp_path, monkeypatch):
    """A run that is there is not made again; a line that was cut short is, and the last one is not lost to it."""
    made = []

    def fake(scheme, depth, lr, seed, steps, corpus):
        made.append((scheme, depth))
        return {
            "scheme": scheme,
            "depth": depth,
            "lr": lr,
            "seed": seed,
            "steps": steps,
            "loss_end": 1.0,
            "alarmed": [],
        }

    monkeypatch.setattr(calibrate, "run", fake)
    out = tmp_path / "runs.jsonl"
    wanted = calibrate.grid(["pre", "b2t"], [4], [1e-3], [0])
    assert len(calibrate.calibrate(out, wanted, 6, corpus=object())) == 2
    out.write_text(out.read_text() + '{"scheme": "pre", "dep')
    assert len(calibrate.calibrate(out, wanted, 6, corpus=object())) == 2
    assert made == [("pre", 4), ("b2t", 4)]
    calibrate.calibrate(out, calibrate.grid(["pre"], [8], [1e-3], [0]), 6, corpus=object())
    assert len(calibrate.load(out)) == 3


def test_table_shows_quantiles():
    rows = [{"update_to_weight": float(v)} for v in range(101)]
    line = next(row for row in calibrate.table(rows).splitlines() if "update_to_weight" in row)
    assert [cell.strip() for cell in line.split("|")[2:7]] == ["0", "1", "50", "99", "100"]


@pytest.mark.slow
def test_a_healthy_run_is_measured_and_raises_no_alarm():
    row = calibrate.run("pre", 2, 1e-3, 0, 12, standard_library())
    assert set(calibrate.RESTS_ON) <= set(row)
    assert row["alarms"] == 0
    assert row["loss_end"] < row["loss_first"]
    assert json.loads(json.dumps(row)) == row

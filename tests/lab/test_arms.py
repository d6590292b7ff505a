from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgauge.errors import InputError
from streamgauge.gauge import load_run, process
from streamgauge.lab import RECORD, Comparison, Record, compare, standard_library, summary, train
from streamgauge.lab.arms import LOG, ended

TINY = {
    "depth": 2,
    "width": 16,
    "heads": 2,
    "context": 16,
    "batch": 4,
    "steps": 12,
    "every": 4,
    "validate_every": 6,
    "validation_batches": 2,
}


def tiny(**more: Any) -> Comparison:
    return Comparison.of(TINY, **more)


def losses(run: Path) -> list[float]:
    return load_run(run).readings("loss").values[:, 0].tolist()  # type: ignore[no-any-return]


@pytest.mark.slow
def test_arms_are_trained_on_identical_batches_and_summed_up(tmp_path: Path) -> None:
    spec = tiny(schemes=["none", "pre"], lrs=[1e-3, 1e-30])
    out = compare(spec, tmp_path / "c", workers=2, progress=False)
    record = Record.load(out)
    assert list(record.arms) == list(spec.arms())
    assert {arm.status for arm in record.arms.values()} == {"finished"}
    assert record.corpus == standard_library().facts()
    assert record.command.startswith("streamgauge compare --schemes none,pre --lrs 0.001,1e-30")
    assert Comparison.of(record.spec) == spec
    # An arm that cannot move sees the batches as they come: its loss on each is that of the untrained model.
    for scheme in ("none", "pre"):
        alone = tmp_path / scheme
        train(spec.arms()[f"{scheme}-lr1e-30"], alone)
        assert losses(alone) == losses(record.run(f"{scheme}-lr1e-30")), "in a process of its own, bit for bit"
        first = [losses(record.run(f"{scheme}-lr{lr}"))[0] for lr in (1e-3, 1e-30)]
        assert first[0] == first[1]
    rows = summary(out)
    for row, (name, config) in zip(rows, spec.arms().items(), strict=True):
        stored = load_run(record.run(name))
        assert (row.arm, row.status, row.steps) == (name, "finished", config.steps)
        assert row.val_loss == stored.readings("val_loss").values[-1, 0]
        assert row.retention == stored.readings("retention_total").values[-1, -1]
        assert row.unigram_entropy == standard_library().unigram_entropy
        assert math.isfinite(row.token_cosine)
        assert row.tokens_per_s > 0
        assert row.seconds > 0
    compare(spec, out, progress=False)
    assert Record.load(out) == record, "nothing to do the second time"
    left = {path.name for path in record.run("pre-lr0.001").iterdir()}
    assert left == {"config.json", "run.sqlite"}, "no empty log, no write-ahead log"


@pytest.mark.slow
def test_killed_comparison_is_readable_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "c"
    spec = tiny(schemes=["pre", "post"], steps=400, every=50)
    code = (
        "from streamgauge.lab import Comparison, compare\n"
        f"compare(Comparison.of({spec.to_dict()!r}), {str(out)!r}, workers=1, progress=False)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: status(out, "pre") == "finished" and steps(out, "post") > 10)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    wait_for(lambda: load_run(out / "arms" / "post").status == "interrupted")
    assert status(out, "post") == "running", "nobody was left to write it"
    assert 10 < steps(out, "post") < 400
    assert [row.steps < 400 for row in summary(out)] == [False, True]
    assert [row.status for row in summary(out)] == ["finished", "interrupted"]
    finished = (out / "arms" / "pre" / "run.sqlite").stat().st_mtime_ns

    with pytest.raises(InputError, match="resume it, or choose another folder"):
        compare(spec, out, progress=False, resume=False)
    compare(spec, out, progress=False)
    assert {arm.status for arm in Record.load(out).arms.values()} == {"finished"}
    assert (out / "arms" / "pre" / "run.sqlite").stat().st_mtime_ns == finished, "a finished arm is left alone"
    assert [row.steps for row in summary(out)] == [400, 400]

    train(spec.arms()["post"], tmp_path / "alone")
    np.testing.assert_array_equal(losses(out / "arms" / "post"), losses(tmp_path / "alone"))


@pytest.mark.slow
def test_interrupt_stops_workers_and_says_so_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "c"
    spec = tiny(schemes=["pre", "post", "b2t"], steps=2000)
    code = (
        "from streamgauge.lab import Comparison, compare\n"
        f"try: compare(Comparison.of({spec.to_dict()!r}), {str(out)!r}, workers=2, progress=False)\n"
        "except KeyboardInterrupt as stop: print(stop)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: steps(out, "pre") > 5 and steps(out, "post") > 5)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert said == f"stopped with 0 of 3 arms finished; the same command goes on from {out}\n"
    assert [arm.status for arm in Record.load(out).arms.values()] == ["interrupted", "interrupted", "waiting"]
    for arm in ("pre", "post"):
        assert load_run(out / "arms" / arm).status == "interrupted"
        assert len(losses(out / "arms" / arm)) > 5


@pytest.mark.slow
def test_failing_arm_is_reported_and_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.lab import arms as module

    real, path = module._spawn, sys.path

    def sabotaged(arm: str, config: Any, run: Path, inbox: Any) -> Any:
        if arm == "post":
            monkeypatch.setattr(sys, "path", [str(tmp_path), *path])
            try:
                return real(arm, config, run, inbox)
            finally:
                monkeypatch.setattr(sys, "path", path)
        return real(arm, config, run, inbox)

    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise MemoryError('no room for the model')")
    monkeypatch.setattr(module, "_spawn", sabotaged)
    out = compare(tiny(schemes=["post", "pre"]), tmp_path / "c", workers=1, progress=False)
    post, pre = summary(out)
    assert (post.status, post.steps, pre.status, pre.steps) == ("failed", 0, "finished", 12)
    assert post.note
    assert (out / "arms" / "post" / LOG).read_text().strip().endswith(post.note)
    monkeypatch.undo()
    compare(tiny(schemes=["post", "pre"]), out, progress=False)
    assert [row.status for row in summary(out)] == ["finished", "finished"], "a failed arm is tried again"


def test_folder_of_another_comparison_is_refused_untouched(tmp_path: Path) -> None:
    spec = tiny(schemes=["pre", "post"])
    record = Record(tmp_path, spec.to_dict(), standard_library().facts(), "cmd", "now", {}, {})
    record.save()
    before = (tmp_path / RECORD).read_text()
    with pytest.raises(InputError, match="holds a comparison with other batch, lr; choose another folder"):
        compare(tiny(schemes=["pre", "post"], lrs=[1.0], batch=2, lr=None), tmp_path)
    record.corpus["corpus_sha256"] = "0"
    record.save()
    with pytest.raises(InputError, match="other data; choose another folder"):
        compare(spec, tmp_path)
    record.corpus = standard_library().facts()
    record.save()
    assert (tmp_path / RECORD).read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == [RECORD]


def test_folder_that_another_process_works_on_is_refused(tmp_path: Path) -> None:
    spec = tiny()
    record = Record(tmp_path, spec.to_dict(), standard_library().facts(), "cmd", "now", {})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        record.process = process.this_process() | {"pid": other.pid, "born": process._born(other.pid)}
        record.save()
        with pytest.raises(InputError, match=f"process {other.pid} is at work on it; wait for it"):
            compare(spec, tmp_path)
        other.communicate(b"\n")
    assert not record.busy(), "it has ended"
    record.process = process.this_process()
    assert not record.busy(), "ourselves"


def test_why_a_worker_ended(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_text("warning: something\n\nMemoryError: no room\n")
    assert ended(1, log) == "MemoryError: no room"
    assert ended(-9, log) == "killed by SIGKILL"
    log.write_text("")
    assert ended(3, log) == "ended with exit code 3"


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"format": 2}', '{"format": 1, "arms": 3}', '{"format": 1}'])
def test_damaged_record_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(InputError, match=r"comparison\.json: cannot be read") as caught:
        summary(tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_folders_are_one_line(tmp_path: Path) -> None:
    spec = tiny()
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty and no comparison"):
        compare(spec, tmp_path)
    with pytest.raises(InputError, match=r"mine\.txt: file exists; choose another folder"):
        compare(spec, tmp_path / "mine.txt")
    with pytest.raises(InputError, match=r"mine\.txt/c: not a directory; choose another folder"):
        compare(spec, tmp_path / "mine.txt" / "c")
    with pytest.raises(InputError, match=r"no comparison\.json here"):
        summary(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_nothing_is_written_when_an_arm_or_the_data_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short to train on")
    for spec, says in (
        (tiny(data=str(tmp_path / "none.txt")), r"data: cannot read .*none\.txt"),
        (tiny(data=str(tmp_path / "short.txt")), r"data: short\.txt leaves"),
        (tiny(schemes=["pre", "b2t"], norm="none"), "scheme 'b2t' needs its norms"),
    ):
        with pytest.raises(InputError, match=says):
            compare(spec, tmp_path / "c")
    with pytest.raises(InputError, match="workers: 0 is below 1"):
        compare(tiny(), tmp_path / "c", workers=0)
    assert not (tmp_path / "c").exists()


def status(out: Path, arm: str) -> str:
    try:
        return Record.load(out).arms[arm].status
    except InputError:
        return "waiting"


def steps(out: Path, arm: str) -> int:
    try:
        return len(losses(out / "arms" / arm))
    except InputError:
        return 0


def wait_for(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def test_record_is_plain_json_that_others_can_read(tmp_path: Path) -> None:
    record = Record(tmp_path, {"depth": 1}, {"corpus": "x"}, "cmd", "2026-01-01T00:00:00+00:00", {"torch": "2"})
    record.mark("pre", "finished", seconds=1.5)
    stored = json.loads((tmp_path / RECORD).read_text())
    assert stored["arms"] == {"pre": {"status": "finished", "note": "", "seconds": 1.5}}
    assert stored["command"] == "cmd"
    assert Record.load(tmp_path) == record

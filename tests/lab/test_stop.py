"""Stopping a comparison by a signal: one line, no worker left, and what was done stays done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streamgauge import api
from streamgauge.cli import main
from streamgauge.lab import Comparison, Record, Stopped, arms
from streamgauge.lab.progress import Display
from streamgauge.lab.record import Arm

SPEC = Comparison.of(schemes=["pre", "post"], depth=1, width=8, heads=2)


def interrupted(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Record, Stopped, list[Any]]:
    """Two workers, of which `pre` has said that it is done and is about to leave when the signal comes."""
    started: list[Any] = []

    def spawn(arm: str, config: Any, run: Path, inbox: Any) -> Any:
        run.mkdir(parents=True)
        (run / arms.LOG).touch()
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        started.append(process)
        threading.Thread(target=lambda: inbox.put((arm, {"code": process.wait()})), daemon=True).start()
        if arm == "post":
            os.kill(os.getpid(), number)
            inbox.put(("pre", {"done": "", "seconds": 1.5}))
        return process

    monkeypatch.setattr(arms, "_spawn", spawn)
    record = Record(folder, SPEC.to_dict(), {}, "cmd", "now", {}, {arm: Arm() for arm in SPEC.arms()})
    with pytest.raises(Stopped) as caught, Display(SPEC.arms(), 1, shown=False) as display:
        arms._run_all(record, SPEC.arms(), 2, display)
    return Record.load(folder), caught.value, started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_workers_and_keeps_what_is_finished(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    record, stop, started = interrupted(tmp_path, number, monkeypatch)
    assert {name: arm.status for name, arm in record.arms.items()} == {"pre": "finished", "post": "interrupted"}
    assert record.arms["pre"].seconds == 1.5
    assert str(stop) == f"stopped with 1 of 2 arms finished; the same command goes on from {tmp_path}"
    assert stop.number == number
    assert all(process.poll() is not None for process in started)
    assert signal.getsignal(number) == before
    for process in started:
        process.stdin.close()


@pytest.mark.parametrize(
    ("stop", "line", "code"),
    [
        (Stopped("stopped with 1 of 2 arms finished"), "stopped with 1 of 2 arms finished", 130),
        (Stopped("stopped with 1 of 2 arms finished", signal.SIGTERM), "stopped with 1 of 2 arms finished", 143),
        (KeyboardInterrupt(), "stopped", 130),
    ],
)
def test_the_command_says_in_one_line_that_it_was_stopped(
    stop: BaseException,
    line: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopping(*given: Any, **more: Any) -> Any:
        raise stop

    monkeypatch.setattr(api, "compare", stopping)
    assert main(["compare", "--out", str(tmp_path / "c")]) == code
    monkeypatch.setattr(api, "report", stopping)
    assert main(["report", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"streamgauge: {line}\n" * 2

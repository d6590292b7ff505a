"""Arms of a comparison, trained side by side on identical batches, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

from streamgauge.errors import InputError
from streamgauge.lab.comparison import Comparison
from streamgauge.lab.config import Config
from streamgauge.lab.corpus import load
from streamgauge.lab.loop import build
from streamgauge.lab.progress import Display
from streamgauge.lab.record import Record, emptied, opened
from streamgauge.lab.room import check_room
from streamgauge.lab.stop import Stopped, heard

# Waiting OpenMP threads must sleep: on busy cores spinning ones made training 3 to 25 times slower.
QUIET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
Inbox = SimpleQueue[tuple[str, dict[str, Any]]]
PATIENCE = 10.0
LOG = "worker.log"


def compare(
    spec: Comparison,
    out: Path | str,
    workers: int | None = None,
    progress: bool = True,
    resume: bool = True,
    command: str | None = None,
) -> Path:
    """Train every arm of `spec`; return the folder with comparison.json and arms/<arm>/.

    workers   processes at a time, one thread each; None is the number of cores
    resume    go on with the comparison that stands in `out`: finished arms stay, the others start anew
    command   what is stored as the way to remake it; None is made from `spec`

    An arm that fails is marked so and does not stop the others. Ctrl-C and SIGTERM stop all arms, leave readable stores
    and raise Stopped, a KeyboardInterrupt with a one-line message. Raises InputError, with nothing written, when an
    arm cannot be built, the data does not fit, or `out` holds something else.
    """
    workers = _cores() if workers is None else workers
    if workers < 1:
        raise InputError(f"workers: {workers} is below 1; give the number of processes to run at a time")
    corpus, arms = load(spec.base.data), spec.arms()
    corpus.check(spec.base.context)
    with torch.random.fork_rng(devices=()):
        for config in {(c.scheme, c.norm, c.init, c.depth): c for c in arms.values()}.values():
            _try(config)
    record = opened(out, spec, corpus.facts(), command or spec.command(out), resume)
    left = [arm for arm in arms if record.arms[arm].status != "finished"]
    with Display(left, spec.base.steps, shown=progress) as display:
        _run_all(record, {arm: arms[arm] for arm in left}, workers, display)
    return record.folder


def _try(config: Config) -> None:
    check_room(config)
    try:
        build(config)
    except (RuntimeError, MemoryError) as error:
        what = f"depth={config.depth}, width={config.width} cannot be built"
        why = " ".join(str(error).split()) or "not enough memory"
        raise InputError(f"{what}: {why}; give smaller ones") from None


def _run_all(record: Record, arms: dict[str, Config], workers: int, display: Display) -> None:
    inbox: Inbox = SimpleQueue()
    waiting, running = list(arms), dict[str, subprocess.Popen[str]]()
    try:
        with heard(lambda number: inbox.put(("", {"stop": number}))):
            while waiting or running:
                while waiting and len(running) < workers:
                    arm = waiting.pop(0)
                    record.mark(arm, "running")
                    display.start(arm)
                    running[arm] = _spawn(arm, arms[arm], record.run(arm), inbox)
                arm, message = inbox.get()
                if "stop" in message:
                    _interrupt(record, running, inbox, display)
                    raise Stopped(_left(record), message["stop"])
                _take(record, running, arm, message, display)
    except Stopped:
        raise
    except KeyboardInterrupt:
        _interrupt(record, running, inbox, display)
        raise Stopped(_left(record)) from None
    finally:
        _stop(running)
        record.release()


def _take(
    record: Record, running: dict[str, subprocess.Popen[str]], arm: str, message: dict[str, Any], display: Display
) -> None:
    """Act on what a worker said, or on its end."""
    if "step" in message:
        display.update(arm, message)
    elif "done" in message:
        record.mark(arm, "finished", message["done"], message["seconds"])
        display.end(arm, message["done"] or f"finished in {message['seconds']:.0f} s of CPU time")
    elif "error" in message:
        record.mark(arm, "failed", message["error"])
        display.end(arm, f"failed: {message['error']}")
    elif "code" in message:
        del running[arm]
        log = record.run(arm) / LOG
        if record.arms[arm].status == "running":
            note = ended(message["code"], log)
            record.mark(arm, "failed", note)
            display.end(arm, f"failed: {note}")
        if log.exists() and log.stat().st_size == 0:
            log.unlink()


def _interrupt(record: Record, running: dict[str, subprocess.Popen[str]], inbox: Inbox, display: Display) -> None:
    """Stop the workers; an arm that said "done" before it was stopped is finished, the others are interrupted."""
    _stop(running)
    with suppress(Empty):
        told = set[str]()
        while told != set(running):
            arm, message = inbox.get(timeout=PATIENCE)
            if "code" in message:
                told.add(arm)
            elif arm and "step" not in message:
                _take(record, running, arm, message, display)
    for arm in running:
        if record.arms[arm].status == "running":
            record.mark(arm, "interrupted")


def _left(record: Record) -> str:
    done = sum(arm.status == "finished" for arm in record.arms.values())
    return f"stopped with {done} of {len(record.arms)} arms finished; the same command goes on from {record.folder}"


def _spawn(arm: str, config: Config, run: Path, inbox: Inbox) -> subprocess.Popen[str]:
    """Start the worker of one arm, in a session of its own so that Ctrl-C reaches only us, and listen to it."""
    (emptied(run) / "config.json").write_text(config.to_json())
    environment = os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (run / LOG).open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamgauge.lab.worker", str(run)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )
    threading.Thread(target=_listen, args=(arm, process, inbox), daemon=True).start()
    return process


def _listen(arm: str, process: subprocess.Popen[str], inbox: Inbox) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if line.startswith("{"):
                inbox.put((arm, json.loads(line)))
    inbox.put((arm, {"code": process.wait()}))


def _stop(running: dict[str, subprocess.Popen[str]]) -> None:
    for process in running.values():
        process.terminate()
    for process in running.values():
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ended(code: int, log: Path) -> str:
    """Why a worker ended without a word: the signal that killed it, else the last line of its log."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ended with exit code {code}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

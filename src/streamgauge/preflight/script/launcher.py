"""The parent's side: start a script in a process of its own, wait for its end, and judge what came back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from streamgauge.errors import InputError
from streamgauge.preflight.script.job import Job, Seen

CHILD = Path(__file__).with_name("child.py")
ROOT = Path(__file__).parents[3]
"""The folder that holds the package."""


def launch(job: Job, stdout: int | None = None) -> tuple[int, Seen | None]:
    """Run the job; returns the script's exit code and what was seen, None where the process ended before it could say.

    Standard input, output and error, the folder and the environment are the script's own. Ctrl-C goes to the script.
    `stdout` is the file descriptor to which the script prints, where that is not its own.
    InputError for a script that is not there.
    """
    path = Path(job.script)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{job.script}: {what}; give the path of a Python script")
    with tempfile.TemporaryDirectory(prefix="streamgauge-") as scratch:
        job = dataclasses.replace(job, answer=str(Path(scratch) / "answer"))
        order = Path(scratch) / "job.json"
        order.write_text(json.dumps({"root": str(ROOT), **dataclasses.asdict(job)}))
        sys.stdout.flush()
        sys.stderr.flush()
        child = subprocess.Popen([sys.executable, "-P", str(CHILD), str(order)], stdout=stdout)
        with _signals_to(child):
            code = child.wait()
        answer = Path(job.answer)
        seen = pickle.loads(answer.read_bytes()) if answer.exists() else None
    return (128 - code if code < 0 else code), seen


@contextlib.contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the child from the terminal itself, here it is ignored; a request to end is passed on."""
    try:
        before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    except ValueError:  # not the main thread: signals are another's affair
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""How a script is ended when its rehearsal is over."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

import torch

from streamgauge.preflight.script.patches import Patches

GRACE = 5.0
"""Seconds that a script has to leave its `finally` blocks before the process ends."""


class Stopped(BaseException):
    """Raised inside the training loop at its end; no Exception, so that no handler for those catches it."""


def leave() -> None:
    """End the process at once, with what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def close_the_door(patches: Patches) -> None:
    """For a script that catches `Stopped`: it gets no further than its next backward pass, or GRACE seconds."""
    for owner in (torch.Tensor, torch.autograd):
        patches.wrap(owner, "backward", lambda *args, **kwargs: leave())
    leave_soon()


def leave_soon(after: float = GRACE) -> None:
    """End the process `after` seconds unless it has ended by itself."""

    def wait() -> None:
        time.sleep(after)
        leave()

    threading.Thread(target=wait, daemon=True, name="streamgauge-stop").start()

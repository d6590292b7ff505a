"""Which process writes a run, and whether it is still alive."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

SILENT_AFTER = 600.0


def this_process() -> dict[str, Any]:
    """Enough to recognise this process later: number, host, and the kernel's start time where there is one."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "born": _born(os.getpid()), "started": time.time()}


def alive(process: dict[str, Any], updated: float) -> bool:
    """Whether the process described still runs; on another host, whether it wrote within the last ten minutes."""
    if process.get("host") != socket.gethostname():
        return time.time() - updated < SILENT_AFTER
    pid = int(process.get("pid", 0))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return process.get("born") == _born(pid)


def _born(pid: int) -> int | None:
    # a process number is used again after a while; with its start time it is unique until the machine restarts
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])

"""One run in a process of its own: `python -m streamgauge.lab.worker RUN` trains what RUN/config.json says.

Speaks JSON lines on its standard output: {"step", "loss", "tokens_per_s"} after each step, and in the end either
{"done": note, "seconds": CPU time} or {"error": one line}. Whoever listens may go away: the next line then ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from streamgauge.errors import InputError
from streamgauge.lab.config import Config
from streamgauge.lab.loop import train

THREADS = 1


def main(run: Path) -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    torch.set_num_threads(THREADS)
    try:
        _say({"begun": str(run)})
        result = train(Config.from_json(run / "config.json"), run, progress=_say)
        _say({"done": result.note, "seconds": result.seconds})
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except InputError as error:
        _say({"error": str(error)})
        return 2
    return 0


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""What the two processes tell each other: the job that goes to the script's process, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from streamgauge.vocabulary import Readings, Wiring

Ended = Literal["rehearsed", "finished", "raised"]


@dataclass(frozen=True)
class Job:
    """Which script runs, with what arguments, under which hooks.

    mode           "check": the first steps are a rehearsal, then the script is ended; "run": it is watched to its end
    answer         file that gets the pickled `Seen`
    folder, every  the run folder of "run", and the steps between two sampled ones
    budget         loss evaluations of the rehearsal (one backward = one); seconds: its longest duration
    lr, warmup, steps, clip, precision   what the user says of the run; None: only what is seen counts
    """

    script: str
    args: tuple[str, ...]
    mode: Literal["check", "run"]
    answer: str
    folder: str | None = None
    every: int = 50
    budget: int = 60
    seconds: float = 40.0
    lr: float | None = None
    warmup: int | None = None
    steps: int | None = None
    clip: float | None = None
    precision: str | None = None
    wiring_only: bool = False
    allow_writes: bool = False


@dataclass(frozen=True)
class Seen:
    """What the hooks saw, as plain values; `model` is "" where no training step was seen.

    steps, backwards   optimizer steps of the judged model, and all backward passes
    facts              evidence by the names of `rules.evidence.FACTS`
    notes              one line for each thing that was assumed, left out or suppressed
    ended, error       how the script came to its end, and the exception in one line
    failure            the loss or gradient norm that was no number, and its step; autocast: dtype of its region
    """

    model: str = ""
    steps: int = 0
    backwards: int = 0
    wiring: Wiring | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ended: Ended = "finished"
    error: str = ""
    failure: str = ""
    autocast: torch.dtype | None = None

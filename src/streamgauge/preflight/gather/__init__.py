"""What the rules ask about a training setup, read off live objects: one plain function for each kind of fact."""

from __future__ import annotations

from streamgauge.preflight.gather.flags import flags
from streamgauge.preflight.gather.handling import autocast_now, handling, precision_of
from streamgauge.preflight.gather.optimizer import setup, unwrapped
from streamgauge.preflight.gather.parameters import parameters
from streamgauge.preflight.gather.schedule import TICKS, peaks, rates, schedule
from streamgauge.preflight.gather.task import Targets

__all__ = [
    "TICKS",
    "Targets",
    "autocast_now",
    "flags",
    "handling",
    "parameters",
    "peaks",
    "precision_of",
    "rates",
    "schedule",
    "setup",
    "unwrapped",
]

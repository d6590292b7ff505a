"""Watch a training run: signals at every join of the residual stream, sampled, in one store per run."""

from streamgauge.gauge.measure import measure
from streamgauge.gauge.recorder import GaugeWarning
from streamgauge.gauge.sample import Sample, sample
from streamgauge.gauge.schema import FILE
from streamgauge.gauge.signals import SIGNALS, Signal, Site, signal
from streamgauge.gauge.store import Store, write_findings
from streamgauge.gauge.stored import Event, StoredRun, load_run
from streamgauge.gauge.watch import Gauge, watch

__all__ = [
    "FILE",
    "SIGNALS",
    "Event",
    "Gauge",
    "GaugeWarning",
    "Sample",
    "Signal",
    "Site",
    "Store",
    "StoredRun",
    "load_run",
    "measure",
    "sample",
    "signal",
    "watch",
    "write_findings",
]

"""What is measured: one pure function per signal, registered beside its definition."""

from streamgauge.gauge.signals.base import BACKWARD, FORWARD, SIGNALS, Signal, Site, signal
from streamgauge.gauge.signals.gradient import grad_rms, retention
from streamgauge.gauge.signals.peak import branch_peak, stream_peak, stream_spread
from streamgauge.gauge.signals.run import (
    grad_norm,
    loss,
    lr,
    retention_total,
    step_time,
    tokens_per_s,
    val_loss,
)
from streamgauge.gauge.signals.stream import branch_ratio, cosine, cosine_excess, stream_rms, token_cosine

__all__ = [
    "BACKWARD",
    "FORWARD",
    "SIGNALS",
    "Signal",
    "Site",
    "branch_peak",
    "branch_ratio",
    "cosine",
    "cosine_excess",
    "grad_norm",
    "grad_rms",
    "loss",
    "lr",
    "retention",
    "retention_total",
    "signal",
    "step_time",
    "stream_peak",
    "stream_rms",
    "stream_spread",
    "token_cosine",
    "tokens_per_s",
    "val_loss",
]

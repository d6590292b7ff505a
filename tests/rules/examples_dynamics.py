"""Evidence that the rules on training dynamics must find fault with, and evidence that they must pass."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Probe, Readings


def skipped(change: float) -> dict[str, object]:
    """Each of 24 sublayers left out, in a run."""
    return {"probes": tuple(Probe("skip", change, 1e-5, str(i)) for i in range(24)), "phase": "run"}


def spiky(at: list[int], height: float = 2.0) -> Readings:
    curve = 2.0 + 0.02 * np.random.default_rng(2).standard_normal(200)
    for step in at:
        curve[step : step + 4] += height
    return series("loss", curve.tolist(), unit="nat")


def excess(value: float) -> Readings:
    return series("cosine_excess", [[value] * 24], steps=[200])


def outliers(case: SimpleNamespace, spread: float) -> dict[str, Readings]:
    peaks = {
        "stream_spread": series("stream_spread", [[5.0, spread]]),
        "stream_peak": series("stream_peak", [[4, 900]]),
    }
    return {**peaks, "loss": case.STALLED}


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    """Rule -> (sick, healthy), from the builders of `examples.py`."""
    return {
        "layer-collapse": (
            Evidence(case.stack(), {"cosine_excess": excess(0.4)}, skipped(1e-4)),
            Evidence(case.stack(), {"cosine_excess": excess(0.4)}, skipped(0.3)),
        ),
        "redundant-layer": (
            Evidence(case.stack(), {"cosine": series("cosine", [[0.999] * 24])}, skipped(1e-4)),
            Evidence(case.stack(), {"cosine": series("cosine", [[0.999] * 24])}, skipped(0.05)),
        ),
        "attention-logit-growth": (
            Evidence(None, {"attention_logit_max": series("attention_logit_max", list(np.geomspace(8, 900, 20)))}),
            Evidence(None, {"attention_logit_max": series("attention_logit_max", list(np.linspace(8, 30, 20)))}),
        ),
        "attention-entropy-collapse": (
            Evidence(None, {"attention_entropy": series("attention_entropy", list(np.geomspace(0.8, 0.02, 20)))}),
            Evidence(None, {"attention_entropy": series("attention_entropy", list(np.linspace(0.9, 0.5, 20)))}),
        ),
        "loss-spike": (Evidence(None, {"loss": spiky([60, 100, 150])}), Evidence(None, {"loss": spiky([])})),
        "massive-activations": (
            Evidence(None, outliers(case, 5000.0), case.ENTROPY),
            Evidence(None, outliers(case, 80.0), case.ENTROPY),
        ),
        "stable-rank-drop": (
            Evidence(None, {"stable_rank": series("stable_rank", [12.0, 11.0, 9.0, 6.0], steps=[0, 100, 200, 300])}),
            Evidence(None, {"stable_rank": series("stable_rank", [12.0, 11.5, 11.0, 10.5], steps=[0, 100, 200, 300])}),
        ),
    }

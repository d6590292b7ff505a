"""For every rule one piece of evidence that it must find fault with, and one that it must pass.

The contract suite reads EXAMPLES: name -> (sick, healthy). A rule without an entry fails there. Each `examples_*.py`
beside this file adds those of one family: `examples(case)` gets the builders below and returns such a table.
"""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Join, Readings, Wiring


def stack(placement: str = "pre", blocks: int = 12, *, final_norm: bool = True, joined: bool = True) -> Wiring:
    """A decoder of attention and feed-forward sublayers."""
    kinds = ("attention", "ffn")
    joins = tuple(
        Join(2 * b + k, f"blocks.{b}.{kind}", placement, norm="layernorm", eps=1e-5, kind=kind)
        for b in range(blocks)
        for k, kind in enumerate(kinds)
    )
    return Wiring(joins, (), final_norm) if joined else Wiring((), joins, final_norm)


def per_place(signal: str, first: float, last: float, places: int = 24) -> Readings:
    """One step whose values go from first to last in equal ratios."""
    return series(signal, [list(np.geomspace(first, last, places))], steps=[200])


def losses(start: float, end: float, steps: int = 200, rate: float = 0.05, noise: float = 0.02) -> Readings:
    """Exponential approach from start to end, with batch noise."""
    k = np.arange(steps)
    curve = end + (start - end) * np.exp(-rate * k) + noise * np.random.default_rng(0).standard_normal(steps)
    return series("loss", curve.tolist(), unit="nat")


STALLED = losses(math.log(256), 3.15)
TRAINS = losses(math.log(256), 2.3)
WITH_NAN = series("loss", [5.5, 4.0, 3.5, math.nan, math.nan], unit="nat")
ENTROPY = {"unigram_entropy": 3.12, "vocab": 256}

COLLAPSED = per_place("token_cosine", 0.5, 0.9999)
DISTINCT = per_place("token_cosine", 0.1, 0.6)


def ratio(first_over_last: float) -> dict[str, Readings]:
    """Gradient readings along a stream of constant rms."""
    return {
        "retention_total": series("retention_total", [first_over_last], steps=[200]),
        "grad_rms": per_place("grad_rms", 1e-3 * first_over_last, 1e-3),
        "stream_rms": per_place("stream_rms", 1.0, 1.0),
    }


EXAMPLES: dict[str, tuple[Evidence, Evidence]] = {
    "missing-residual": (
        Evidence(stack(joined=False), {"token_cosine": COLLAPSED}),
        Evidence(stack(), {"token_cosine": DISTINCT}),
    ),
    "missing-final-norm": (
        Evidence(stack(final_norm=False), {"loss": series("loss", [8.0])}, {"vocab": 32}),
        Evidence(stack(final_norm=True), {"loss": series("loss", [3.7])}, {"vocab": 32}),
    ),
    "token-collapse": (
        Evidence(stack("post"), {"token_cosine": COLLAPSED, "loss": STALLED}, ENTROPY),
        Evidence(stack("post"), {"token_cosine": COLLAPSED, "loss": TRAINS}, ENTROPY),
    ),
    "unigram-plateau": (
        Evidence(None, {"loss": STALLED}, ENTROPY),
        Evidence(None, {"loss": TRAINS}, ENTROPY),
    ),
    "vanishing-gradient": (
        Evidence(stack("post"), {**ratio(1e-5), "loss": STALLED}, ENTROPY),
        Evidence(stack("post"), {**ratio(0.9), "loss": STALLED}, ENTROPY),
    ),
    "exploding-gradient": (
        Evidence(stack("output"), {**ratio(1e4), "loss": STALLED}, ENTROPY),
        Evidence(stack("output"), {**ratio(1.2), "loss": STALLED}, ENTROPY),
    ),
    "non-finite": (
        Evidence(None, {"loss": WITH_NAN}),
        Evidence(None, {"loss": TRAINS}),
    ),
}

for path in sorted(Path(__file__).parent.glob("examples_*.py")):
    EXAMPLES |= runpy.run_path(str(path))["examples"](SimpleNamespace(**globals()))

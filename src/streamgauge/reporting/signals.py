"""How each measured signal is shown: its name in words, its scale, and what its neutral value is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamgauge.registry import Registry


@dataclass(frozen=True)
class View:
    """One signal as a reader sees it.

    scale    "log" colours and axes run over log10 of the value
    neutral  the value that means "nothing happens here"; the colours then diverge around it
    limits   fixed ends of the colour scale; None takes them from the data, the same for all arms
    noisy    it jumps from step to step, so that a line shows its moving average inside its envelope
    """

    title: str
    meaning: str
    scale: Literal["log", "linear"] = "linear"
    neutral: float | None = None
    limits: tuple[float, float] | None = None
    noisy: bool = False


LAYER_VIEWS: Registry[View] = Registry(
    "signal",
    {
        "stream_rms": View(
            "Size of the stream",
            "Root mean square of the residual stream after each sublayer. Slow growth is usual where no norm stands on "
            "the stream; growth by a constant factor per layer is not.",
            scale="log",
        ),
        "branch_ratio": View(
            "How much each sublayer adds",
            "RMS of the branch over rms of the stream it joins, with their scales. Close to 0, it changes nothing.",
            scale="log",
        ),
        "cosine": View(
            "Direction of the stream, in against out",
            "Cosine between the stream before and after each sublayer. 1: the direction did not change.",
        ),
        "cosine_excess": View(
            "Turn of the stream against chance",
            "Cosine of stream in and out, less what independent increments of the same size would give. "
            "0: as by chance; above: the sublayer repeats the stream; below: it undoes it.",
            neutral=0.0,
        ),
        "token_cosine": View(
            "Are the tokens still different?",
            "Mean cosine between the streams of different tokens. Close to 1, all tokens carry the same vector.",
            limits=(0.0, 1.0),
        ),
        "grad_rms": View(
            "Gradient of the stream",
            "Root mean square of the loss gradient at each sublayer. It may grow towards the input, as in "
            "Pre-LN; lost on the way, it leaves the first layers without a signal.",
            scale="log",
        ),
        "retention": View(
            "Gradient kept by each sublayer",
            "Gradient rms before the sublayer over gradient rms after it, as it flows back. "
            "1: kept; below: it shrinks towards the input; above: it grows.",
            scale="log",
            neutral=1.0,
        ),
    },
)

RUN_VIEWS: Registry[View] = Registry(
    "signal",
    {
        "grad_norm": View("Gradient norm", "Norm over all parameters, before clipping.", scale="log", noisy=True),
        "retention_total": View(
            "Gradient retention",
            "Gradient rms of the stream that enters the first place over that leaving the last (rms, not its square). "
            "The rules judge it times the ratio of the stream's rms, which does not depend on its scale.",
            scale="log",
            neutral=1.0,
        ),
        "lr": View("Learning rate", "As the schedule gave it."),
        "tokens_per_s": View("Speed", "Tokens per second.", noisy=True),
        "step_time": View("Step time", "Seconds per optimizer step.", noisy=True),
    },
)


def view(signal: str) -> View:
    """The view of a signal; one that has no entry is shown plainly under its own name."""
    known = LAYER_VIEWS.get(signal) or RUN_VIEWS.get(signal)
    return known or View(signal.replace("_", " "), "")

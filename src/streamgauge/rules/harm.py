"""Does the loss show harm?  The symptom that raises a finding to error, or keeps it at info."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from streamgauge.rules.outcome import ENOUGH_STEPS, curve_of, outcome
from streamgauge.vocabulary import Quantity, Readings, Severity


@dataclass(frozen=True)
class Harm:
    """state: "measured" (the loss diverged or stalled), "absent" (it trains), "unknown" (no loss, or too early)."""

    state: Literal["measured", "absent", "unknown"]
    reason: str
    evidence: dict[str, Quantity] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return self.state == "measured"

    @property
    def absent(self) -> bool:
        return self.state == "absent"

    def severity(self, predicted: Severity) -> Severity:
        """error where harm is measured, info where the run trains, else what the rule predicts."""
        return {"measured": "error", "absent": "info", "unknown": predicted}[self.state]  # type: ignore[return-value]


def measure_harm(
    loss: Readings | None,
    *,
    val_loss: Readings | None = None,
    unigram_entropy: float | None = None,
    lr: Readings | None = None,
) -> Harm:
    """Harm from the outcome of the run: diverged or stalled -> measured, trains -> absent, else unknown.

    A non-finite loss is harm at once; anything else needs `ENOUGH_STEPS` steps, and a stall counts only once the
    warm-up is over. Losses and entropy in nats.
    """
    if loss is None or not len(loss):
        return Harm("unknown", "no loss was recorded")
    curve = curve_of(loss)
    finite = np.isfinite(curve)
    if not finite.all():
        first = int(np.argmin(finite))
        step = int(loss.steps[first])
        return Harm(
            "measured",
            f"the loss is {curve[first]} at step {step}",
            {"loss": Quantity(float(curve[first]), "nat"), "step": Quantity(step, "step")},
        )
    steps = int(loss.steps[-1] - loss.steps[0])
    if steps < ENOUGH_STEPS or len(curve) < 8:
        return Harm("unknown", f"{steps} steps are too few to tell (at least {ENOUGH_STEPS})")
    end = outcome(loss, val_loss=val_loss, unigram_entropy=unigram_entropy)
    evidence = {"final_loss": Quantity(end.final_loss, "nat"), "initial_loss": Quantity(float(curve[0]), "nat")}
    if unigram_entropy is not None:
        evidence["unigram_entropy"] = Quantity(unigram_entropy, "nat")
    if end.label == "trains":
        return Harm("absent", end.reason, evidence)
    if end.label == "diverged" or (end.label == "stalled" and not warming_up(lr)):
        return Harm("measured", f"the run {end.label}: {end.reason}", evidence)
    return Harm("unknown", end.reason, evidence)


def warming_up(lr: Readings | None) -> bool:
    """Is the learning rate still rising?  The last value is the highest, and above that at three quarters."""
    if lr is None or len(lr) < 4:
        return False
    rates = curve_of(lr)
    return bool(rates[-1] >= rates.max() and rates[-1] > 1.001 * rates[(3 * len(rates)) // 4 - 1])

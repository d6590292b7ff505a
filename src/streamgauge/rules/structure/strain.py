"""Symptoms of a Post-LN stack that fails, in the first steps of training."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamgauge.rules.outcome import curve_of
from streamgauge.rules.places import end_of_stack
from streamgauge.vocabulary import Join, Quantity, Readings, Wiring

ENOUGH = 3
"""Steps of training after which the first updates show."""


@dataclass(frozen=True)
class Strain:
    """cosine: between tokens after the last sublayer at init (NaN unread); symptom: what the rehearsal shows, or ""."""

    cosine: float = float("nan")
    symptom: str = ""
    evidence: dict[str, Quantity] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """For the end of a message."""
        parts = [f"the token cosine after the last is {self.cosine:.3f} at init"] * (not np.isnan(self.cosine))
        return "".join(f"; {part}" for part in [*parts, self.symptom] if part)


def strain(
    token_cosine: Readings | None,
    retention_total: Readings | None,
    loss: Readings | None,
    *,
    gone: float,
    fraction: float,
    rise: float = 1.0,
) -> Strain:
    """What the first steps did to the tokens and to the gradient.

    d(s) = 1 - cosine after the last sublayer at step s. Symptom where d(s) <= gone d(0) and retention(s) <= fraction
    retention(0) at a sampled step s >= `ENOUGH`, or where the mean of the last quarter of the losses is over the first
    loss by `rise` nats.
    """
    evidence: dict[str, Quantity] = {}
    cosine, symptom = float("nan"), ""
    if token_cosine is not None and len(token_cosine):
        last = np.array([end_of_stack(row) for row in token_cosine.values])
        cosine = float(last[0])
        evidence["token_cosine"] = Quantity(cosine, "1")
        if retention_total is not None and len(retention_total):
            kept = {int(s): float(v) for s, v in zip(retention_total.steps, curve_of(retention_total), strict=True)}
            first = next(iter(kept.values()))
            for step, value in zip(token_cosine.steps.tolist(), last.tolist(), strict=True):
                apart = max(1 - value, 1e-9) / max(1 - cosine, 1e-9)
                if step >= ENOUGH and step in kept and apart <= gone and kept[step] <= fraction * first:
                    evidence |= {
                        "step": Quantity(step, "step"),
                        "token_cosine_then": Quantity(value, "1"),
                        "retention": Quantity(first, "1"),
                        "retention_then": Quantity(kept[step], "1"),
                    }
                    symptom = f"after {step} steps it is {value:.5f} and the gradient retention fell from {first:.2g} "
                    symptom += f"to {kept[step]:.2g}"
    if loss is not None and len(loss) > 2 * ENOUGH and not symptom:
        curve = curve_of(loss)
        end = float(curve[-max(2, len(curve) // 4) :].mean())
        if end > curve[0] + rise:
            evidence |= {"initial_loss": Quantity(float(curve[0]), "nat"), "loss": Quantity(end, "nat")}
            symptom = f"the loss rises from {curve[0]:.2f} to {end:.2f} nats in {len(curve)} steps"
    return Strain(cosine, symptom, evidence)


def plain_post(wiring: Wiring) -> list[Join]:
    """The joins norm(x + f(x)) of a stack that is Post-LN throughout, [] where something passes the norms.

    B2T shows as joins of kind "other" on a second skip, DeepNorm and Admin as a scale on the skip, KEEL as "pre+post".
    """
    posts = [j for j in wiring.joins if j.placement == "post"]
    if 2 * len(posts) <= len(wiring.joins) or any(j.kind == "other" and j.branch_tap is None for j in posts):
        return []
    return [j for j in posts if not _scaled(j)]


def blocks_of(joins: list[Join]) -> int:
    """Blocks in a list of joins: self-attention or mixer sublayers, else half the joins."""
    mixing = sum(j.kind in ("attention", "mixer") for j in joins)
    return mixing or (len(joins) + 1) // 2


def _scaled(join: Join) -> bool:
    skip, branch = join.skip_scale, join.branch_scale
    if join.per_channel or isinstance(skip, str) or isinstance(branch, str):
        return True
    return abs((1.0 if skip is None else skip) / (1.0 if branch is None else branch or 1e-9)) > 1.2

"""How a run ended, read off its loss: diverged, stalled, slow, trains, and degraded beside its family's best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from streamgauge.errors import InputError
from streamgauge.vocabulary import Readings, Word

Label = Literal["diverged", "stalled", "slow", "degraded", "trains", "undecided"]
ENOUGH_STEPS = 100
"""Below this many steps a flat loss proves nothing; healthy byte models leave the unigram level by step 60."""

SHARE = 0.5
"""Of the initial loss: what a run has to reach to count as trained when the unigram entropy is not known."""

Curve = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Outcome(Word):
    """label, the reason in one sentence, and the final loss in nats (None where it is not finite)."""

    label: Label
    reason: str
    final_loss: float | None = None


def outcome(
    loss: Readings,
    *,
    val_loss: Readings | None = None,
    unigram_entropy: float | None = None,
    margin: float = 0.1,
) -> Outcome:
    """The label of a finished run; the final loss is the last of `val_loss`, else the mean over the last tenth.

    diverged  a loss that is not finite, or final > initial + margin
    trains    final < unigram_entropy - margin; where that is not known, final < initial / 2
    undecided the loss fell and unigram_entropy is not known, or fewer than `ENOUGH_STEPS` steps were taken
    slow      not there, and falling steadily when the budget ends (`falling`; a validation loss must fall as well)
    stalled   not there, and flat

    Losses and `margin` in nats. A model that learns only how often each token occurs ends at the unigram entropy:
    about 0.55 of the initial loss for bytes and 0.7 for subwords, hence the half where it is not known.
    A run of one step has not trained and cannot be told apart: InputError.
    """
    curve = curve_of(loss)
    if len(curve) < 2:
        raise InputError(f"the outcome needs at least two losses, and the run has {len(curve)}: train longer")
    checked = curve_of(val_loss) if val_loss is not None else curve[:0]
    for name, values, steps in (("loss", curve, loss.steps), ("val_loss", checked, val_loss and val_loss.steps)):
        if not np.isfinite(values).all():
            bad = int(np.argmin(np.isfinite(values)))
            return Outcome("diverged", f"{name} is {values[bad]} at step {steps[bad]}")  # type: ignore[index]
    initial = float(curve[0])
    final = float(checked[-1]) if len(checked) else tail_mean(curve)
    if final > initial + margin:
        return Outcome("diverged", f"final loss {final:.3f} nats is above the initial {initial:.3f}", final)
    known = unigram_entropy is not None
    baseline = initial if unigram_entropy is None else unigram_entropy
    name = "the unigram entropy" if known else "the initial loss"
    if final < (baseline - margin if known else SHARE * initial):
        return Outcome(
            "trains", f"final loss {final:.3f} nats is {baseline - final:.2f} below {name} {baseline:.3f}", final
        )
    if not known and final < baseline - margin:
        reason = (
            f"the loss fell from {initial:.3f} to {final:.3f} nats; whether that is more than token frequencies "
            "give cannot be told without unigram_entropy"
        )
        return Outcome("undecided", reason, final)
    if len(curve) < ENOUGH_STEPS:
        return Outcome("undecided", f"{len(curve)} steps are too few to tell (at least {ENOUGH_STEPS})", final)
    where = f"final loss {final:.3f} nats is not {margin:g} below {name} {baseline:.3f}"
    if falling(curve, target=baseline - margin) and not (len(checked) > 1 and checked[-1] >= checked[-2]):
        return Outcome("slow", f"{where} and still falling steadily", final)
    return Outcome("stalled", f"{where} and flat", final)


def degraded(run: Outcome, best: float, *, tolerance: float = 0.05) -> Outcome:
    """A run that trains is relabelled when final_loss > (1 + tolerance) best, best = its family's best (nats)."""
    if run.label != "trains" or run.final_loss is None or run.final_loss <= best * (1 + tolerance):
        return run
    worse = 100 * (run.final_loss / best - 1)
    return replace(
        run, label="degraded", reason=f"final loss {run.final_loss:.3f} nats is {worse:.0f} % above {best:.3f}"
    )


def falling(curve: Curve, *, target: float) -> bool:
    """Does the loss still fall steadily?  d3, d4 = drop into the third and the fourth quarter.

    True where d4 exceeds twice its standard error and either keeps the pace (d4 >= d3 / 2) or would reach `target`
    within as many steps again (4 d4 >= final - target). A plateau is approached ever more slowly and is neither.
    """
    if len(curve) < 8:
        return bool(curve[-1] < curve[0])
    quarters = np.array_split(curve, 4)
    second, third, fourth = (float(q.mean()) for q in quarters[1:])
    error = float(np.hypot(*(np.std(np.diff(q)) / np.sqrt(2 * len(q)) for q in quarters[2:])))
    if third - fourth <= max(2 * error, 1e-3):
        return False
    return third - fourth >= (second - third) / 2 or 4 * (third - fourth) >= fourth - target


def curve_of(readings: Readings) -> Curve:
    """The values of a whole-run signal, [steps]; every row was recorded, so NaN is a value."""
    return np.asarray(readings.values[:, 0], dtype=np.float64)


def tail_mean(curve: Curve) -> float:
    """Mean over the last tenth of the steps (at least one, at most 50)."""
    return float(curve[-min(50, max(1, len(curve) // 10)) :].mean())

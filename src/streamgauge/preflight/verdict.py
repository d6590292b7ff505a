"""The verdict that a check can stand for, from its findings and its rehearsal."""

from __future__ import annotations

import numpy as np

from streamgauge.preflight.rehearsal import CLEAR, Rehearsed
from streamgauge.rules import Examination
from streamgauge.rules.outcome import curve_of
from streamgauge.vocabulary import Finding, Schedule, Verdict, Wiring


def verdict(
    examination: Examination, wiring: Wiring, rehearsed: Rehearsed | None = None, schedule: Schedule | None = None
) -> Verdict:
    """What may be said without calibration: harm that was measured, and nothing of a future that was not.

    will not train  the rehearsal met a loss or gradient that is not finite, or a loss that rose beyond return, at the
                    rate that the run will have at that step
    at risk         a finding of level warning or above; or that harm while the rate was ahead of the schedule
    not assessed    else: a loss that falls for some dozens of steps is told in the reason, but does not promise a run,
                    and `probability` stays None
    """
    worst: Finding | None = next((f for f in examination.findings if f.severity != "info"), None)
    cause = f"{worst.name}: {worst.message}" if worst is not None else ""
    harm = _harm(rehearsed)
    if harm and rehearsed is not None:
        reason = f"{harm}; {cause}" if cause else harm
        if ahead_of_schedule(rehearsed, schedule) and not rehearsed.origin:
            return Verdict("at risk", f"{reason} (at the peak rate, ahead of the schedule)")
        return Verdict("will not train", reason)
    if cause:
        return Verdict("at risk", cause)
    if not wiring.joins:
        return Verdict("not assessed", "no residual join was found")
    if rehearsed is None or not rehearsed.taken:
        reason = "no fault in the wiring or at initialization; whether it trains shows only in training"
        return Verdict("not assessed", reason)
    return Verdict("not assessed", f"no fault found; {_story(rehearsed)}; this promises no whole run")


def ahead_of_schedule(rehearsed: Rehearsed, schedule: Schedule | None) -> bool:
    """Had the rehearsal left the schedule, whose warm-up it runs through in fast motion?"""
    return bool(schedule is not None and schedule.planned and rehearsed.peak_from != 0)


def _harm(rehearsed: Rehearsed | None) -> str:
    if rehearsed is None:
        return ""
    return rehearsed.failure or (rehearsed.stopped if rehearsed.stopped.startswith("the loss rose") else "")


def _story(rehearsed: Rehearsed) -> str:
    loss = rehearsed.readings.get("loss")
    if loss is None or len(loss) < 2:
        return f"{rehearsed.taken} steps were rehearsed"
    curve = curve_of(loss)
    end = float(np.median(curve[-min(CLEAR, max(1, len(curve) // 4)) :]))
    did = "fell" if end < curve[0] else "went"
    return f"the loss {did} from {curve[0]:.3g} to {end:.3g} nats in {rehearsed.taken} rehearsed steps"

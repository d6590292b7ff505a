"""From what came back of a script to the answer of `check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamgauge.errors import InputError
from streamgauge.preflight.rehearsal import CLEAR, Rehearsed
from streamgauge.preflight.result import CheckResult
from streamgauge.preflight.script.job import Job, Seen
from streamgauge.preflight.script.launcher import launch
from streamgauge.preflight.verdict import verdict
from streamgauge.rules import Evidence, examine
from streamgauge.vocabulary import Origin, Schedule


def check_script(
    script: str,
    args: Sequence[str] = (),
    *,
    budget: int = 60,
    seconds: float = 40.0,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    allow_writes: bool = False,
    wiring_only: bool = False,
    lr: float | None = None,
    warmup: int | None = None,
    steps: int | None = None,
    clip: float | None = None,
    precision: str | None = None,
    stdout: int | None = None,
) -> CheckResult:
    """Judge an unmodified training script: `python script args` runs until some dozen optimizer steps are made.

    budget, seconds   backward passes to spend, and the longest time from the first step on
    allow_writes      let the script write its checkpoints
    lr, warmup, steps, clip, precision   what is known of the run; they win over what is seen
    stdout            file descriptor to which the script prints; None: as this process does

    Raises InputError when there is no such script, or it ends before anything could be seen of its training.
    """
    select, ignore = tuple(select), tuple(ignore)
    examine(Evidence(), select, ignore, thresholds)  # a misspelt rule is said before the script has run
    if budget < 1 or not seconds > 0:
        raise InputError(f"budget={budget}, seconds={seconds:g}: give at least one loss evaluation and some time")
    job = Job(
        str(script),
        tuple(args),
        "check",
        answer="",
        budget=budget,
        seconds=seconds,
        allow_writes=allow_writes,
        wiring_only=wiring_only,
        lr=lr,
        warmup=warmup,
        steps=steps,
        clip=clip,
        precision=precision,
    )
    code, seen = launch(job, stdout)
    if seen is None or not seen.model or seen.wiring is None:
        raise InputError(f"{script}: {_nothing(code, seen)}")
    examination = examine(evidence_of(seen), select, ignore, thresholds)
    notes = tuple(dict.fromkeys((*_end(seen), *seen.notes)))
    rehearsed, schedule = _rehearsed(seen), seen.facts.get("schedule")
    answer = verdict(examination, seen.wiring, rehearsed, schedule if isinstance(schedule, Schedule) else None)
    return CheckResult(
        f"{script}: {seen.model}",
        seen.wiring,
        answer,
        examination,
        seen.readings,
        notes,
        seen.facts,
        rehearsed,
        seen.backwards,
    )


def evidence_of(seen: Seen, **more: Any) -> Evidence:
    """Wiring, readings and facts, as the rules ask for them."""
    return Evidence(seen.wiring, seen.readings, {**seen.facts, **more})


def _nothing(code: int, seen: Seen | None) -> str:
    if seen is None:
        if code > 128:
            return f"its process was ended by signal {code - 128} before a training step was seen"
        return f"it ended (exit code {code}) without importing torch, or by os._exit: no optimizer step was seen"
    if seen.model and seen.wiring is None:
        why = next((note for note in seen.notes if "wiring" in note), "no training forward was seen")
        return f"the wiring of {seen.model} could not be read: {why}"
    if seen.ended == "raised":
        return f"it raised {seen.error or 'an exception'} before its first optimizer step"
    if seen.backwards:
        return (
            f"no optimizer step was seen in {seen.backwards} backward passes; the check sees torch.optim.Optimizer "
            "steps in the script's own process"
        )
    return "no optimizer step was seen: the script ended without training; give the arguments that make it train"


def _end(seen: Seen) -> list[str]:
    if seen.ended == "raised":
        return [f"the script raised {seen.error} after {seen.steps} steps; judged by what was seen until then"]
    if seen.ended == "finished":
        return [f"the script ended by itself after {seen.steps} optimizer steps"]
    return []


def _rehearsed(seen: Seen) -> Rehearsed:
    """What was seen, as the rehearsal of a check in Python tells it."""
    peak_from, origin, parameters = (seen.facts.get(name) for name in ("peak_from", "origin", "parameters"))
    return Rehearsed(
        readings=seen.readings,
        parameters=parameters if isinstance(parameters, tuple) else (),
        taken=seen.steps,
        peak_from=peak_from if isinstance(peak_from, int) else None,
        stopped=seen.failure or _rise(seen),
        failure=seen.failure,
        origin=origin if isinstance(origin, Origin) else None,
        autocast=seen.autocast,
        notes=seen.notes,
    )


def _rise(seen: Seen) -> str:
    """The sentence on a loss whose last values all lie beyond return, as `preflight.rehearsal` says it."""
    loss = seen.readings.get("loss")
    if loss is None or len(loss) <= 2 * CLEAR:
        return ""
    curve = loss.values[:, 0]
    if not min(curve[-CLEAR:]) > curve[0] + max(1.0, abs(curve[0])):
        return ""
    return f"the loss rose from {curve[0]:.3g} to {curve[-1]:.3g} nats in {seen.steps} steps"

"""From hooks to evidence: what a session saw, as plain values by the names that the rules use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgauge.gauge.target import original
from streamgauge.preflight import gather
from streamgauge.preflight.gather.optimizer import number
from streamgauge.preflight.script.job import Ended, Seen
from streamgauge.preflight.script.models import Watched
from streamgauge.preflight.script.notes import notes
from streamgauge.preflight.script.optimizers import Track
from streamgauge.vocabulary import Readings, Schedule

if TYPE_CHECKING:
    from streamgauge.preflight.script.session import Session

UNTICKED = 12
"""Optimizer steps without a step of the scheduler after which it is taken to be stepped once per epoch."""


def peaks(session: Session, track: Track) -> list[float | None]:
    """Per group, the learning rate that the run will reach: --lr, else the highest of the rate at which the group was
    made, `initial_lr`, the rate now and the scheduler's plan."""
    optimizer = track.ref()
    if optimizer is None:
        return []
    found = session.schedulers.of(optimizer)
    key = id(found[0]) if found else None
    if track.planned is None or track.planned[0] != key:
        track.planned = key, gather.peaks(gather.rates(found[0])) if found else None
    planned = track.planned[1] or ()
    highest: list[float | None] = []
    for index, group in enumerate(optimizer.param_groups):
        made = track.rates[index] if index < len(track.rates) else None
        plan = planned[index] if index < len(planned) else None
        values = [v for v in (made, number(group.get("initial_lr")), number(group.get("lr")), plan) if v is not None]
        highest.append(max(values, default=None))
    top = max((peak for peak in highest if peak is not None), default=0.0)
    if session.job.lr is None or not top:
        return highest
    return [None if peak is None else peak * session.job.lr / top for peak in highest]


def seen(session: Session, how: Ended, error: BaseException | None) -> Seen:
    """The plain values of a session; cheap but for reading the gauge."""
    entry = session.roster.judged
    said = f"{type(error).__name__}: {error}" if error is not None else ""
    if entry is None:
        return Seen(backwards=session.losses.count, notes=tuple(notes(session, None)), ended=how, error=said)
    return Seen(
        model=entry.name,
        steps=entry.steps,
        backwards=session.losses.count,
        wiring=entry.gauge.wiring,
        readings=_readings(entry) if session.check else {},
        facts=_facts(session, entry),
        notes=tuple(notes(session, entry)),
        ended=how,
        error=said,
        failure=f"{session.failure} at step {max(0, entry.steps - 1)}" if session.failure else "",
        autocast=session.dtype,
    )


def _readings(entry: Watched) -> dict[str, Readings]:
    so_far = entry.gauge.readings_so_far()
    left_out = {"step_time", "tokens_per_s"} | ({"loss"} if entry.unseen_losses else set())
    return {name: so_far.readings(name) for name in so_far.signals if name not in left_out}


def _facts(session: Session, entry: Watched) -> dict[str, object]:
    job, optimizer, targets = session.job, entry.optimizer, session.targets
    high = peaks(session, entry.track)
    facts: dict[str, object] = {
        "phase": "run" if not session.check else "rehearsal" if entry.steps > 1 else "init",
        "optimizer": type(optimizer).__name__,
        "setup": gather.setup(optimizer, original(entry.model), peaks=high),
        "schedule": _schedule(session, entry),
        "handling": gather.handling(
            clip=job.clip if job.clip is not None else session.clipping.limit,
            accumulate=entry.track.accumulate,
            precision=gather.precision_of(job.precision),
            seen=session.dtype,
            scaler=session.losses.scaler,
        ),
        "flags": gather.flags(original(entry.model)),
        "parameters": entry.parameters or gather.parameters(original(entry.model), {}),
        "vocab": targets.vocab,
        "unigram_entropy": targets.unigram_entropy,
        "peak_from": entry.track.peak_from,
        **entry.facts,
        "origin": entry.origin,
        "pretrained": _loaded(session, entry) or None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _loaded(session: Session, entry: Watched) -> bool:
    named = (getattr(getattr(m, "config", None), "_name_or_path", "") for m in entry.model.modules())
    return any(m in session.loaded for m in entry.model.modules()) or any(isinstance(n, str) and n for n in named)


def _schedule(session: Session, entry: Watched) -> Schedule:
    job, track = session.job, entry.track
    found = session.schedulers.of(entry.optimizer)
    scheduler: Any = found[0] if found else None
    read = gather.schedule(scheduler, warmup=job.warmup, steps=job.steps, steps_per_tick=steps_per_tick(session, entry))
    if read.name is None and len(set(track.lrs)) > 1:
        return Schedule("set by hand", job.warmup, job.steps)
    return read


def steps_per_tick(session: Session, entry: Watched) -> float | None:
    """Optimizer steps between two steps of the scheduler: as seen, else an epoch of the loader, else those so far."""
    if session.schedulers.of(entry.optimizer) is None or not entry.track.ticks:
        return None
    step, tick = entry.track.ticks[-1]
    changes = [(s, t) for s, t in entry.track.ticks if t > 0]
    if tick > 0:
        step, tick = next((s, t) for s, t in changes if t == tick)
        return step / tick
    if step < UNTICKED:
        return None
    return float(max(step + 1, (session.epoch or 0) // (entry.track.accumulate or 1)))

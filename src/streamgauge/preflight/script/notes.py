"""What was assumed, left out or odd in a watched script, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgauge.preflight.script.models import Watched

if TYPE_CHECKING:
    from streamgauge.preflight.script.session import Session


def notes(session: Session, entry: Watched | None) -> list[str]:
    """The lines of a session, the most important first."""
    lines: list[str] = []
    if entry is not None:
        lines += _subject(session, entry)
        lines += _odd(session, entry)
        lines += entry.notes
        kept = {"places", "wiring"} if session.failure else {"places", "wiring", "gradients"}
        details = (event.detail for event in entry.gauge.readings_so_far().events() if event.kind in kept)
        lines += [str(d["message"]) for d in details if isinstance(d, dict) and set(d) == {"message"}]
        if entry.gauge.wiring is not None:
            lines += entry.gauge.wiring.notes
    if session.compiled and session.check:
        lines.append("torch.compile was left out: the script ran eagerly, so that its layers can be measured")
    if session.writes is not None:
        lines += session.writes.notes
    return list(dict.fromkeys(lines))


def _subject(session: Session, entry: Watched) -> list[str]:
    others = session.roster.others
    lines = [f"judged: {entry.name}, {entry.size:,} parameters, stepped {entry.steps} times by {_optimizer(entry)}"]
    if others:
        listed = ", ".join(f"{name} ({size:,} parameters)" for name, size in others[:6])
        lines.append(f"not judged: {listed}")
    if session.check and session.plan.steps and entry.steps > 1:
        lines.append(session.plan.told(entry.track.raised))
    return lines


def _optimizer(entry: Watched) -> str:
    return type(entry.optimizer).__name__


def _odd(session: Session, entry: Watched) -> list[str]:
    lines = []
    if session.clipped_scaled:
        lines.append("gradients were clipped while scaled: call scaler.unscale_(optimizer) before clipping")
    if entry.track.skipped:
        lines.append(f"{entry.track.skipped} steps were skipped by the GradScaler")
    if entry.unseen_losses:
        lines.append(f"the loss of {entry.unseen_losses} steps was not seen: backward was called on no scalar")
    if session.clipping.by_value:
        lines.append("gradients are clipped by value; their norm is that after clipping")
    return lines

"""The wiring of a model drawn in text, repeated blocks once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamgauge.reporting.numbers import printable
from streamgauge.vocabulary import Join, Scale, Wiring

EQUATIONS = {
    "pre": "x + f(N(x))",
    "post": "N(x + f(x))",
    "sandwich": "x + N(f(N(x)))",
    "output": "x + N(f(x))",
    "parallel-pre": "x + f(N(x)) + g(N(x))",
    "pre+post": "N(x + f(N(x)))",
    "none": "x + f(x)",
    "unrecognised": "not recognised",
}
LONGEST_PERIOD = 12
MARGIN = " " * 10


@dataclass(frozen=True)
class Group:
    """`times` repetitions of the sublayers in `unit`, from the sublayer `first` of the execution order on."""

    unit: tuple[Join, ...]
    times: int
    first: int
    last: int


def draw(wiring: Wiring) -> str:
    """The stream from top to bottom, one branch per sublayer, equal blocks drawn once with their count."""
    bare = {join.index for join in wiring.unjoined}
    lines = [f"{MARGIN}input", f"{MARGIN}│"]
    for group in groups(wiring):
        body = [line for join in group.unit for line in _sublayer(join, join.index in bare)]
        lines += _bracket(body, group) if group.times > 1 else [MARGIN + line for line in body]
    final = next((norm for norm in wiring.norms if norm.role == "final"), None)
    if wiring.final_norm:
        known = _norm(final.kind, final.eps) if final else "norm"
        lines += [f"{MARGIN}{known}  (final)", f"{MARGIN}│"]
    lines.append(f"{MARGIN}output")
    lines += _remarks("Not placed", wiring.unplaced) + _remarks("Assumed", wiring.notes)
    return printable("\n".join(lines))


def groups(wiring: Wiring) -> Iterator[Group]:
    """The sublayers in execution order, cut greedily into the longest repetitions of a short unit."""
    bare = {join.index for join in wiring.unjoined}
    order = wiring.sublayers
    keys = [_key(join, join.index in bare) for join in order]
    at = 0
    while at < len(order):
        period, times = _repetition(keys, at)
        end = at + period * times
        yield Group(order[at : at + period], times, order[at].index, order[end - 1].index)
        at = end


def _bracket(body: list[str], group: Group) -> list[str]:
    """The lines of a repeated unit behind a bracket that says how often it occurs."""
    middle = len(body) // 2
    marks = ["│"] * len(body)
    marks[0], marks[-1] = "╭", "╰"
    sign = [f"{group.times}×" if i == middle else "" for i in range(len(body))]
    framed = [f"{s:>6} {m}{MARGIN[8:]}{line}" for s, m, line in zip(sign, marks, body, strict=True)]
    framed[-1] += f"      up to {group.last}"
    return framed


def _key(join: Join, bare: bool) -> tuple[object, ...]:
    shape = (join.placement, join.norm, join.eps, join.kind, join.per_channel, bare)
    return (*shape, join.skip_scale, join.branch_scale)


def _repetition(keys: list[tuple[object, ...]], at: int) -> tuple[int, int]:
    best = (1, 1)
    for period in range(1, min(LONGEST_PERIOD, (len(keys) - at) // 2) + 1):
        unit, times = keys[at : at + period], 1
        while keys[at + period * times : at + period * (times + 1)] == unit:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best


def _sublayer(join: Join, bare: bool) -> list[str]:
    norm = _norm(join.norm, join.eps)
    name = f"{join.index}: {join.path or '(model)'}"
    if bare:
        before = f"{norm} ─▶ " if join.placement in ("pre", "sandwich", "pre+post", "parallel-pre") else ""
        return [f"│      {name}", f"▼ {before}{join.kind}    f(x): no skip, the branch replaces the stream", "│"]
    chain = [norm] if join.placement in ("pre", "sandwich", "pre+post", "parallel-pre") else []
    chain.append(join.kind if join.placement != "unrecognised" else f"? {join.kind}")
    chain += [norm] if join.placement in ("sandwich", "output") else []
    chain += [_scale(join.branch_scale, join.per_channel)] if join.branch_scale is not None or join.per_channel else []
    branch = " ─▶ ".join(chain)
    skip = f"  {_scale(join.skip_scale, False)} on the skip" if join.skip_scale is not None else ""
    lines = [
        f"│      {name}",
        f"├─▶ {branch} ─╮    {EQUATIONS[join.placement]}",
        f"⊕◀──{'─' * len(branch)}──╯{skip}",
    ]
    if join.placement in ("post", "pre+post"):
        lines.append(norm)
    return [*lines, "│"]


def _norm(kind: str | None, eps: float | None) -> str:
    name = kind or "norm"
    return name if eps is None else f"{name}(eps {eps:g})"


def _scale(scale: Scale | None, per_channel: bool) -> str:
    if per_channel or scale == "learned-vector":
        return "× learned, per channel"
    return f"× {scale}" if isinstance(scale, str) else f"× {scale if scale is not None else 1.0:.4g}"


def _remarks(title: str, lines: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"  - {line}" for line in lines)] if lines else []

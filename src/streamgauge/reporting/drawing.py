"""The wiring of a model drawn in text, repeated blocks once."""

from __future__ import annotations

from collections.abc import Sequence

from streamgauge.reporting.blocks import Stack, scale, spans, stacks
from streamgauge.reporting.blocks import norm as norm_words
from streamgauge.reporting.numbers import printable
from streamgauge.reporting.periods import periods
from streamgauge.vocabulary import Join, Wiring

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
MARGIN = " " * 10


def draw(wiring: Wiring) -> str:
    """The stream from top to bottom: the typical block of each stack once with its count, then what differs."""
    bare = {join.index for join in wiring.unjoined}
    lines, remarks = [f"{MARGIN}input", f"{MARGIN}│"], []
    for part in stacks(wiring.sublayers):
        if isinstance(part, Stack):
            remarks += part.remarks()
            body = _drawn(part.typical, bare, nested=True)
            lines += _bracket(body, len(part.blocks), f"{part.name} {spans(part.names)}")
        else:
            lines += _drawn(part, bare)
    final = next((norm for norm in wiring.norms if norm.role == "final"), None)
    if wiring.final_norm:
        known = norm_words(final.kind, final.eps) if final else "norm"
        lines += [f"{MARGIN}{known}  (final)", f"{MARGIN}│"]
    lines.append(f"{MARGIN}output")
    lines += _remarks("Blocks", tuple(remarks))
    lines += _remarks("Not placed", wiring.unplaced) + _remarks("Assumed", wiring.notes)
    return printable("\n".join(lines))


def _drawn(sublayers: Sequence[Join], bare: set[int], nested: bool = False) -> list[str]:
    """One branch per sublayer, repetitions once; `nested` inside another bracket."""
    lines: list[str] = []
    for group in periods(sublayers):
        body = [line for join in group.unit for line in _sublayer(join, join.index in bare)]
        if group.times > 1:
            lines += _bracket(body, group.times, f"up to {group.last}", "  " if nested else MARGIN[8:])
        else:
            lines += body if nested else [MARGIN + line for line in body]
    return lines


def _bracket(body: list[str], times: int, last: str, margin: str = MARGIN[8:]) -> list[str]:
    """The lines of a repeated unit behind a bracket that says how often it occurs."""
    middle = len(body) // 2
    marks = ["│"] * len(body)
    marks[0], marks[-1] = "╭", "╰"
    sign = [f"{times}×" if i == middle else "" for i in range(len(body))]
    framed = [f"{s:>6} {m}{margin}{line}" for s, m, line in zip(sign, marks, body, strict=True)]
    framed[-1] += f"      {last}"
    return framed


def _sublayer(join: Join, bare: bool) -> list[str]:
    norm = norm_words(join.norm, join.eps)
    name = f"{join.index}: {join.path or '(model)'}"
    if bare:
        before = f"{norm} ─▶ " if join.placement in ("pre", "sandwich", "pre+post", "parallel-pre") else ""
        return [f"│      {name}", f"▼ {before}{join.kind}    f(x): no skip, the branch replaces the stream", "│"]
    chain = [norm] if join.placement in ("pre", "sandwich", "pre+post", "parallel-pre") else []
    chain.append(join.kind if join.placement != "unrecognised" else f"? {join.kind}")
    chain += [norm] if join.placement in ("sandwich", "output") else []
    chain += [scale(join.branch_scale, join.per_channel)] if join.branch_scale is not None or join.per_channel else []
    branch = " ─▶ ".join(chain)
    skip = f"  {scale(join.skip_scale, False)} on the skip" if join.skip_scale is not None else ""
    lines = [
        f"│      {name}",
        f"├─▶ {branch} ─╮    {_equation(join)}",
        f"⊕◀──{'─' * len(branch)}──╯{skip}",
    ]
    if join.placement in ("post", "pre+post"):
        lines.append(norm)
    return [*lines, "│"]


def _equation(join: Join) -> str:
    """The join's equation with its scales: "N(6 x + f(x))"."""
    skip, branch = join.skip_scale, "learned" if join.per_channel else join.branch_scale
    a = "" if skip is None else "a " if isinstance(skip, str) else f"{skip:.4g} "
    b = "" if branch is None else "b " if isinstance(branch, str) else f"{branch:.4g} "
    return EQUATIONS[join.placement].replace("x + ", f"{a}x + {b}", 1)


def _remarks(title: str, lines: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"  - {line}" for line in lines)] if lines else []

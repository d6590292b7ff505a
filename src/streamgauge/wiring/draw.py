"""One block of a wiring as equations, and the list of blocks that differ."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.vocabulary import Join, Wiring

LONGEST = 16
"""The most sublayers that a block may have."""


@dataclass(frozen=True)
class Run:
    """Blocks of the same sublayers, one after another: `unit` is the usual block, `blocks` are all of them."""

    unit: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]


def draw(wiring: Wiring) -> str:
    """The usual block of each part of the model, one equation for each sublayer, and the blocks that differ."""
    lines: list[str] = []
    for run in runs(wiring):
        times = f"{len(run.blocks)} blocks" if len(run.blocks) > 1 else "1 block"
        lines += [f"{times} of", *(f"    {line}" for line in run.unit), *(f"  {line}" for line in _differ(run))]
    if not lines:
        lines.append("no joins")
    final = next((norm for norm in wiring.norms if norm.role == "final"), None)
    kind = "" if final is None else f": {final.kind}" + (f" (eps {final.eps:g})" if final.eps is not None else "")
    lines.append(f"final norm{kind}" if wiring.final_norm else "no final norm")
    lines += [f"not placed: {line}" for line in wiring.unplaced] + [f"assumed: {line}" for line in wiring.notes]
    return "\n".join(lines)


def differences(wiring: Wiring) -> list[str]:
    """One line for each part of the model that says which of its blocks are alike, and how the others differ."""
    return [line for run in runs(wiring) for line in _differ(run)]


def runs(wiring: Wiring) -> list[Run]:
    """The sublayers in execution order, cut into runs of blocks of one length."""
    words = [equation(join, bare=join in wiring.unjoined) for join in wiring.sublayers]
    found: list[Run] = []
    at = 0
    while at < len(words):
        size, count = _blocks(words, at)
        blocks = [tuple(words[at + i * size : at + (i + 1) * size]) for i in range(count)]
        unit = max(dict.fromkeys(blocks), key=blocks.count)
        found.append(Run(unit, tuple(blocks)))
        at += size * count
    return found


def _blocks(words: list[str], at: int) -> tuple[int, int]:
    """Size and number of the blocks from `at` on: the size whose blocks agree best, as far as they look alike."""
    kinds = [word.split("(")[0] for word in _shapes(words)]
    best, score = (1, 1), 0.0
    for size in range(1, min(LONGEST, len(words) - at) + 1):
        count = 1
        while kinds[at + count * size : at + (count + 1) * size] == kinds[at : at + size]:
            count += 1
        if count == 1 and size > 1:
            continue
        blocks = [tuple(words[at + i * size : at + (i + 1) * size]) for i in range(count)]
        alike = max(blocks.count(block) for block in set(blocks))
        value = alike * size - 0.5 * len(set(blocks)) - 0.01 * size
        if value > score:
            best, score = (size, count), value
    return best


def _shapes(words: list[str]) -> list[str]:
    """What a sublayer computes, without its norms and scales."""
    names = ("cross-attention", "attention", "ffn", "mixer", "other")
    return [next(name for name in names if name in word) for word in words]


def _differ(run: Run) -> list[str]:
    usual = [i for i, block in enumerate(run.blocks) if block == run.unit]
    if len(usual) == len(run.blocks):
        return []
    lines = [f"blocks {_ranges(usual)} alike"]
    odd: dict[tuple[str, ...], list[int]] = {}
    for i, block in enumerate(run.blocks):
        if block != run.unit:
            odd.setdefault(block, []).append(i)
    for block, where in odd.items():
        changed = [f"{b} instead of {u}" for b, u in zip(block, run.unit, strict=True) if b != u]
        lines.append(f"block{'s' if len(where) > 1 else ''} {_ranges(where)}: {'; '.join(changed)}")
    return lines


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as 0-2, 5."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1][-1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def equation(join: Join, bare: bool = False) -> str:
    """A sublayer as its equation in the stream x, for example `rmsnorm(1.5 x + attention(x))`."""
    norm = join.norm or "norm"
    if bare:
        return f"{join.kind}(x), no skip"
    if join.placement == "unrecognised":
        return f"{join.kind}, placement not recognised"
    inner = f"{norm}(x)" if join.placement in ("pre", "parallel-pre", "sandwich", "pre+post") else "x"
    branch = f"{join.kind}({inner})"
    if join.placement in ("sandwich", "output"):
        branch = f"{norm}({branch})"
    if join.per_channel:
        branch = f"g {branch}"
    if join.branch_scale is not None:
        branch = f"{_factor(join.branch_scale)} {branch}"
    skip = "x" if join.skip_scale is None else f"{_factor(join.skip_scale)} x"
    total = f"{skip} + {branch}"
    eps = f"  (eps {join.eps:g})" if join.eps is not None else ""
    return (f"{norm}({total})" if join.placement in ("post", "pre+post") else total) + eps


def _factor(scale: float | str) -> str:
    return {"learned": "a", "learned-vector": "w"}.get(scale, scale) if isinstance(scale, str) else f"{scale:.4g}"

"""Blocks of a stack: which are alike, and in what the others differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from streamgauge.reporting.periods import key, periods
from streamgauge.vocabulary import Join, Scale

NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class Stack:
    """Consecutive blocks of one container: `names` are their numbers in it, `blocks` the sublayers of each."""

    name: str
    names: tuple[int, ...]
    blocks: tuple[tuple[Join, ...], ...]

    @property
    def typical(self) -> tuple[Join, ...]:
        """The first block of the most common make."""
        makes = [_make(block) for block in self.blocks]
        return self.blocks[makes.index(Counter(makes).most_common(1)[0][0])]

    def remarks(self) -> list[str]:
        """[] where all blocks are alike; else which are, and one line for each way to differ."""
        typical = self.typical
        ways: dict[str, list[int]] = {}
        for name, block in zip(self.names, self.blocks, strict=True):
            ways.setdefault("" if _make(block) == _make(typical) else _difference(block, typical), []).append(name)
        if len(ways) == 1:
            return []
        return [
            f"{self.name} {spans(names)}: {way or 'alike'}" for way, names in sorted(ways.items(), key=lambda w: w[1])
        ]


def stacks(sublayers: Sequence[Join]) -> list[Stack | tuple[Join, ...]]:
    """The sublayers in execution order, as stacks of blocks and what lies between them.

    A block is a number in the module path. Paths can hold several (block, then sublayer); the level is taken at which
    the least is left to draw: the typical block of each stack, and the blocks that differ from it.
    """
    deepest = max((len(NUMBER.findall(join.path)) for join in sublayers), default=0)
    return min((_cut(sublayers, level) for level in (*range(1, deepest + 1), 0)), key=_cost)


def _cut(sublayers: Sequence[Join], level: int) -> list[Stack | tuple[Join, ...]]:
    """At level 0 nothing is a block; at level n the n-th number of a path is."""

    def place(join: Join) -> tuple[str, int] | None:
        found = list(NUMBER.finditer(join.path))
        if level == 0 or len(found) < level:
            return None
        match = found[level - 1]
        return join.path[: match.start()].rstrip("."), int(match.group())

    parts: list[Stack | tuple[Join, ...]] = []
    for name, run in groupby(sublayers, lambda join: (place(join) or (None,))[0]):
        joins = tuple(run)
        if name is None:
            parts.append(joins)
            continue
        blocks = [(number, tuple(block)) for number, block in groupby(joins, lambda join: (place(join) or ("", -1))[1])]
        if len(blocks) == 1:
            parts.append(joins)
        else:
            parts.append(Stack(name, tuple(n for n, _ in blocks), tuple(block for _, block in blocks)))
    return parts


def _cost(parts: list[Stack | tuple[Join, ...]]) -> int:
    """Lines to draw: the units of each part, and one for each block that differs."""

    def drawn(joins: tuple[Join, ...]) -> int:
        return sum(len(group.unit) for group in periods(joins))

    return sum(
        drawn(part.typical) + sum(_make(b) != _make(part.typical) for b in part.blocks)
        if isinstance(part, Stack)
        else drawn(part)
        for part in parts
    )


def _make(block: tuple[Join, ...]) -> tuple[object, ...]:
    return tuple(key(join) for join in block)


def _difference(block: tuple[Join, ...], typical: tuple[Join, ...]) -> str:
    kinds, usual = ([join.kind for join in joins] for joins in (block, typical))
    if kinds != usual:
        return f"{', '.join(kinds)} (elsewhere {', '.join(usual)})"
    pairs = zip(block, typical, strict=True)
    return "; ".join(
        f"{join.kind} {wired(join)} (elsewhere {wired(other)})" for join, other in pairs if key(join) != key(other)
    )


def wired(join: Join) -> str:
    """How a sublayer is wired, in words: "pre, layernorm(eps 1e-05)"."""
    if join.placement == "none":
        words = "without a norm" if join.out_tap is None or join.out_tap != join.branch_tap else "without a skip"
    else:
        words = join.placement if join.norm is None else f"{join.placement}, {norm(join.norm, join.eps)}"
    skip = f", skip {scale(join.skip_scale, False)}" if join.skip_scale is not None else ""
    scaled = join.branch_scale is not None or join.per_channel
    return words + skip + (f", branch {scale(join.branch_scale, join.per_channel)}" if scaled else "")


def norm(kind: str | None, eps: float | None) -> str:
    """A norm with its epsilon, where it is known."""
    name = kind or "norm"
    return name if eps is None else f"{name}(eps {eps:g})"


def scale(value: Scale | None, per_channel: bool) -> str:
    """A factor: a number, or what was learned."""
    if per_channel or value == "learned-vector":
        return "× learned, per channel"
    return f"× {value}" if isinstance(value, str) else f"× {value if value is not None else 1.0:.4g}"


def spans(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 -> "0-2, 5"."""
    step: Callable[[tuple[int, int]], int] = lambda pair: pair[1] - pair[0]  # noqa: E731
    runs: Iterator[list[int]] = ([n for _, n in run] for _, run in groupby(enumerate(numbers), step))
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)

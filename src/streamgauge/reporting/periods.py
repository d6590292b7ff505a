"""Repetitions in a sequence of sublayers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamgauge.vocabulary import Join

LONGEST_PERIOD = 12


@dataclass(frozen=True)
class Group:
    """`times` repetitions of the sublayers in `unit`, from the sublayer `first` of the execution order on."""

    unit: tuple[Join, ...]
    times: int
    first: int
    last: int


def periods(sublayers: Sequence[Join]) -> Iterator[Group]:
    """The sublayers in execution order, cut greedily into the longest repetitions of a short unit."""
    keys = [key(join) for join in sublayers]
    at = 0
    while at < len(sublayers):
        period, times = _repetition(keys, at)
        end = at + period * times
        yield Group(tuple(sublayers[at : at + period]), times, sublayers[at].index, sublayers[end - 1].index)
        at = end


def key(join: Join) -> tuple[object, ...]:
    """Sublayers of equal key are drawn alike."""
    bare = join.out_tap is not None and join.out_tap == join.branch_tap
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

"""Sublayers whose output replaces the stream, with no residual addition.

A *cut* is a node that everything computed before it and used after it goes through. Between two cuts there is no
skip, unless a join lies between.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.vocabulary import BranchKind, Join
from streamgauge.wiring import ops
from streamgauge.wiring.branch import Region, kind_of, region_of, walk
from streamgauge.wiring.candidates import Candidate, Sites
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.taps import Taps


@dataclass
class _Stretch:
    """What is computed between two neighbouring cuts."""

    start: int
    end: int
    products: int
    nonlinear: bool
    kind: BranchKind | None
    norm: bool
    join: bool


def find(facts: Facts, sites: Sites, taps: Taps, candidates: list[Candidate]) -> list[tuple[int, Join]]:
    """The unjoined sublayers, each with the node of its output."""
    tops = {c.top for c in candidates}
    stretches = [_stretch(facts, sites, a, b, tops) for a, b in _pairs(facts)]
    found = [*_mixers(facts, stretches), *_ffns(facts, stretches)]
    streams = {facts.nodes[c.top].numel for c in candidates}
    widths = streams | {facts.nodes[end].numel for _, end, kind in found if kind != "ffn"}
    if not widths:
        return []
    made: list[tuple[int, Join]] = []
    for start, end, kind in sorted(found, key=lambda f: f[1]):
        if facts.nodes[end].numel not in widths or (kind == "mixer" and candidates):
            continue
        tap = taps.branch(end, len(facts.nodes))
        call = facts.nodes[end].call
        path = facts.graph.log.calls[call].path if call >= 0 else ""
        join = Join(-1, path, "none", kind=kind, stream_tap=taps.stream(start), branch_tap=tap, out_tap=tap)
        made.append((end, join))
    return made


def _pairs(facts: Facts) -> list[tuple[int, int]]:
    """Neighbouring cuts on the way to the primary output; a memory that later parts read is not counted as a skip."""
    primary = facts.graph.primary
    light, past = walk(facts, [(primary, False)], 0)
    way = sorted(light | past)
    inside = set(way)
    last = {i: max((u for u in facts.live_users(i) if u in inside), default=i) for i in way}
    pairs: list[tuple[int, int]] = []
    begin = 0
    while begin < len(way):
        cuts, open_until = [], -1
        for i in way[begin:]:
            if open_until <= i:
                cuts.append(i)
            open_until = max(open_until, last[i])
        pairs.extend(zip(cuts, cuts[1:], strict=False))
        gap = max(pairs[-len(cuts) + 1 :], key=lambda p: _between(way, p), default=(0, 0))
        if len(cuts) < 2 or last[gap[0]] < gap[1] or _between(way, gap) < 20 or gap[0] in _seen(pairs, gap):
            break
        memory = gap[0]
        rest = [i for i in way if memory < i <= gap[1]]
        last[memory] = memory
        pairs = [p for p in pairs if p != gap]
        cuts, open_until = [], -1
        for i in rest:
            if open_until <= i:
                cuts.append(i)
            open_until = max(open_until, last[i])
        pairs.extend(zip(cuts, cuts[1:], strict=False))
        break
    return sorted(pairs)


def _between(way: list[int], pair: tuple[int, int]) -> int:
    return pair[1] - pair[0]


def _seen(pairs: list[tuple[int, int]], gap: tuple[int, int]) -> set[int]:
    return {a for a, b in pairs if (a, b) != gap}


def _stretch(facts: Facts, sites: Sites, start: int, end: int, tops: set[int]) -> _Stretch:
    region: Region = region_of(facts, [(end, False)], start, sites.core)
    inner = [i for i in region.reach if i != start]
    join = any(i in tops for i in inner)
    products = sum(1 for i in inner if facts.heavy[i] and any(facts.nodes[j].trained for j in facts.nodes[i].inputs))
    nonlinear = any(facts.nodes[i].op in ops.NONLINEAR for i in inner if i not in sites.inner)
    kind = None if join or not region.entries else kind_of(facts, region)
    return _Stretch(start, end, products, nonlinear, kind, any(i in sites.core for i in inner), join)


def _mixers(facts: Facts, stretches: list[_Stretch]) -> list[tuple[int, int, BranchKind]]:
    found: list[tuple[int, int, BranchKind]] = []
    for at, stretch in enumerate(stretches):
        if stretch.kind in (None, "ffn"):
            continue
        end, i = stretch.end, at + 1
        while i < len(stretches) and not (stretches[i].norm or stretches[i].nonlinear or stretches[i].join):
            following = stretches[i]
            if following.kind not in (None, "ffn") or following.products > 1:
                break
            i += 1
            if following.products == 1:
                if _size(facts, following.end) == _size(facts, stretch.start):
                    end = _last_light(facts, stretches, i, following.end)
                break
        start = _before_norm(stretches, at)
        if _size(facts, end) == _size(facts, start):
            found.append((start, end, stretch.kind or "mixer"))
    return found


def _ffns(facts: Facts, stretches: list[_Stretch]) -> list[tuple[int, int, BranchKind]]:
    found: list[tuple[int, int, BranchKind]] = []
    at = 0
    while at < len(stretches):
        products, nonlinear, end = 0, False, -1
        for i in range(at, len(stretches)):
            stretch = stretches[i]
            if stretch.join or stretch.kind not in (None, "ffn") or (i == at and not stretch.products):
                break
            nonlinear |= stretch.nonlinear and products + stretch.products > 0
            products += stretch.products
            if products > 1 and nonlinear and _size(facts, stretch.end) == _size(facts, stretches[at].start):
                end = i
                break
        if end < 0:
            at += 1
            continue
        last = _last_light(facts, stretches, end + 1, stretches[end].end)
        found.append((_before_norm(stretches, at), last, "ffn"))
        at = end + 1
    return found


def _before_norm(stretches: list[_Stretch], at: int) -> int:
    """The start of a stretch, or of the norm and layout before it."""
    start = stretches[at].start
    for i in range(at - 1, -1, -1):
        before = stretches[i]
        if before.end != start or before.products or before.nonlinear or before.join or before.kind is not None:
            break
        start = before.start
        if before.norm:
            break
    return start


def _last_light(facts: Facts, stretches: list[_Stretch], i: int, end: int) -> int:
    """Layout, bias and dropout behind a product still belong to it."""
    while i < len(stretches) and stretches[i].start == end:
        node = facts.nodes[stretches[i].end]
        trained = node.op == "add" and any(facts.nodes[j].trained for j in node.inputs)
        if not (facts.same(node) or node.op in ops.MASK or trained) or stretches[i].norm:
            break
        end, i = stretches[i].end, i + 1
    return end


def _size(facts: Facts, i: int) -> tuple[int, int]:
    node = facts.nodes[i]
    return node.numel, node.shape[-1] if node.shape else 1

"""Sublayers whose output replaces the stream, with no residual addition.

A *cut* is a node that everything computed before it and used after it goes through. Between two cuts there is no
skip, unless a join lies between.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from streamgauge.vocabulary import BranchKind, Join
from streamgauge.wiring import ops
from streamgauge.wiring.branch import Region, kind_of, mixing, region_of, walk
from streamgauge.wiring.candidates import Candidate, Sites
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.taps import Taps

_Found = list[tuple[int, int, BranchKind]]


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

    @property
    def plain(self) -> bool:
        """Nothing but layout, bias and products with weights."""
        return not (self.norm or self.nonlinear or self.join) and self.kind in (None, "ffn")


@dataclass
class Bare:
    """An unjoined sublayer: its end in the graph, and all of its nodes."""

    end: int
    join: Join
    nodes: set[int]


def find(facts: Facts, sites: Sites, taps: Taps, candidates: list[Candidate]) -> list[Bare]:
    """The unjoined sublayers, in execution order."""
    tops = {c.top for c in candidates}
    stretches = [_stretch(facts, sites, a, b, tops) for a, b in _pairs(facts, candidates)]
    mixers = _mixers(facts, stretches)
    found = [*mixers, *_ffns(facts, stretches, mixers)]
    streams = {facts.nodes[c.top].numel for c in candidates}
    widths = streams | {facts.nodes[end].numel for _, end, kind in found if kind != "ffn"}
    attends = any(kind in ("attention", "cross-attention") for _, _, kind in found) or _attends(facts, candidates)
    if not widths or not attends:
        return []
    found = _between(found, candidates)
    made: list[Bare] = []
    for start, end, kind in sorted(found, key=lambda f: f[1]):
        if facts.nodes[end].numel not in widths or (kind == "mixer" and candidates):
            continue
        tap = taps.branch(end, len(facts.nodes))
        call = facts.nodes[end].call
        path = facts.graph.log.calls[call].path if call >= 0 else ""
        join = Join(-1, path, "none", kind=kind, stream_tap=taps.stream(start), branch_tap=tap, out_tap=tap)
        made.append(Bare(end, join, set(region_of(facts, [(end, False)], start, {}).reach)))
    return made


def _attends(facts: Facts, candidates: list[Candidate]) -> bool:
    return any("attention" in kind_of(facts, b.region) for c in candidates for b in c.branches)


def _between(found: _Found, candidates: list[Candidate]) -> _Found:
    """Without the feed-forward parts before the first and after the last sublayer of another kind: stems and heads."""
    marks = [c.top for c in candidates] + [end for _, end, kind in found if kind != "ffn"]
    first, last = min(marks, default=-1), max(marks, default=-1)
    if not candidates:
        before = [end for _, end, kind in found if kind != "ffn" and end < last]
        usual = sum(1 for f in found if f[2] == "ffn" and max(before, default=-1) < f[1] < last) if before else 1
        behind = sorted(f[1] for f in found if f[2] == "ffn" and f[1] > last)[:usual]
        return [f for f in found if f[2] != "ffn" or first < f[1] < last or f[1] in behind]
    return [f for f in found if f[2] != "ffn" or first < f[1] < last]


def _pairs(facts: Facts, candidates: list[Candidate]) -> list[tuple[int, int]]:
    """Neighbouring cuts on the way to the primary output.

    A memory that a decoder reads again and again is no skip: the stretch that it spans is cut without it.
    """
    light, past = walk(facts, [(facts.graph.primary, False)], 0)
    way = sorted(light | past)
    inside = set(way)
    last = {i: max((u for u in facts.live_users(i) if u in inside), default=i) for i in way}
    pairs = _cut(way, last)
    if not pairs:
        return pairs
    memory, end = max(pairs, key=lambda pair: pair[1] - pair[0])
    if any(c.skip.node <= memory < c.top for c in candidates):
        return pairs
    if len(mixing(facts, region_of(facts, [(end, False)], memory, {}))) < 3:
        return pairs
    last[memory] = memory
    finer = _cut([i for i in way if memory < i <= end], last)
    return sorted([pair for pair in pairs if pair != (memory, end)] + finer)


def _cut(way: list[int], last: dict[int, int]) -> list[tuple[int, int]]:
    cuts, open_until = [], -1
    for i in way:
        if open_until <= i:
            cuts.append(i)
        open_until = max(open_until, last[i])
    return list(pairwise(cuts))


def _stretch(facts: Facts, sites: Sites, start: int, end: int, tops: set[int]) -> _Stretch:
    region: Region = region_of(facts, [(end, False)], start, sites.core)
    inner = [i for i in region.reach if i != start]
    join = any(i in tops for i in inner)
    weighted = [i for i in inner if facts.heavy[i] and any(facts.nodes[j].trained for j in facts.nodes[i].inputs)]
    products = sum(1 for i in weighted if facts.nodes[i].op not in ops.CONV)
    nonlinear = any(facts.nodes[i].op in ops.NONLINEAR for i in inner if i not in sites.inner)
    kind = None if join or not region.entries else kind_of(facts, region)
    return _Stretch(start, end, products, nonlinear, kind, any(i in sites.core for i in inner), join)


def _mixers(facts: Facts, stretches: list[_Stretch]) -> _Found:
    """Operations across tokens, each with at most one product before and one after, and the norm before."""
    found: _Found = []
    for at, stretch in enumerate(stretches):
        if stretch.kind is None or stretch.kind == "ffn":
            continue
        first = at
        while first > 0 and stretches[first - 1].plain and sum(s.products for s in stretches[first - 1 : at]) < 2:
            first -= 1
        while first < at and not stretches[first].products:
            first += 1
        start, end, i = _before_norm(stretches, first), stretch.end, at + 1
        while i < len(stretches) and stretches[i].plain and not stretches[i].products:
            i += 1
        lone = i < len(stretches) and stretches[i].plain and stretches[i].products == 1
        if lone and facts.nodes[stretches[i].end].numel == facts.nodes[start].numel:
            end = _last_light(facts, stretches, i + 1, stretches[i].end)
        if facts.nodes[end].numel == facts.nodes[start].numel:
            found.append((start, end, stretch.kind))
    return found


def _ffns(facts: Facts, stretches: list[_Stretch], taken: _Found) -> _Found:
    """Two products with a nonlinearity between, back to the size at the start."""
    found: _Found = []
    free = [s for s in stretches if not any(a <= s.start and s.end <= b for a, b, _ in taken)]
    at = 0
    while at < len(free):
        products, nonlinear, end = 0, False, -1
        for i in range(at, len(free)):
            stretch = free[i]
            gap = i > at and stretch.start != free[i - 1].end
            if gap or stretch.join or stretch.kind not in (None, "ffn") or (i == at and not stretch.products):
                break
            products += stretch.products
            nonlinear |= stretch.nonlinear
            if products > 1 and nonlinear and facts.nodes[stretch.end].numel == facts.nodes[free[at].start].numel:
                end = i
                break
        if end < 0:
            at += 1
            continue
        found.append((_before_norm(free, at), _last_light(facts, free, end + 1, free[end].end), "ffn"))
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

"""Sums that join a branch to a skip, before anything is said about their norms."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamgauge.wiring.branch import Region, mixing, region_of, walk
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.norms import Site
from streamgauge.wiring.sums import ONE, Scale, Step, Sum, Term, light_step


@dataclass
class Branch:
    """One branch of a sum: its terms, the addition that brings it in, its scale and its region."""

    terms: list[Term]
    added: int
    scale: Scale
    region: Region

    @property
    def starts(self) -> list[tuple[int, bool]]:
        return [start for term in self.terms for start in term.starts]


@dataclass
class Candidate:
    """A sum with a skip and branches.

    skip     the node that the branch starts from, and the scale between it and the sum
    longs    further skips in the same sum
    loose    terms that do not descend from a skip
    parent   the candidate whose sum the skip comes from by light operations
    """

    total: Sum
    skip: Step
    skip_added: int
    longs: list[tuple[Step, int]]
    branches: list[Branch]
    loose: list[Term]
    parent: Candidate | None = None
    children: list[Candidate] = field(default_factory=list)

    @property
    def top(self) -> int:
        return self.total.top


class Sites:
    """The norms by their nodes."""

    def __init__(self, sites: list[Site]) -> None:
        self.all = sites
        self.core = {site.core: site for site in sites}
        self.tail = {i: site for site in sites for i in site.tail}
        self.inner: dict[int, list[Site]] = {}
        for site in sites:
            for i in site.inner:
                self.inner.setdefault(i, []).append(site)


def chain(facts: Facts, sites: Sites, term: Term) -> list[Step]:
    """The nodes that a term may be a copy of, nearest first, each with the scale between."""
    if any(passed for _, passed in term.starts) or len(term.starts) > 1:
        return []
    found = [Step(term.node, term.scale)]
    seen = {term.node}
    at = 0
    while at < len(found) and len(found) < 200:
        node, scale = found[at]
        at += 1
        if node in sites.tail or facts.heavy[node]:
            continue
        for step in light_step(facts, node):
            if step.node not in seen:
                seen.add(step.node)
                found.append(Step(step.node, scale.times(step.scale)))
    return found


def branch_scale(facts: Facts, sites: Sites, term: Term) -> Scale:
    """The scale between the branch's last computation and the sum."""
    at, scale = term.starts[0][0], term.scale
    if term.starts[0][1] or len(term.starts) > 1:
        return scale
    while at not in sites.tail and not facts.heavy[at]:
        steps = light_step(facts, at)
        if len(steps) != 1:
            break
        at, scale = steps[0].node, scale.times(steps[0].scale)
    return scale


def find_candidates(facts: Facts, sites: Sites, sums: list[Sum]) -> tuple[list[Candidate], list[Sum]]:
    """The sums with a skip that another of their terms descends from; and the other sums."""
    found: list[Candidate] = []
    rest: list[Sum] = []
    for total in sums:
        candidate = _candidate(facts, sites, total)
        if candidate is None:
            rest.append(total)
        else:
            found.append(candidate)
    return found, rest


def _skip_of(facts: Facts, sites: Sites, term: Term, others: list[Term]) -> Step | None:
    """The nearest node behind the term that another term descends from through a heavy operation."""
    starts = [start for other in others for start in other.starts]
    for step in chain(facts, sites, term):
        if len(facts.live_users(step.node)) < 2 or step.node >= max(start for start, _ in starts):
            continue
        _, past = walk(facts, starts, step.node)
        if step.node in past:
            return step
    return None


def _candidate(facts: Facts, sites: Sites, total: Sum) -> Candidate | None:
    skips: dict[int, tuple[Step, int]] = {}
    plain: list[Term] = []
    terms = total.terms
    for term in sorted(terms, key=lambda t: t.scale.constant <= 0):
        step = _skip_of(facts, sites, term, [other for other in terms if other is not term])
        if step is not None and step.node in skips:
            before, added = skips[step.node]
            skips[step.node] = Step(step.node, _plus(before.scale, step.scale)), max(added, term.added)
        elif step is None or step.scale.constant <= 0:
            plain.append(term)
        else:
            skips[step.node] = step, term.added
    _only_states(facts, total, skips, plain)
    if not skips or not plain:
        return None
    step, added = skips.pop(max(skips))
    return assemble(facts, sites, total, step, added, list(skips.values()), plain)


def _only_states(facts: Facts, total: Sum, skips: dict[int, tuple[Step, int]], plain: list[Term]) -> None:
    """Of several skips keep those that come from the earliest by light operations; the others belong to branches."""
    if len(skips) < 2:
        return
    first = min(skips)
    for node in [n for n in skips if n != first]:
        todo, seen = [node], set()
        while todo:
            i = todo.pop()
            if i in seen or i < first:
                continue
            seen.add(i)
            if not facts.heavy[i]:
                todo.extend(facts.carriers(facts.nodes[i]))
        if first not in seen:
            step, _ = skips.pop(node)
            plain.extend(t for t in total.terms if t not in plain and _holds(facts, t, step.node))


def _holds(facts: Facts, term: Term, node: int) -> bool:
    at = term.node
    while at != node:
        steps = light_step(facts, at)
        if len(steps) != 1:
            return False
        at = steps[0].node
    return True


def assemble(
    facts: Facts, sites: Sites, total: Sum, skip: Step, added: int, longs: list[tuple[Step, int]], plain: list[Term]
) -> Candidate | None:
    """A candidate from a sum whose skips are known: its other terms become branches or stay loose."""
    regions: list[tuple[Term, Region]] = []
    loose: list[Term] = []
    floor = [skip, *(step for step, _ in longs)]
    for term in plain:
        for step in floor:
            region = region_of(facts, term.starts, step.node, sites.core)
            if region.entries:
                regions.append((term, region))
                break
        else:
            loose.append(term)
    if not regions:
        return None
    taken = {t.node for t in plain}
    skip_paths = [set(t.groups) for t in total.terms if t.node not in taken]
    groups: dict[int, list[tuple[Term, Region]]] = {}
    for term, region in regions:
        free = [g for g in term.groups if not any(g in path for path in skip_paths)]
        groups.setdefault(free[0] if free else -term.node - 1, []).append((term, region))
    branches = [b for group in groups.values() for b in _branches(facts, sites, group)]
    return Candidate(total, skip, added, longs, branches, loose)


def _branches(facts: Facts, sites: Sites, group: list[tuple[Term, Region]]) -> list[Branch]:
    """Terms added to each other first: one branch, but for those that mix tokens on their own."""
    clusters: list[tuple[set[int], list[tuple[Term, Region]]]] = []
    if len(group) == 1:
        clusters.append((set(), group))
    for term, region in group if len(group) > 1 else []:
        mixes = set(mixing(facts, region))
        members = [(term, region)]
        for cluster in [c for c in clusters if c[0] & mixes or not (c[0] or mixes) or _chained(facts, c[1], members)]:
            clusters.remove(cluster)
            mixes |= cluster[0]
            members = cluster[1] + members
        clusters.append((mixes, members))
    made: list[Branch] = []
    for _, members in clusters:
        terms = [term for term, _ in members]
        scales = [branch_scale(facts, sites, term) for term in terms]
        scale = scales[0] if all(s == scales[0] for s in scales) else ONE
        region = members[0][1]
        for _, other in members[1:]:
            for i, bits in other.reach.items():
                region.reach[i] = region.reach.get(i, 0) | bits
            region.entries.update(other.entries)
        region.reach = dict(sorted(region.reach.items()))
        made.append(Branch(terms, max(t.added for t in terms), scale, region))
    return sorted(made, key=lambda b: (b.added, max(t.node for t in b.terms)))


def _chained(facts: Facts, some: list[tuple[Term, Region]], others: list[tuple[Term, Region]]) -> bool:
    """Whether a term of one cluster is computed from a term of the other."""
    pairs = [(t, r) for t, _ in some for _, r in others] + [(t, r) for t, _ in others for _, r in some]
    return any(facts.root[term.node] in region.reach and term.starts[0][0] != region.skip for term, region in pairs)


def _plus(a: Scale, b: Scale) -> Scale:
    if a.scalar or a.vector or b.scalar or b.vector:
        return Scale(1.0, a.scalar or b.scalar, a.vector or b.vector)
    return Scale(a.constant + b.constant)

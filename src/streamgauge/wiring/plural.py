"""More than one stream: branches that are added to several skips, and sums of mixed streams."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.wiring import ops
from streamgauge.wiring.branch import Region, mixing, region_of
from streamgauge.wiring.candidates import Candidate, Sites
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.streams import light_origins
from streamgauge.wiring.sums import Sum, Term, light_step


@dataclass
class Mixed:
    """A sum of a state that was mixed by a product and a branch of the same state (hyper-connections)."""

    top: int
    state: int
    region: Region


def bottom(facts: Facts, term: Term) -> int:
    """The node behind a term's layout, casts and scales; for a fused product and sum a name of its own."""
    at = term.node
    if term.starts[0][1]:
        return -1 - at
    while True:
        steps = light_step(facts, at)
        if len(steps) != 1:
            return at
        at = steps[0].node


def shared(facts: Facts, kept: list[Candidate], rest: list[Sum]) -> set[int]:
    """The tops of the candidates whose branch another sum takes as well."""
    takers: dict[int, set[int]] = {}
    for candidate in kept:
        for branch in candidate.branches:
            for term in branch.terms:
                takers.setdefault(bottom(facts, term), set()).add(candidate.top)
    for total in [*(c.total for c in kept), *rest]:
        for term in total.terms:
            node = bottom(facts, term)
            if node in takers:
                takers[node].add(total.top)
    tops = {c.top for c in kept}
    return {top for group in takers.values() if len(group) > 1 for top in group if top in tops}


def spread(facts: Facts, kept: list[Candidate]) -> set[int]:
    """The tops of the candidates whose branch is spread over a larger skip: one output written to several streams."""
    found: set[int] = set()
    for candidate in kept:
        size = facts.nodes[candidate.top].numel
        for branch in candidate.branches:
            at = branch.terms[0].node
            while facts.same(facts.nodes[at]):
                at = facts.nodes[at].inputs[0]
            node = facts.nodes[at]
            if node.op == "mul" and all(facts.nodes[i].numel < size for i in node.inputs):
                found.add(candidate.top)
    return found


def one_for_each_branch(facts: Facts, kept: list[Candidate], several: set[int]) -> list[Candidate]:
    """Of the candidates that share a branch, the first."""
    seen: set[int] = set()
    left: list[Candidate] = []
    for candidate in kept:
        nodes = {bottom(facts, t) for b in candidate.branches for t in b.terms}
        if candidate.top in several and nodes & seen:
            continue
        seen |= nodes
        left.append(candidate)
    return left


def find_mixed(facts: Facts, sites: Sites, kept: list[Candidate], rest: list[Sum]) -> list[Mixed]:
    """Chained sums A S + b f(S) in which no skip is bare."""
    inside = {i for c in kept for b in c.branches for i in b.region.reach}
    tops = {c.top for c in kept}
    found: dict[int, Mixed] = {}
    for total in rest:
        if total.top in inside or total.top in tops:
            continue
        made = _mixed(facts, sites, total)
        if made is not None:
            found[total.top] = made
    states = {facts.root[m.state] for m in found.values()}
    chained = [m for m in found.values() if _goes_on(facts, m.top, states)]
    last = [m for m in found.values() if m not in chained and any(_reaches(facts, m.state, c.top) for c in chained)]
    return sorted(chained + last, key=lambda m: m.top)


def _mixed(facts: Facts, sites: Sites, total: Sum) -> Mixed | None:
    for i, term in enumerate(total.terms):
        product = term.node if term.starts[0][1] else facts.root[bottom(facts, term)]
        if not facts.heavy[product]:
            continue
        others = [start for j, other in enumerate(total.terms) if j != i for start in other.starts]
        for operand in facts.carriers(facts.nodes[product]):
            for state in _behind(facts, operand):
                if facts.nodes[state].numel != facts.nodes[total.top].numel or len(facts.live_users(state)) < 2:
                    continue
                region = region_of(facts, others, state, sites.core)
                if len(region.entries) and _computes(facts, region):
                    return Mixed(total.top, state, region)
    return None


def _behind(facts: Facts, i: int) -> list[int]:
    found = [i]
    while facts.same(facts.nodes[i]):
        i = facts.nodes[i].inputs[0]
        found.append(i)
    return found


def _computes(facts: Facts, region: Region) -> bool:
    return bool(mixing(facts, region)) or any(facts.nodes[i].op in ops.NONLINEAR for i in region.reach)


def _goes_on(facts: Facts, top: int, states: set[int]) -> bool:
    return any(facts.root[i] in states for i in _ahead(facts, top))


def _reaches(facts: Facts, state: int, top: int) -> bool:
    return top in _behind(facts, state) or facts.root[state] in {facts.root[i] for i in _ahead(facts, top)}


def _ahead(facts: Facts, i: int) -> list[int]:
    found: list[int] = []
    todo = [i]
    while todo and len(found) < 50:
        at = todo.pop()
        found.append(at)
        todo.extend(u for u in facts.live_users(at) if facts.same(facts.nodes[u]))
    return found


def gathered(facts: Facts, kept: list[Candidate], rest: list[Sum]) -> list[int]:
    """Sums of several states of a stream and of nothing else."""
    inside = {i for c in kept for b in c.branches for i in b.region.reach}
    by_top = {c.top: c for c in kept}
    found: list[int] = []
    for total in rest:
        if total.top in inside or total.top in by_top:
            continue
        origins = [light_origins(facts, t.node, by_top) for t in total.terms if not t.starts[0][1]]
        if len({frozenset(o) for o in origins if o}) > 1:
            found.append(total.top)
    return found

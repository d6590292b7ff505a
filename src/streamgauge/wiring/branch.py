"""What lies between a skip and the sum: the region of a branch, its norms, and what it computes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from streamgauge.vocabulary import BranchKind
from streamgauge.wiring import ops
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.graph import Node, Ref
from streamgauge.wiring.norms import Site

RAW, NORMED, PASSED = 1, 2, 4


def walk(
    facts: Facts, starts: Iterable[tuple[int, bool]], floor: int, stops: Container[int] = ()
) -> tuple[set[int], set[int]]:
    """Walk back over content down to node `floor`, and not beyond `stops`.

    Gives the nodes met with no heavy operation since the start, and those met with one.
    """
    light: set[int] = set()
    past: set[int] = set()
    nodes, heavy = facts.nodes, facts.heavy
    todo = list(starts)
    while todo:
        i, passed = todo.pop()
        seen = past if passed else light
        if i < floor or i in seen or not nodes[i].carrier:
            continue
        seen.add(i)
        if i in stops:
            continue
        below = passed or bool(heavy[i])
        for j in nodes[i].inputs:
            if j >= floor:
                todo.append((j, below))
    return light, past


@dataclass
class Region:
    """The nodes of a branch that descend from the skip, each with how it is reached.

    reach   for each node: RAW (from the skip by light operations), NORMED (through a norm), PASSED (a heavy one)
    entries the heavy operations that read the skip by light operations, with the bits of all that they read
    turns   for each node walked back from: whether its last axis was another one where the walk ended, and that end
    """

    skip: int
    reach: dict[int, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    turns: dict[int, tuple[bool, int]] = field(default_factory=dict)


def region_of(facts: Facts, starts: Iterable[tuple[int, bool]], skip: int, cores: dict[int, Site]) -> Region:
    """All nodes on the way from the skip to the starts."""
    light, past = walk(facts, starts, skip)
    region = Region(skip)
    reach = region.reach
    nodes, heavy = facts.nodes, facts.heavy
    for i in sorted(light | past):
        if i == skip:
            reach[i] = RAW
            continue
        bits = 0
        for j in nodes[i].inputs:
            bits |= reach.get(j, 0)
        if not bits:
            continue
        if heavy[i]:
            if bits & (RAW | NORMED):
                region.entries[i] = bits
            bits = PASSED
        elif i in cores and bits & RAW:
            bits = bits & ~RAW | NORMED
        reach[i] = bits
    return region


def entry_norms(facts: Facts, region: Region, cores: dict[int, Site]) -> list[Site]:
    """The norms between the skip and the first heavy operations, in execution order."""
    found: list[Site] = []
    for i, bits in region.reach.items():
        if i in cores and bits & NORMED:
            site = cores[i]
            if any(region.reach.get(j, 0) & RAW or j == region.skip for j in _feeds(facts, site)):
                found.append(site)
    return found


def _feeds(facts: Facts, site: Site) -> list[int]:
    return [j for i in site.inner for j in facts.nodes[i].inputs]


def exit_norm(facts: Facts, starts: Iterable[tuple[int, bool]], region: Region, cores: dict[int, Site]) -> Site | None:
    """The norm that the branch's last heavy operation passes before the sum."""
    todo = [i for i, passed in starts if not passed]
    seen: set[int] = set()
    while todo:
        i = todo.pop()
        if i in seen or i not in region.reach:
            continue
        seen.add(i)
        if i in cores:
            if region.reach[i] & PASSED:
                return cores[i]
            continue
        if not facts.heavy[i]:
            todo.extend(facts.nodes[i].inputs)
    return None


def kind_of(facts: Facts, region: Region) -> BranchKind:
    """attention, cross-attention, mixer or ffn, from the operations in the region."""
    crossed = mixed = False
    for value in mixing(facts, region).values():
        if value is None:
            mixed = True
        elif value in region.reach or _derived(facts, value, region):
            return "attention"
        else:
            crossed = True
    return "cross-attention" if crossed else "mixer" if mixed else "ffn"


def _derived(facts: Facts, value: int, region: Region) -> bool:
    light, past = walk(facts, [(value, False)], region.skip)
    return region.skip in light or region.skip in past


def mixing(facts: Facts, region: Region) -> dict[int, int | None]:
    """Operations across tokens in the region: of attention with the node of its values, else with None."""
    found: dict[int, int | None] = {}
    nodes = facts.nodes
    for i in region.reach:
        node = nodes[i]
        if i == region.skip:
            continue
        if node.op in ops.ATTENTION:
            found[i] = node.inputs[2] if len(node.inputs) > 2 else node.inputs[0]
        elif node.op in ops.MATMUL and node.carrier:
            operands = [j for j in node.inputs[-2:] if nodes[j].carrier]
            if len(operands) == 2:
                weights = [j for j in operands if _softmaxed(facts, j)]
                found[i] = next((j for j in operands if j not in weights), None) if weights else None
            elif operands and _over_tokens(facts, operands[0], region):
                found[i] = None
        elif node.op in ops.CONV:
            if _kernel(facts, i) > 1:
                found[i] = None
        elif (
            node.op in ops.MIXING
            or ("::" in node.op and facts.heavy[i])
            or (node.op in ("stack", "cat", "merge") and _looped(facts, i))
        ):
            found[i] = None
    return found


def _softmaxed(facts: Facts, i: int) -> bool:
    """Whether a node is softmax weights, up to layout, dropout and scale."""
    for _ in range(40):
        node = facts.nodes[i]
        if node.op in ops.SOFTMAX:
            return True
        carriers = list(facts.carriers(node))
        if facts.heavy[i] or not carriers or len(carriers) > 2:
            return False
        i = carriers[0]
    return False


def _over_tokens(facts: Facts, i: int, region: Region) -> bool:
    """Whether a product with a weight contracts an axis that was not the last one where the stream was, or the product
    before."""
    nodes, known = facts.nodes, region.turns
    way: list[tuple[int, bool]] = []
    while i not in known:
        node, turn, before = nodes[i], False, i
        if i in region.reach and i != region.skip and not facts.heavy[i]:
            if facts.same(node):
                turn, before = _turns(facts, node), node.inputs[0]
            else:
                before = next((j for j in facts.carriers(node) if nodes[j].numel == node.numel), i)
        if before == i:
            known[i] = (False, i)
            break
        way.append((i, turn))
        i = before
    turned, end = known[i]
    for passed, turn in reversed(way):
        turned ^= turn
        known[passed] = (turned, end)
    return turned and nodes[end].op not in ops.CONV


def _turns(facts: Facts, node: Node) -> bool:
    """Whether a layout puts another axis last, and the last one elsewhere."""
    rank = len(node.shape)
    if node.op in ("transpose", "swapaxes") and len(node.args) > 2:
        a, b = int(node.args[1]) % rank, int(node.args[2]) % rank
        return a != b and rank - 1 in (a, b) and node.shape[a] > 1 and node.shape[b] > 1
    if node.op == "permute":
        order = [int(n) % rank for n in node.args[1]]
        return order[-1] != rank - 1 and node.shape[-1] > 1 and node.shape[order.index(rank - 1)] > 1
    return False


def _kernel(facts: Facts, i: int) -> int:
    for argument in facts.nodes[i].args[1:2]:
        if isinstance(argument, Ref):
            size = 1
            for n in facts.nodes[argument.node].shape[2:]:
                size *= n
            return size
    return 2


def _looped(facts: Facts, i: int) -> bool:
    """Whether each stacked tensor was computed from a state that the one before it made, as in a scan."""
    parts = list(facts.nodes[i].inputs)
    while len(parts) < 3 and facts.nodes[parts[0]].op == "merge":  # written one after another into one tensor
        parts[:1] = facts.nodes[parts[0]].inputs
    if len(parts) < 3:
        return False
    third, second, last = parts[-3:]
    if not third < second < last or not facts.nodes[last].carrier:
        return False
    light, past = walk(facts, [(last, False)], third + 1)
    return any(j <= second for j in light | past)

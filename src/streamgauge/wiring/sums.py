"""Sums of the graph: additions that feed only each other, flattened to scaled terms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamgauge.wiring import ops
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.graph import Node, Ref


@dataclass(frozen=True)
class Scale:
    """What multiplies a term: a constant, and trained factors (one number, or one per channel)."""

    constant: float = 1.0
    scalar: bool = False
    vector: bool = False

    def times(self, other: Scale) -> Scale:
        return Scale(self.constant * other.constant, self.scalar or other.scalar, self.vector or other.vector)


ONE = Scale()


class Step(NamedTuple):
    """A node met on the way back from a term, and the scale between it and the term."""

    node: int
    scale: Scale


@dataclass
class Term:
    """One operand of a sum.

    node     the operand (for a fused product-and-add, the node itself)
    added    the addition that brought it in
    starts   where walks back from it begin, each with whether a heavy operation was passed already
    groups   the additions between the term and the top of the sum, top first
    """

    node: int
    added: int
    scale: Scale
    starts: tuple[tuple[int, bool], ...]
    groups: tuple[int, ...] = ()


@dataclass
class Sum:
    """A maximal sum: `top` is the node that holds it."""

    top: int
    terms: list[Term] = field(default_factory=list)


def light_step(facts: Facts, i: int) -> list[Step]:
    """One step back from a node through layout, casts, dropout, masks and scales; [] where it was computed."""
    node = facts.nodes[i]
    op = node.op
    if op in ops.SAME and node.inputs:
        return [Step(node.inputs[0], ONE)]
    carriers = list(facts.carriers(node))
    if not carriers:
        return []
    if op in ops.MASK or op in ops.PART:
        return [Step(c, ONE) for c in dict.fromkeys(carriers)]
    if op in ops.MUL and len(carriers) == 1:
        factor = factor_of(facts, node, carriers[0])
        return [] if factor is None else [Step(carriers[0], factor)]
    if op == "add" and len(carriers) == 1 and facts.nodes[carriers[0]].numel == node.numel:  # zero, a bias, positions
        return [Step(carriers[0], ONE)]
    return []


def factor_of(facts: Facts, node: Node, carrier: int) -> Scale | None:
    """The factor by which a product or quotient scales its one carrier; None where it is no scale."""
    if node.op == "neg":
        return Scale(-1.0)
    if len(node.args) < 2:
        return None
    position = 0 if isinstance(node.args[0], Ref) and node.args[0].node == carrier else 1
    other = node.args[1 - position]
    divided = node.op != "mul"
    if divided and position == 1:
        return None
    if isinstance(other, int | float) and not isinstance(other, Ref):
        return Scale(1.0 / other if divided else float(other)) if other else None
    if not isinstance(other, Ref):
        return None
    factor = facts.nodes[other.node]
    if factor.value is not None:
        return Scale(1.0 / factor.value if divided else factor.value) if factor.value else Scale(0.0)
    if factor.random or factor.data:  # dropout, masks
        return ONE
    if factor.trained:
        return Scale(scalar=True) if factor.numel == 1 else Scale(vector=True)
    return ONE if factor.numel > 1 else None


def find_sums(facts: Facts) -> list[Sum]:
    """All maximal sums of at least two full-size carriers, in execution order."""
    swallowed: set[int] = set()
    found: list[Sum] = []
    for node in reversed(facts.nodes):
        if node.id in swallowed or not node.carrier or not facts.graph.live[node.id]:
            continue
        direct = operands(facts, node)
        if direct is None:
            continue
        total = Sum(node.id)
        _flatten(facts, direct, ONE, (), total, swallowed)
        if len(total.terms) > 1:
            found.append(total)
    return found[::-1]


def _flatten(
    facts: Facts, terms: list[Term], scale: Scale, groups: tuple[int, ...], total: Sum, swallowed: set[int]
) -> None:
    stack = [(term, scale, groups) for term in reversed(terms)]
    while stack:
        term, outer, path = stack.pop()
        path = (*path, term.added)
        term = replace(term, scale=outer.times(term.scale), groups=path)
        inner, between = (None, ONE) if term.starts[0][1] else _inner_sum(facts, term.node)
        if inner is None:
            total.terms.append(term)
            continue
        swallowed.add(inner.id)
        below = operands(facts, inner) or []
        stack.extend((t, term.scale.times(between), path) for t in reversed(below))


def _inner_sum(facts: Facts, i: int) -> tuple[Node | None, Scale]:
    """The addition that an operand consists of, if nothing else uses it; and the scale on the way."""
    scale, size = ONE, facts.nodes[i].numel
    while len(facts.live_users(i)) == 1:
        node = facts.nodes[i]
        if operands(facts, node) is not None:
            return node, scale
        if node.op in ops.PART:
            break
        steps = light_step(facts, i)
        if len(steps) != 1 or facts.nodes[steps[0].node].numel != size:
            break
        i, scale = steps[0].node, scale.times(steps[0].scale)
    return None, ONE


def operands(facts: Facts, node: Node) -> list[Term] | None:
    """The terms of one addition of at least two carriers; None for anything else."""
    op, args = node.op, node.args
    if op in ops.ADD:
        if len(args) < 2 or not (isinstance(args[0], Ref) and isinstance(args[1], Ref)):
            return None
        alpha = node.kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        alpha = float(alpha) if isinstance(alpha, int | float) else 1.0
        second = Scale(-alpha if op == "sub" else alpha)
        first = Scale(-alpha) if op == "rsub" else ONE
        return _plain(facts, node, [(args[0].node, first), (args[1].node, second if op != "rsub" else ONE)])
    if op == "lerp" and len(args) > 2 and isinstance(args[0], Ref) and isinstance(args[1], Ref):
        weight = _weight(facts, args[2])
        if weight is None:
            return None
        rest = Scale(1.0 - weight.constant, weight.scalar, weight.vector) if weight.constant != 1.0 else weight
        return _plain(facts, node, [(args[0].node, rest), (args[1].node, weight)])
    if op in ("addmm", "baddbmm", "_addmm_activation", "addbmm", "addmv") and len(args) > 2:
        bias = facts.nodes[args[0].node]
        if not bias.carrier or bias.numel != node.numel:
            return None
        beta, alpha = (float(node.kwargs.get(k, 1)) for k in ("beta", "alpha"))
        starts = tuple((a.node, True) for a in args[1:3] if facts.nodes[a.node].carrier)
        return [
            Term(bias.id, node.id, Scale(beta), ((bias.id, False),)),
            Term(node.id, node.id, Scale(alpha), starts),
        ]
    if op == "addcmul" and len(args) > 2:
        bias = facts.nodes[args[0].node]
        pair = [a.node for a in args[1:3]]
        content = [i for i in pair if facts.nodes[i].carrier]
        if not bias.carrier or not content or bias.numel != node.numel:
            return None
        factor = Scale(float(node.kwargs.get("value", 1)))
        if len(content) == 1:
            factor = factor.times(_weight(facts, Ref(pair[0] if pair[1] == content[0] else pair[1])) or ONE)
        starts = tuple((i, False) for i in content)
        return [Term(bias.id, node.id, ONE, ((bias.id, False),)), Term(content[0], node.id, factor, starts)]
    if op in ("sum", "mean") and node.inputs:
        return _stacked(facts, node)
    return None


def _plain(facts: Facts, node: Node, pairs: list[tuple[int, Scale]]) -> list[Term] | None:
    terms = [Term(i, node.id, scale, ((i, False),)) for i, scale in pairs if facts.nodes[i].carrier]
    return terms if len(terms) == len(pairs) and any(facts.nodes[t.node].numel == node.numel for t in terms) else None


def _weight(facts: Facts, value: object) -> Scale | None:
    if isinstance(value, Ref):
        node = facts.nodes[value.node]
        if node.value is not None:
            return Scale(node.value)
        return None if node.carrier else Scale(scalar=node.numel == 1, vector=node.numel > 1) if node.trained else ONE
    return Scale(float(value)) if isinstance(value, int | float) else None


def _stacked(facts: Facts, node: Node) -> list[Term] | None:
    """sum(stack([a, b])) and its like: the reduction runs over exactly the stacked tensors."""
    stack = facts.nodes[node.inputs[0]]
    while stack.op in ("clone", "contiguous", "_to_copy"):
        stack = facts.nodes[stack.inputs[0]]
    if stack.op not in ("stack", "cat") or len(stack.inputs) < 2:
        return None
    wanted = stack.args[1] if len(stack.args) > 1 else stack.kwargs.get("dim", 0)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    dims = dims if isinstance(dims, tuple) else (dims,)
    rank = len(stack.shape)
    if len(dims) != 1 or dims[0] is None or int(dims[0]) % rank != int(wanted) % rank:
        return None
    if stack.op == "cat" and any(facts.nodes[i].shape[int(wanted)] != 1 for i in stack.inputs):
        return None
    share = Scale(1.0 / len(stack.inputs)) if node.op == "mean" else ONE
    if not all(facts.nodes[i].carrier for i in stack.inputs):
        return None
    return [Term(i, node.id, share, ((i, False),)) for i in stack.inputs]

"""Recognise normalizations by their arithmetic, fused or written out.

A written-out norm is z * r with z = x or x - mean(x), and r = 1 / sqrt(s + eps), 1 / (sqrt(s) + eps) or
1 / max(sqrt(s), eps), where s is the mean square or the variance of x or the sum of its squares (the L2 form).
Each node gets at most one `Stat`, what it is of x, from the stats of its inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from streamgauge.vocabulary import NormKind
from streamgauge.wiring import ops
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.record import Node, Ref


@dataclass(frozen=True)
class Stat:
    """What a node is of the tensor x: `what` in sum, mean, mean2, centred, square, power, scale, inverse.

    power is a variance, mean square or sum of squares; scale its root; inverse one over that. mean2 is the square of
    a mean, which may as well be the square of a tensor `of` its own.
    """

    what: str
    x: int
    centred: bool = False
    size: int = 1
    summed: bool = False
    eps: float | None = None
    dtype: torch.dtype = torch.float32
    of: int = -1


@dataclass
class Site:
    """One norm in the graph: from `x` (a root) through `core`, the normed value, to `end`, behind gain and bias."""

    x: int
    core: int
    end: int
    kind: NormKind
    eps: float | None
    size: int
    dtype: torch.dtype
    fused: bool
    gained: bool
    inner: set[int] = field(default_factory=set)
    tail: set[int] = field(default_factory=set)


def find_norms(facts: Facts) -> list[Site]:
    """All norms over content, in execution order."""
    return _Finder(facts).sites


class _Finder:
    def __init__(self, facts: Facts) -> None:
        self.facts, self.nodes = facts, facts.nodes
        self.stats: dict[int, Stat] = {}
        self.sites: list[Site] = []
        for node in self.nodes:
            if not node.carrier or not facts.graph.live[node.id]:
                continue
            if node.op in ops.FUSED_NORMS:
                if node.out == 0:
                    self._fused(node)
                continue
            stat = self._stat(node)
            if stat is not None:
                self.stats[node.id] = stat

    # -- statistics ---------------------------------------------------------------------------------------------

    def _stat(self, node: Node) -> Stat | None:
        if not node.inputs:
            return None
        first = node.inputs[0]
        stat = self.stats.get(first)
        op = node.op
        if op in ops.SAME:
            return stat if stat is not None else None
        if op in ("mul", "div", "sub", "add", "rsub", "true_divide", "maximum"):
            return self._binary(node)
        if op in ("pow", "square"):
            exponent = 2.0 if op == "square" else self._scalar(node, 1)
            if exponent == 2.0:
                return self._squared(first, node)
            if exponent == 0.5:
                return self._rooted(stat)
            if exponent == -0.5:
                return self._inverted(self._rooted(stat))
            return self._inverted(stat) if exponent == -1.0 else None
        if op in ("mean", "sum"):
            size = max(1, self.nodes[first].numel // max(1, node.numel))
            if stat is not None and stat.what in ("square", "mean2"):
                x = stat.x if stat.what == "square" else stat.of
                return replace(stat, what="power", x=x, size=size, summed=op == "sum", dtype=node.dtype)
            return Stat(op, self._origin(first), size=size, dtype=node.dtype)
        if op in ("var", "std", "var_mean", "std_mean"):
            size = max(1, self.nodes[first].numel // max(1, node.numel))
            if node.out == 1:
                return Stat("mean", self._origin(first), size=size, dtype=node.dtype)
            return Stat("power" if op.startswith("var") else "scale", self._origin(first), True, size, dtype=node.dtype)
        if op in ("linalg_vector_norm", "norm"):
            if self._scalar(node, 1) not in (None, 2.0):
                return None
            size = max(1, self.nodes[first].numel // max(1, node.numel))
            centred = stat is not None and stat.what == "centred"
            origin = stat.x if stat is not None and centred else self._origin(first)
            return Stat("scale", origin, centred, size, summed=True, dtype=node.dtype)
        if stat is None:
            return None
        if op == "sqrt":
            return self._rooted(stat)
        if op == "rsqrt":
            return self._inverted(self._rooted(stat))
        if op == "reciprocal":
            return self._inverted(stat)
        if op in ("clamp_min", "clamp"):
            eps = self._scalar(node, 1)
            return replace(stat, eps=eps) if eps is not None and stat.what in ("power", "scale") else stat
        return None

    def _binary(self, node: Node) -> Stat | None:
        args = [a.node if isinstance(a, Ref) else a for a in node.args[:2]]
        if len(args) < 2:
            return None
        refs = [isinstance(a, Ref) for a in node.args[:2]]
        left = self.stats.get(args[0]) if refs[0] else None
        right = self.stats.get(args[1]) if refs[1] else None
        constants = [
            None if ref and self.nodes[a].value is None else float(self.nodes[a].value if ref else a)  # type: ignore[arg-type]
            for ref, a in zip(refs, args, strict=True)
            if ref or isinstance(a, int | float)
        ]
        if len(constants) < 2:
            return None
        op = node.op
        if op in ("add", "maximum"):
            stat, constant = (left, constants[1]) if left is not None else (right, constants[0])
            if stat is not None and constant is not None and stat.what in ("power", "scale"):
                return replace(stat, eps=constant, dtype=node.dtype)
            return None
        if op == "sub" and refs[1] and right is not None:
            if right.what == "mean" and refs[0] and self._origin(args[0]) == right.x:
                return Stat("centred", right.x, True, right.size, dtype=node.dtype)
            if right.what == "mean2" and left is not None and left.what == "power" and left.x == right.x:
                return replace(left, centred=True)
            return None
        if op == "mul":
            if refs[0] and refs[1] and args[0] == args[1]:
                return self._squared(args[0], node)
            if self._product(node, args[0] if refs[0] else -1, right) or self._product(
                node, args[1] if refs[1] else -1, left
            ):
                return None
            stat, constant = (left, constants[1]) if left is not None else (right, constants[0])
            return self._rescaled(stat, constant)
        if op in ("div", "true_divide"):
            if right is not None and right.what == "scale":
                if constants[0] == 1.0:
                    return self._inverted(right)
                self._product(node, args[0] if refs[0] else -1, self._inverted(right))
                return None
            return self._rescaled(left, None if not constants[1] else 1.0 / constants[1])
        return None

    def _rescaled(self, stat: Stat | None, factor: float | None) -> Stat | None:
        """Division by the count makes a mean of a sum; by its root, a root mean square of an L2 norm."""
        if stat is None or factor is None:
            return None
        if stat.what == "sum" and math.isclose(factor * stat.size, 1.0, rel_tol=1e-3):
            return replace(stat, what="mean")
        if stat.what == "power" and stat.summed and 0.5 < factor * stat.size < 2.1:
            return replace(stat, summed=False)
        if stat.what == "scale" and stat.summed and math.isclose(factor * math.sqrt(stat.size), 1.0, rel_tol=1e-3):
            return replace(stat, summed=False)
        return None

    def _squared(self, i: int, node: Node) -> Stat:
        stat = self.stats.get(i)
        if stat is not None and stat.what == "mean":
            return replace(stat, what="mean2", of=self._origin(i))
        if stat is not None and stat.what == "centred":
            return Stat("square", stat.x, True, dtype=node.dtype)
        return Stat("square", self._origin(i), dtype=node.dtype)

    @staticmethod
    def _rooted(stat: Stat | None) -> Stat | None:
        return replace(stat, what="scale") if stat is not None and stat.what == "power" else None

    @staticmethod
    def _inverted(stat: Stat | None) -> Stat | None:
        return replace(stat, what="inverse") if stat is not None and stat.what == "scale" else None

    def _origin(self, i: int) -> int:
        return self.facts.root[i]

    def _scalar(self, node: Node, position: int) -> float | None:
        if len(node.args) <= position:
            value = node.kwargs.get("min")
        else:
            value = node.args[position]
        if isinstance(value, Ref):
            return self.nodes[value.node].value
        return float(value) if isinstance(value, int | float) else None

    # -- sites --------------------------------------------------------------------------------------------------

    def _product(self, node: Node, operand: int, stat: Stat | None) -> bool:
        """Whether node = operand * stat is a normed value; then it becomes a site."""
        if operand < 0 or stat is None or stat.what != "inverse":
            return False
        own = self.stats.get(operand)
        centred = own is not None and own.what == "centred" and own.x == stat.x
        if not centred and self._origin(operand) != stat.x:
            return False
        if stat.size < 2:
            return False
        kind: NormKind = "layernorm" if centred else "scalenorm" if stat.summed else "rmsnorm"
        site = Site(stat.x, node.id, node.id, kind, _tidy(stat.eps), stat.size, stat.dtype, False, False)
        self._finish(site)
        return True

    def _fused(self, node: Node) -> None:
        kind: NormKind = ops.FUSED_NORMS[node.op]  # type: ignore[assignment]
        source = self.nodes[node.inputs[0]]
        floats = [a for a in node.args if isinstance(a, float)]
        eps = floats[-1] if floats else None
        gained = len(node.inputs) > 1
        if kind in ("layernorm", "rmsnorm"):
            size = math.prod(int(n) for n in node.args[1]) if isinstance(node.args[1], tuple) else source.shape[-1]
            if eps is None:
                eps = torch.finfo(node.dtype).eps
        elif kind == "groupnorm":
            size = source.numel // max(1, source.shape[0] * int(node.args[6] if len(node.args) > 6 else node.args[1]))
        else:
            size = source.numel // max(1, source.shape[1] if len(source.shape) > 1 else 1)
        dtype = torch.float64 if node.dtype == torch.float64 else torch.float32
        self._finish(Site(self._origin(source.id), node.id, node.id, kind, _tidy(eps), size, dtype, True, gained))

    def _finish(self, site: Site) -> None:
        self._inside(site)
        self._affine(site)
        self.sites.append(site)

    def _inside(self, site: Site) -> None:
        """The nodes between x and the normed value."""
        todo = [site.core]
        while todo:
            i = todo.pop()
            if i in site.inner or i == site.x:
                continue
            site.inner.add(i)
            todo.extend(j for j in self.nodes[i].inputs if j > site.x and self.nodes[j].carrier)

    def _affine(self, site: Site) -> None:
        """Follow gain, bias and casts behind the normed value; tell the L2 form's kind by its gain."""
        at, biased = site.core, False
        site.tail.add(at)
        pending: set[int] = set()
        while True:
            users = self.facts.live_users(at)
            if len(users) != 1:
                break
            node = self.nodes[users[0]]
            others = [i for i in node.inputs if i != at]
            if node.op in ops.SAME:
                at = node.id
                pending.add(at)
                if node.op in ("_to_copy", "to", "type_as"):
                    site.end = at
                    site.tail |= pending
                continue
            if biased or node.op not in ("mul", "add", "addcmul"):
                break
            constant = self._constant(node, at)
            trained = bool(others) and all(self.nodes[i].trained for i in others)
            if node.op == "mul" and constant is not None:
                if site.kind != "scalenorm" or not math.isclose(constant**2, site.size, rel_tol=1e-3):
                    break
                site.kind = "rmsnorm"
            elif node.op == "mul" and trained and not site.gained:
                site.gained = True
                if site.kind == "scalenorm" and self.nodes[others[0]].numel > 1:
                    site.kind = "rmsnorm"
            elif node.op in ("add", "addcmul") and trained:
                biased = True
            else:
                break
            at = site.end = node.id
            site.tail |= pending | {at}

    def _constant(self, node: Node, at: int) -> float | None:
        for argument in node.args[:2]:
            if isinstance(argument, int | float) and not isinstance(argument, Ref):
                return float(argument)
            if isinstance(argument, Ref) and argument.node != at:
                return self.nodes[argument.node].value
        return None


def _tidy(eps: float | None) -> float | None:
    """Undo float32 rounding: 9.99999974e-06 was written 1e-05."""
    if eps is None or float(np.float32(eps)) != eps:
        return eps
    short = float(f"{eps:.3g}")
    return short if float(np.float32(short)) == eps else eps

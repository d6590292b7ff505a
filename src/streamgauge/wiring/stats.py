"""What nodes are of the tensors that they are computed from: means, centred values, variances, their roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from streamgauge.wiring import ops
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.graph import Node, Ref


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


class Statistics:
    """The `Stat` of each node, node by node in execution order.

    `product(node, x, r)` is called for each product of an operand x with an inverse scale r; it says whether that
    is a normed value.
    """

    def __init__(self, facts: Facts, product: Callable[[Node, int, Stat], bool]) -> None:
        self.facts, self.nodes = facts, facts.nodes
        self.stats: dict[int, Stat] = {}
        self._is_norm = product

    def add(self, node: Node) -> None:
        """Find out what the node is."""
        stat = self._stat(node)
        if stat is not None:
            self.stats[node.id] = stat

    def _product(self, node: Node, operand: int, stat: Stat | None) -> bool:
        return operand >= 0 and stat is not None and stat.what == "inverse" and self._is_norm(node, operand, stat)

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

"""The graph with what every part of the reader asks of it: roots, heaviness, norms, users."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.wiring import ops
from streamgauge.wiring.graph import Graph, Node


class Facts:
    """Questions about single nodes of a recorded graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.users = graph.users
        self.root = self._roots()
        self.heavy = bytearray(1 if self._is_heavy(node) else 0 for node in graph.nodes)

    def _roots(self) -> list[int]:
        """For each node, the first one that holds the same elements (other layout, other dtype)."""
        root: list[int] = []
        for node in self.nodes:
            same = node.op in ops.SAME and node.inputs and self.nodes[node.inputs[0]].numel == node.numel
            root.append(root[node.inputs[0]] if same else node.id)
        return root

    def _is_heavy(self, node: Node) -> bool:
        if not node.carrier:
            return False
        if node.op in ops.HEAVY:
            return True
        if "::" in node.op:  # a custom kernel that combines tensors: a scan, a fused attention
            return len(node.inputs) > 1
        if node.op in ("sum", "mean") and node.inputs:  # a product written as multiply and sum
            product = self.nodes[self.root[node.inputs[0]]]
            return product.op == "mul" and all(self.nodes[i].numel < product.numel for i in product.inputs)
        return False

    def carriers(self, node: Node) -> Iterator[int]:
        """The inputs that bring content."""
        return (i for i in node.inputs if self.nodes[i].carrier)

    def live_users(self, i: int) -> list[int]:
        """The users of a node that matter for an output."""
        return self.users[i]

    def same(self, node: Node) -> bool:
        """Whether the node only lays out or casts its input."""
        return self.root[node.id] != node.id

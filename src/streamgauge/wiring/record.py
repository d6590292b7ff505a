"""Record one forward pass: every tensor operation becomes nodes of a data-flow graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from streamgauge.wiring import ops
from streamgauge.wiring.calls import CallLog, tensors_of
from streamgauge.wiring.graph import Node, Ref

MOST_GUESSES = 100_000
REPEATS = frozenset({"expand", "repeat", "repeat_interleave", "expand_as", "tile"})
LIKE = frozenset({"zeros_like", "new_zeros"})


Geometry = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(slots=True)
class _Memory:
    """What is known of one storage: the node last seen at each geometry, and every write since."""

    weak: StorageWeakRef
    nodes: dict[Geometry, tuple[int, int]] = field(default_factory=dict)
    writes: list[tuple[Geometry, int, bool]] = field(default_factory=list)


class _Signature(NamedTuple):
    name: str
    written: frozenset[int | str]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that keeps `nodes`; views and in-place writes are followed through the storages."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.log = CallLog(self.touch, self.adopt)
        self.guesses = 0
        self.batch = 0
        self._memories: dict[int, _Memory] = {}
        self._signatures: dict[Any, _Signature] = {}

    # -- sources ------------------------------------------------------------------------------------------------

    def adopt(self, module: nn.Module) -> None:
        """Make the parameters and buffers of a module and its children known as they are now.

        A sharded model gathers them anew for every call; attention of torch uses a child's weights unasked.
        """
        for owner in (module, *module.children()):
            for parameter in owner._parameters.values():
                if parameter is not None:
                    self._source(parameter, "parameter")
            for buffer in owner._buffers.values():
                if buffer is not None:
                    self._source(buffer, "buffer")

    def know(self, tensor: Tensor) -> None:
        """Make a parameter or buffer known."""
        self._source(tensor, "parameter" if isinstance(tensor, nn.Parameter) else "buffer")

    def dropout(self, tensor: Tensor) -> Tensor:
        """A copy that is recorded as having passed a dropout."""
        copy = tensor.clone()
        self.nodes[self.touch(copy)].op = "dropout"
        return copy

    def feed(self, tensor: Tensor) -> None:
        """Make a tensor known as an input of the model."""
        self.batch = self.batch or (tensor.shape[0] if tensor.dim() > 1 else 0)
        self._source(tensor, "input")

    def _source(self, tensor: Tensor, op: str) -> None:
        key = tensor.untyped_storage()._cdata
        memory = self._memories.get(key)
        geometry = _geometry(tensor)
        if memory is not None and geometry in memory.nodes:
            known = self.nodes[memory.nodes[geometry][0]]
            known.trained |= op == "parameter" and not known.data
            return
        node = self._add(op, (), (), {}, tensor, 0)
        node.data = op == "input"
        node.carrier = node.data and (tensor.is_floating_point() or tensor.is_complex())
        node.trained = op == "parameter"
        if not node.data and not node.trained:
            node.value = _number(tensor)
        memory = self._memories.setdefault(key, _Memory(_weak(tensor.untyped_storage())))
        memory.nodes[geometry] = (node.id, len(memory.writes))

    # -- values -------------------------------------------------------------------------------------------------

    def touch(self, tensor: Tensor) -> int:
        """The node of the value that the tensor holds now."""
        memory = self._memories.get(tensor.untyped_storage()._cdata)
        if memory is None:
            self._source(tensor, "parameter" if isinstance(tensor, nn.Parameter) else "constant")
            return len(self.nodes) - 1
        geometry = _geometry(tensor)
        entry = memory.nodes.get(geometry)
        if entry is None:  # a view that no operation made (.data, set_)
            base = next(reversed(memory.nodes.values()), None)
            inputs = () if base is None else (base[0],)
            entry = (self._add("alias", inputs, (), {}, tensor, 0).id, 0 if base is None else base[1])
            memory.nodes[geometry] = entry
        node, seen = entry
        pending = memory.writes[seen:]
        if not pending:
            return node
        parts = [node]
        for where, writer, whole in pending:
            if where == geometry:
                parts = [writer]
            elif whole:
                parts = [self._add("view", (writer,), (Ref(writer),), {}, tensor, 0).id]
            else:
                parts.append(writer)
        made = parts[0] if len(parts) == 1 else self._add("merge", tuple(parts), (), {}, tensor, 0).id
        memory.nodes[geometry] = (made, len(memory.writes))
        return made

    def _add(
        self, op: str, inputs: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor, out: int
    ) -> Node:
        node = Node(len(self.nodes), op, inputs, args, kwargs, tuple(tensor.shape), tensor.dtype, self.log.current, out)
        nodes = self.nodes
        for i in inputs:
            source = nodes[i]
            node.data |= source.data
            node.carrier |= source.carrier
            node.trained |= source.trained
            node.random |= source.random
        node.trained &= not node.data
        if not node.data and len(node.shape) > 2:
            node.carrier |= self._latent(node)
        if node.data and not node.carrier:
            node.carrier = (op in ops.LOOKUP and nodes[inputs[0]].trained) or op in ops.HEAVY
        node.carrier &= tensor.is_floating_point() or tensor.is_complex()
        node.random |= op in ops.RANDOM
        nodes.append(node)
        return node

    def _latent(self, node: Node) -> bool:
        """Trained states that are repeated over the batch are content: queries, latents, and zeros beside them."""
        if node.op in LIKE:
            return any(isinstance(a, Ref) and self.nodes[a.node].carrier for a in node.args[:1])
        source = self.nodes[node.inputs[0]] if node.inputs else node
        if node.op in ops.LOOKUP and source.trained:  # looked up once for each element of the batch
            return 1 < self.batch == node.shape[0]
        return node.op in REPEATS and node.trained and node.numel > source.numel

    def _put(self, node: Node, tensor: Tensor, aliases: bool) -> None:
        storage = tensor.untyped_storage()
        memory = self._memories.get(storage._cdata)
        if memory is None or not aliases:
            memory = self._memories[storage._cdata] = _Memory(_weak(storage))
        memory.nodes[_geometry(tensor)] = (node.id, len(memory.writes))

    def _write(self, node: Node, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        memory = self._memories[storage._cdata]
        geometry = _geometry(tensor)
        whole = tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage.nbytes()
        memory.writes.append((geometry, node.id, whole))
        memory.nodes[geometry] = (node.id, len(memory.writes))

    # -- operations ---------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        signature = self._signatures.get(func)
        if signature is None:
            signature = self._signatures[func] = _read_signature(func)
        if signature.name == "_local_scalar_dense" and args[0].is_meta:
            return self._guess(args[0])
        name = signature.name
        sources: list[int] = []
        storages: set[int] = set()
        if name == "lift_fresh":
            plain: tuple[Any, ...] = ()
            named: dict[str, Any] = {}
            storages = {args[0].untyped_storage()._cdata}
            if args[0].untyped_storage()._cdata not in self._memories:
                self._source(args[0], "constant")
            sources = [self.touch(args[0])]
        else:
            plain = tuple([self._strip(a, sources, storages) for a in args])
            named = {k: self._strip(v, sources, storages) for k, v in kwargs.items() if k not in signature.written}
        result = self._call(func, name, args, kwargs)
        outputs = tensors_of(result)
        if not outputs:
            return result
        if signature.written:
            self._record_write(signature, args, kwargs, sources, plain, named, outputs)
        inputs = () if name in ops.FILL else tuple(sources)
        if name == "copy":
            inputs = tuple(sources[1:])
        if signature.written:
            return result
        for i, tensor in enumerate(outputs):
            node = self._add(name, inputs, plain, named, tensor, i)
            if not node.data and not node.trained:
                node.value = _number(tensor)
            self._put(node, tensor, tensor.untyped_storage()._cdata in storages)
        return result

    def _guess(self, tensor: Tensor) -> bool | int | float:
        """A number for control flow that asks a tensor without values."""
        self.guesses += 1
        if self.guesses > MOST_GUESSES:
            raise RuntimeError("control flow that depends on values does not end without them")
        return False if tensor.dtype == torch.bool else 1.0 if tensor.is_floating_point() else 1

    def _call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "_grouped_mm" and args[0].is_meta and args[1].dim() == 3 and args[0].dim() == 2:
            return args[0].new_empty(args[0].shape[0], args[1].shape[2])  # its meta kernel takes bfloat16 alone
        return func(*args, **kwargs)

    def _record_write(
        self,
        signature: _Signature,
        args: Any,
        kwargs: Any,
        sources: list[int],
        plain: tuple[Any, ...],
        named: dict[str, Any],
        outputs: list[Tensor],
    ) -> None:
        targets: list[Tensor] = []
        for where in signature.written:
            value = args[where] if isinstance(where, int) and where < len(args) else kwargs.get(where)
            targets.extend(tensors_of(value))
        name = signature.name
        inputs = tuple(sources[1:] if name == "copy" else () if name in ops.FILL else sources)
        for i, tensor in enumerate(targets):
            node = self._add(name, inputs, plain, named, tensor, i)
            if not node.data and not node.trained:
                node.value = _number(tensor)
            self._write(node, tensor)
        written = {id(t) for t in targets}
        for i, tensor in enumerate(outputs):
            if id(tensor) not in written:
                self._put(self._add(name, inputs, plain, named, tensor, i), tensor, True)

    def _strip(self, value: Any, sources: list[int], storages: set[int]) -> Any:
        if isinstance(value, Tensor):
            node = self.touch(value)
            sources.append(node)
            storages.add(value.untyped_storage()._cdata)
            return Ref(node)
        if isinstance(value, list | tuple):
            return tuple([self._strip(v, sources, storages) for v in value])
        return value


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Keeps the storage's address from being used again, but not its memory."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _geometry(tensor: Tensor) -> Geometry:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _number(tensor: Tensor) -> float | None:
    if tensor.numel() != 1 or tensor.is_meta or not (tensor.is_floating_point() or tensor.dtype == torch.int64):
        return None
    return float(tensor.detach().reshape(()).item())


def _read_signature(func: Any) -> _Signature:
    schema = func._schema
    space, _, name = schema.name.partition("::")
    written: set[int | str] = set()
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.add(argument.name if argument.kwarg_only else i)
    if written and name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return _Signature(
        name if space in ("aten", "prims", "_c10d_functional") else f"{space}::{name}", frozenset(written)
    )

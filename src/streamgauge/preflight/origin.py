"""Find the operation that made the first value that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from streamgauge.vocabulary import Origin
from streamgauge.wiring import tensors_of

MASKS = ("fill", "full", "where", "tril", "triu", "scalar_tensor", "new_", "empty", "copy", "log", "lift", "detach")
"""Parts of the names of operations that write -inf on purpose (a mask), or move it, or read memory not yet written."""
DIVIDES = ("div", "reciprocal", "rsqrt", "pow")
SOFTMAX = ("softmax", "attention")


class _Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at the output of every operation until one is the origin."""

    def __init__(self, step: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path, self.flow, self.step = "", "forward", step
        self.overflow: Origin | None = None
        self.found: Origin | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.found is not None:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        inputs = [t for t in tensors_of((args, kwargs)) if t.is_floating_point() and not t.is_meta]
        in_place = func._schema.is_mutable
        before = [_state(t) for t in inputs]
        origin = self._facts(name, inputs) if in_place or _worth(name) else None
        out = func(*args, **kwargs)
        if any(part in name for part in MASKS):
            return out
        outputs = [t for t in tensors_of(out) if t.is_floating_point() and not t.is_meta and t.numel()]
        for tensor in outputs[:1]:
            nan, inf = _state(tensor)
            if nan and not any(b[0] for b in before):
                self._blame(origin or self._facts(name, inputs), tensor, "nan", before)
            elif inf and not nan and not any(b[0] or b[1] for b in before) and self.overflow is None:
                self.overflow = _origin(origin or self._facts(name, inputs), tensor, "inf")
        return out

    def _blame(self, facts: dict[str, Any], tensor: Tensor, value: Literal["nan"], before: list[Any]) -> None:
        if facts["masked_rows"] or self.overflow is None or not any(b[1] for b in before):
            self.found = _origin(facts, tensor, value)
        else:  # inf - inf, 0 * inf: what made the inf is to blame
            self.found = self.overflow

    def _facts(self, name: str, inputs: list[Tensor]) -> dict[str, Any]:
        return {
            "op": name.strip("_").removesuffix("_backward") if self.flow == "forward" else name.strip("_"),
            "path": self.path,
            "flow": self.flow,
            "step": self.step,
            "largest": max((_largest(t) for t in inputs if t.numel()), default=None),
            "masked_rows": _masked(inputs) if any(part in name for part in SOFTMAX) else 0,
            "zero_divisor": any(part in name for part in DIVIDES) and _zero_divisor(name, inputs),
        }


def trace_origin(model: nn.Module, evaluate: Callable[[], Tensor], *, step: int = 0) -> Origin | None:
    """Run loss and backward once more and name the operation whose output first is not finite; None where all is.

    The first operation that makes NaN from inputs without NaN; where its inputs hold an infinity that an earlier
    operation made of finite values, that one (float16 beyond 65504). -inf that masks write on purpose is passed over.
    The gradients of the model are left in `.grad`; the caller puts the state back.
    """
    trace = _Trace(step)
    with _paths(model, trace), trace, torch.enable_grad():
        loss = evaluate()
        if trace.found is None and trace.overflow is None and loss.requires_grad:
            trace.flow, trace.path = "backward", ""
            loss.backward()  # type: ignore[no-untyped-call]
    return trace.found or trace.overflow


@contextmanager
def _paths(model: nn.Module, trace: _Trace) -> Iterator[None]:
    """Keep the path of the module that runs in `trace.path`."""
    handles, stack = [], [""]

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            stack.append(path)
            trace.path = path

        return hook

    def leave(*_: Any) -> None:
        if len(stack) > 1:
            stack.pop()
        trace.path = stack[-1]

    try:
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(path)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _origin(facts: dict[str, Any], tensor: Tensor, value: Literal["nan", "inf"]) -> Origin:
    return Origin(**facts, value=value, dtype=str(tensor.dtype).removeprefix("torch."))


def _worth(name: str) -> bool:
    """Operations whose inputs have to be looked at before they run, being too telling to lose."""
    return any(part in name for part in SOFTMAX)


def _state(tensor: Tensor) -> tuple[bool, bool]:
    """(has NaN, has an infinity)."""
    if bool(torch.isfinite(tensor).all()):
        return False, False
    return bool(torch.isnan(tensor).any()), bool(torch.isinf(tensor).any())


def _largest(tensor: Tensor) -> float:
    finite = tensor.detach()[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _masked(inputs: list[Tensor]) -> int:
    """Rows that are -inf at every entry."""
    rows = [(t == -torch.inf).all(-1).sum() for t in inputs if t.dim() and t.shape[-1]]
    return max((int(r) for r in rows), default=0)


def _zero_divisor(name: str, inputs: list[Tensor]) -> bool:
    divisor = inputs[-1] if "div" in name and len(inputs) > 1 else inputs[0]
    return bool((divisor == 0).any())

"""Experiments on a model: change part of the input, or leave a sublayer out, and see what moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from streamgauge.preflight.objective import Inputs
from streamgauge.vocabulary import Join, Probe, Tap
from streamgauge.wiring import tensors_of

MASK_NAMES = ("attention_mask", "padding_mask", "src_key_padding_mask", "key_padding_mask")


def future(model: nn.Module, inputs: Inputs, tokens: Tensor) -> Probe | None:
    """max |y'_s - y_s| / rms(y) over positions s < t = T // 2, where tokens at t and later are others in y'.

    tokens   the tensor among the inputs to change, integer [batch, tokens]; other ids that occur in it are put in
    Only meaningful where the model is to be causal: its targets are the next tokens (`gather.Targets.shifted_from`).
    None where the output has no axis of tokens. The model runs in eval mode without gradients, three times.
    """
    cut = tokens.shape[1] // 2
    changed = tokens.clone()
    changed[:, cut:] = _others(tokens)[:, cut:]
    outputs = _outputs(model, (inputs, inputs, _with(inputs, tokens, changed)))
    if outputs is None or outputs[0].dim() < 3 or outputs[0].shape[:2] != tokens.shape:
        return None
    base, again, moved = (out[:, :cut] for out in outputs)
    scale = _rms(outputs[0])
    return Probe("future", _largest(moved - base, scale), _largest(again - base, scale))


def padding(model: nn.Module, inputs: Inputs, tokens: Tensor) -> Probe | None:
    """max |y'_s - y_s| / rms(y) over positions s that are not padding, where the padded tokens are others in y'.

    Needs a mask beside the tokens: `attention_mask` (1: a token) or `..._padding_mask` (True: padding), [batch,
    tokens]. Where it masks nothing, the last quarter of every second row is masked for the experiment. None without.
    """
    name, mask = next(
        ((n, m) for n, m in inputs.kwargs.items() if n in MASK_NAMES and isinstance(m, Tensor)), ("", None)
    )
    if mask is None or mask.shape != tokens.shape:
        return None
    inverted = "padding" in name
    pad = mask.bool() if inverted else mask == 0
    if not bool(pad.any()):
        pad = torch.zeros_like(pad)
        pad[::2, tokens.shape[1] - max(1, tokens.shape[1] // 4) :] = True
    masked = (pad if inverted else ~pad).to(mask.dtype)
    given = Inputs(inputs.args, {**inputs.kwargs, name: masked})
    changed = torch.where(pad, _others(tokens), tokens)
    outputs = _outputs(model, (given, given, _with(given, tokens, changed)))
    if outputs is None or outputs[0].dim() < 3 or outputs[0].shape[:2] != tokens.shape:
        return None
    base, again, moved = (out[~pad] for out in outputs)
    scale = _rms(base)
    return Probe("padding", _largest(moved - base, scale), _largest(again - base, scale))


def sensitivity(model: nn.Module, inputs: Inputs, tokens: Tensor) -> Probe | None:
    """mean |y' - y| / rms(y), where every element of the input is another one in y': 0 for a model that is blind to it.

    tokens   integer ids, or values: ids become others that occur among them, values are taken from the next row or,
             with one row, from the far end of the row
    """
    if tokens.is_floating_point():
        changed = tokens.roll(1, 0) if tokens.shape[0] > 1 else tokens.flip(-1)
    else:
        changed = _others(tokens)
    outputs = _outputs(model, (inputs, inputs, _with(inputs, tokens, changed)))
    if outputs is None:
        return None
    base, again, moved = outputs
    scale = _rms(base)
    return Probe("input", float((moved - base).abs().mean()) / scale, float((again - base).abs().mean()) / scale)


def skip(model: nn.Module, joins: Iterable[Join], loss: Callable[[], Tensor]) -> tuple[Probe, ...]:
    """For each sublayer with a branch tap: loss with the branch set to zero, less the loss as it is (nats).

    `noise` is the loss of a repetition less that loss. The model runs in eval mode without gradients: two evaluations,
    and one for each sublayer.
    """
    wanted = [join for join in joins if join.branch_tap is not None]
    if not wanted:
        return ()
    found = []
    with evaluating(model), torch.no_grad():
        base = float(loss())
        noise = abs(float(loss()) - base)
        for join in wanted:
            assert join.branch_tap is not None
            with silenced(model, join.branch_tap):
                found.append(Probe("skip", float(loss()) - base, noise, join.path or str(join.index)))
    return tuple(found)


@contextlib.contextmanager
def silenced(model: nn.Module, tap: Tap) -> Iterator[None]:
    """Inside, the tensor at this tap is zero."""
    module = dict(model.named_modules(remove_duplicate=False))[tap.path]
    calls = [-1]

    def enter(_: nn.Module, args: Any, kwargs: Any) -> Any:
        calls[0] += 1
        if tap.side == "input" and calls[0] == tap.call:
            return _zeroed((args, kwargs), tap.slot)
        return None

    def leave(_: nn.Module, args: Any, output: Any) -> Any:
        return _zeroed(output, tap.slot) if tap.side == "output" and calls[0] == tap.call else None

    handles: list[RemovableHandle] = [
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode; afterwards each module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _zeroed(value: Any, slot: int) -> Any:
    count = [-1]

    def walk(item: Any) -> Any:
        if isinstance(item, Tensor):
            count[0] += 1
            return torch.zeros_like(item) if count[0] == slot else item
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(walk(part) for part in item))
        if isinstance(item, tuple | list):
            return type(item)(walk(part) for part in item)
        if isinstance(item, Mapping):
            replaced = {key: walk(part) for key, part in item.items()}
            return replaced if type(item) is dict else type(item)(**replaced)
        return item

    return walk(value)


def _with(inputs: Inputs, old: Tensor, new: Tensor) -> Inputs:
    args = tuple(new if a is old else a for a in inputs.args)
    return Inputs(args, {k: new if v is old else v for k, v in inputs.kwargs.items()})


def _outputs(model: nn.Module, cases: Iterable[Inputs]) -> list[Tensor] | None:
    """The first floating tensor of the output of each case; None where there is none, or the values are no numbers."""
    found = []
    with evaluating(model), torch.no_grad():
        for case in cases:
            output = model(*case.args, **case.kwargs)
            if isinstance(output, Mapping):
                output = output.get("logits", output.get("last_hidden_state", output))
            values = [t for t in tensors_of(output) if t.is_floating_point() and t.dim() >= 2]
            if not values:
                return None
            found.append(values[0].double() if values[0].device.type != "mps" else values[0].float())
    return found if all(bool(torch.isfinite(f).all()) for f in found) else None


def _others(tokens: Tensor) -> Tensor:
    """Every id replaced by the next larger one that occurs (the largest by the smallest)."""
    ids = torch.unique(tokens)
    place = torch.searchsorted(ids, tokens.contiguous())
    shifted: Tensor = ids[(place + 1) % len(ids)]
    return shifted


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) or 1.0


def _largest(difference: Tensor, scale: float) -> float:
    return float(difference.abs().max()) / scale if difference.numel() else 0.0

"""Hooks at the taps find the stream, the branch and the whole gradient of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge.vocabulary import Tap, Wiring
from streamgauge.wiring import read_wiring, tensors_of

D = 16


@contextmanager
def tapped(model: nn.Module, taps: set[Tap], found: dict[Tap, Tensor]) -> Iterator[None]:
    """Collect the tensors at the taps during forward passes."""
    handles, calls = [], {}
    for path in {tap.path for tap in taps}:

        def enter(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
            calls[path] = calls.get(path, -1) + 1
            keep(path, "input", (args, kwargs))

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
            keep(path, "output", output)

        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))

    def keep(path: str, side: Any, value: Any) -> None:
        for slot, tensor in enumerate(tensors_of(value)):
            tap = Tap(path, side, slot, calls[path])
            if tap in taps:
                found[tap] = tensor

    yield
    for handle in handles:
        handle.remove()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class Block(nn.Module):
    """A block that keeps its streams and branches, so that the truth is at hand."""

    def __init__(self, post: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(D), nn.LayerNorm(D), Attention()
        self.ffn = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.drop, self.post, self.scale = nn.Dropout(0.3), post, scale
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.kept = []
        for norm, f in ((self.n1, self.attn), (self.n2, self.ffn)):
            y = self.drop(f(x if self.post else norm(x)))
            out = norm(x + self.scale * y) if self.post else x + self.scale * y
            for tensor in (x, y, out):
                if tensor.requires_grad:
                    tensor.retain_grad()
            self.kept.append((x, y, out))
            x = out
        return x


class Model(nn.Module):
    def __init__(self, blocks: list[nn.Module], drop: float = 0.3) -> None:
        super().__init__()
        self.embed, self.drop, self.blocks = nn.Embedding(32, D), nn.Dropout(drop), nn.ModuleList(blocks)
        self.head = nn.Linear(D, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.embed(ids))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def all_taps(w: Wiring) -> list[tuple[Tap, Tap, Tap]]:
    found = [(j.stream_tap, j.branch_tap, j.out_tap) for j in w.sublayers]
    assert all(tap is not None for three in found for tap in three)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_values_and_gradients_in_training_mode(post: bool, scale: float, shared: bool) -> None:
    torch.manual_seed(0)
    one = Block(post, scale)
    model = Model([one, one] if shared else [Block(post, scale), Block(post, scale)])
    ids = torch.arange(12).reshape(2, 6)
    taps = all_taps(read_wiring(model, ids))
    assert len(taps) == 4
    found: dict[Tap, Tensor] = {}
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for block in dict.fromkeys(model.blocks):
        block.register_forward_hook(lambda m, a, o: kept.extend(m.kept))
    with tapped(model, {t for three in taps for t in three}, found):
        out = model(ids)
    gradients: dict[Tap, Tensor] = {}
    for tap, tensor in found.items():
        tensor.register_hook(lambda g, tap=tap: gradients.__setitem__(tap, g))
    out.square().sum().backward()
    for (stream, branch, leaving), (x, y, z) in zip(taps, kept, strict=True):
        assert torch.equal(found[stream], x)
        assert torch.equal(found[branch], y)
        assert torch.equal(found[leaving], z)
        assert torch.equal(gradients[stream], x.grad)
        assert torch.equal(gradients[branch], y.grad)
        assert torch.equal(gradients[leaving], z.grad)


def test_streams_that_are_changed_in_place() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2, self.attn = nn.LayerNorm(D), nn.LayerNorm(D), Attention()
            self.ffn = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

        def forward(self, x: Tensor) -> Tensor:
            x += self.attn(self.n1(x))
            x += self.ffn(self.n2(x))
            return x

    torch.manual_seed(0)
    model = Model([InPlace(), InPlace()], drop=0.0)
    ids = torch.arange(12).reshape(2, 6)
    w = read_wiring(model, ids)
    paths = [(j.stream_tap, j.out_tap) for j in w.joins]
    assert [(a.path, a.side, b.path, b.side) for a, b in paths if a and b] == [
        ("drop", "output", "blocks.0.n2", "input"),
        ("blocks.0.n2", "input", "blocks.0", "output"),
        ("blocks.0", "output", "blocks.1.n2", "input"),
        ("blocks.1.n2", "input", "blocks.1", "output"),
    ]


def test_a_view_that_carries_one_share_is_not_taken() -> None:
    class Share(nn.Module):
        """The stream itself crosses no boundary; only one flat view of it does."""

        def __init__(self) -> None:
            super().__init__()
            self.n, self.ffn = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = x + self.ffn(self.n(x.view(-1, D))).view_as(x)
            return x

    w = read_wiring(nn.Sequential(nn.Embedding(32, D), Share(), nn.LayerNorm(D)), torch.arange(12).reshape(2, 6))
    assert w.placements == {"pre": 2}
    assert w.joins[0].out_tap is None
    assert w.joins[1].stream_tap is None
    assert w.joins[1].out_tap == Tap("1", "output", 0, 0)


def test_branches_of_one_sum_have_their_own_taps() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.attn, self.ffn = nn.LayerNorm(D), Attention(), nn.Sequential(nn.Linear(D, D), nn.GELU())

        def forward(self, x: Tensor) -> Tensor:
            h = self.n(x)
            return self.attn(h) + self.ffn(h) + x

    w = read_wiring(Model([Parallel()], drop=0.0), torch.arange(12).reshape(2, 6))
    assert [j.branch_tap.path for j in w.joins if j.branch_tap] == ["blocks.0.attn", "blocks.0.ffn"]
    assert w.joins[0].out_tap == w.joins[1].out_tap == Tap("blocks.0", "output", 0, 0)


def test_slots_count_tensors_among_arguments_and_outputs() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.ffn = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

        def forward(self, mask: Tensor, *, extra: Any, x: Tensor) -> dict[str, Any]:
            return {"mask": mask, "x": (None, x + self.ffn(self.n(x)))}

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.odd, self.final = nn.Embedding(32, D), Odd(), nn.LayerNorm(D)

        def forward(self, ids: Tensor) -> Tensor:
            made = self.odd(torch.ones(2), extra={"a": [torch.ones(1)]}, x=self.embed(ids))
            return self.final(made["x"][1])

    w = read_wiring(Outer(), torch.arange(12).reshape(2, 6))
    assert w.joins[0].out_tap == Tap("odd", "output", 1, 0)
    assert w.joins[0].stream_tap == Tap("embed", "output", 0, 0)


def test_tensors_of_goes_through_containers_in_order() -> None:
    a, b, c = (torch.tensor(float(i)) for i in range(3))
    assert [float(t) for t in tensors_of(((a, None, [b]), {"k": {"z": c}}, "text", 3))] == [0.0, 1.0, 2.0]

"""Published schemes as their equations, written as plain functions of the stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

D, L = 16, 3
LN = nn.LayerNorm


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, D // 2).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, D))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


class Net(nn.Module):
    """L blocks of attention and feed-forward under a rule block(self, layer, x)."""

    def __init__(self, block: Callable[..., Any], final: bool = False, **parts: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, D)
        self.layers = nn.ModuleList()
        for _ in range(L):
            layer = nn.ModuleDict({"f1": Attention(), "f2": mlp()})
            for name, make in parts.items():
                layer[name] = make()
            self.layers.append(layer)
        self.block, self.final, self.head = block, LN(D) if final else nn.Identity(), nn.Linear(D, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for i, layer in enumerate(self.layers):
            x = self.block(x, i, **layer)
        return self.head(self.final(x))


class Gain(nn.Module):
    """A trained factor: one number or one per channel."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((n,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


def read(block: Callable[..., Any], final: bool = False, **parts: Callable[[], nn.Module]) -> Wiring:
    torch.manual_seed(0)
    return read_wiring(Net(block, final, **parts), torch.arange(12).reshape(2, 6))


def norms(n: int = 2) -> dict[str, Callable[[], nn.Module]]:
    return {f"n{i + 1}": lambda: LN(D) for i in range(n)}


def test_post() -> None:
    w = read(lambda x, i, f1, f2, n1, n2: n2((h := n1(x + f1(x))) + f2(h)), **norms())
    assert w.placements == {"post": 2 * L}
    assert not w.final_norm


def test_pre_with_and_without_final_norm() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        x = x + f1(n1(x))
        return x + f2(n2(x))

    assert read(block, final=True, **norms()).placements == {"pre": 2 * L}
    assert read(block, final=True, **norms()).final_norm
    assert not read(block, **norms()).final_norm


def test_b2t_counts_the_long_skip() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        h = n1(x + f1(x))
        return n2(x + h + f2(h))

    w = read(block, **norms())
    assert w.placements == {"post": 3 * L}
    assert [j.kind for j in w.joins] == ["attention", "ffn", "other"] * L
    assert not w.final_norm
    long_skips = [j for j in w.joins if j.kind == "other"]
    assert all(j.branch_tap is None for j in long_skips)
    assert all(j.stream_tap == w.joins[3 * i].stream_tap for i, j in enumerate(long_skips))


def test_sandwich_and_output() -> None:
    def sandwich(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any, n3: Any, n4: Any) -> Tensor:
        x = x + n2(f1(n1(x)))
        return x + n4(f2(n3(x)))

    def output(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        x = x + n1(f1(x))
        return x + n2(f2(x))

    assert read(sandwich, final=True, **norms(4)).placements == {"sandwich": 2 * L}
    w = read(output, final=True, **norms())
    assert w.placements == {"output": 2 * L}
    assert w.final_norm


def test_deepnorm() -> None:
    alpha = (2 * L) ** 0.25
    w = read(lambda x, i, f1, f2, n1, n2: n2(alpha * (h := n1(alpha * x + f1(x))) + f2(h)), **norms())
    assert w.placements == {"post": 2 * L}
    assert [j.skip_scale for j in w.joins] == pytest.approx([alpha] * 2 * L)
    assert [j.branch_scale for j in w.joins] == [None] * 2 * L


def test_keel() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any, n3: Any, n4: Any) -> Tensor:
        x = n2(2 * L * x + f1(n1(x)))
        return n4(2 * L * x + f2(n3(x)))

    w = read(block, **norms(4))
    assert w.placements == {"pre+post": 2 * L}
    assert {j.skip_scale for j in w.joins} == {6.0}
    assert not w.final_norm


def test_rezero_and_skipinit() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, a: Any) -> Tensor:
        x = x + a(f1(x))
        return x + a(f2(x))

    w = read(block, a=lambda: Gain(1))
    assert w.placements == {"none": 2 * L}
    assert {j.branch_scale for j in w.joins} == {"learned"}
    assert not any(j.per_channel for j in w.joins)


def test_layerscale() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any, a: Any, b: Any) -> Tensor:
        x = x + a(f1(n1(x)))
        return x + b(f2(n2(x)))

    w = read(block, final=True, **norms(), a=lambda: Gain(D), b=lambda: Gain(D))
    assert w.placements == {"pre": 2 * L}
    assert all(j.per_channel and j.branch_scale is None for j in w.joins)


def test_admin_scales_the_skip_by_a_vector() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any, a: Any, b: Any) -> Tensor:
        x = n1(a(x) + f1(x))
        return n2(b(x) + f2(x))

    w = read(block, **norms(), a=lambda: Gain(D), b=lambda: Gain(D))
    assert w.placements == {"post": 2 * L}
    assert {j.skip_scale for j in w.joins} == {"learned-vector"}


def test_layernorm_scaling_is_pre() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        x = x + f1(n1(x) / math.sqrt(i + 1))
        return x + f2(n2(x) / math.sqrt(i + 1))

    w = read(block, final=True, **norms())
    assert w.placements == {"pre": 2 * L}
    assert {(j.skip_scale, j.branch_scale) for j in w.joins} == {(None, None)}


def test_constant_on_both() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        x = (x + f1(n1(x))) * math.sqrt(0.5)
        return (x + f2(n2(x))) * math.sqrt(0.5)

    w = read(block, final=True, **norms())
    assert w.placements == {"pre": 2 * L}
    assert [j.skip_scale for j in w.joins] == pytest.approx([math.sqrt(0.5)] * 2 * L)
    assert [j.branch_scale for j in w.joins] == pytest.approx([math.sqrt(0.5)] * 2 * L)


@pytest.mark.parametrize("order", ["branches first", "skip first", "two norms"])
def test_parallel(order: str) -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        a, b = f1(n1(x)), f2((n2 if order == "two norms" else n1)(x))
        return x + (a + b) if order == "branches first" else (x + a) + b

    w = read(block, final=True, **norms())
    assert w.placements == {"parallel-pre": 2 * L}
    assert [j.kind for j in w.joins] == ["attention", "ffn"] * L
    assert len({j.branch_tap for j in w.joins}) == 2 * L


def test_mix_ln() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any) -> Tensor:
        if i < 1:
            x = n1(x + f1(x))
            return n2(x + f2(x))
        x = x + f1(n1(x))
        return x + f2(n2(x))

    w = read(block, final=True, **norms())
    assert [j.placement for j in w.joins] == ["post"] * 2 + ["pre"] * (2 * L - 2)
    assert w.final_norm


def test_hybrid_norm() -> None:
    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any) -> Tensor:
        z = n1(x + f1(x))
        return z + f2(z)

    w = read(block, final=True, **norms(1))
    assert [j.placement for j in w.joins] == ["post", "none"] * L
    assert w.final_norm


def test_sub_ln_reads_as_pre() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Linear(D, 2 * D), LN(2 * D), nn.Linear(2 * D, D)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.n(F.gelu(self.a(x))))

    def block(x: Tensor, i: int, f1: Any, f2: Any, n1: Any, n2: Any, g: Any) -> Tensor:
        x = x + f1(n1(x))
        return x + g(n2(x))

    assert read(block, final=True, **norms(), g=Inner).placements == {"pre": 2 * L}


def test_ngpt_merges_both_uses_of_the_stream() -> None:
    def unit(x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)

    def block(x: Tensor, i: int, f1: Any, f2: Any, a: Any, b: Any) -> Tensor:
        x = unit(x + a(unit(f1(x)) - x))
        return unit(x + b(unit(f2(x)) - x))

    w = read(block, a=lambda: Gain(D), b=lambda: Gain(D))
    assert w.placements == {"post": 2 * L}
    assert all(j.per_channel and j.skip_scale == "learned-vector" and j.norm == "scalenorm" for j in w.joins)


def test_adaln_zero_gates_are_no_scales() -> None:
    class Modulated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.x = nn.Linear(8, D), nn.Embedding(32, D)
            self.layers = nn.ModuleList(nn.ModuleList([Attention(), mlp(), nn.Linear(D, 6 * D)]) for _ in range(L))
            self.head = nn.Linear(D, 2 * D)

        def forward(self, ids: Tensor, t: Tensor) -> Tensor:
            x, c = self.x(ids), F.silu(self.embed(t))
            for f1, f2, make in self.layers:
                t1, s1, g1, t2, s2, g2 = make(c)[:, None].chunk(6, dim=-1)
                x = x + g1 * f1(F.layer_norm(x, (D,)) * (1 + s1) + t1)
                x = x + g2 * f2(F.layer_norm(x, (D,)) * (1 + s2) + t2)
            s, t = self.head(c)[:, None].chunk(2, dim=-1)
            return F.layer_norm(x, (D,)) * (1 + s) + t

    w = read_wiring(Modulated(), torch.arange(12).reshape(2, 6), torch.randn(2, 8))
    assert w.placements == {"pre": 2 * L}
    assert {(j.skip_scale, j.branch_scale, j.per_channel) for j in w.joins} == {(None, None, False)}
    assert w.final_norm


def test_residual_from_the_normed_value_is_post_with_a_note() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f1, self.f2, self.n1, self.n2 = Attention(), mlp(), LN(D), LN(D)

        def forward(self, x: Tensor) -> Tensor:
            h = self.n1(x)
            x = h + self.f1(h)
            h = self.n2(x)
            return h + self.f2(h)

    net = nn.Sequential(nn.Embedding(32, D), *(Block() for _ in range(L)), LN(D))
    w = read_wiring(net, torch.arange(12).reshape(2, 6))
    assert w.placements == {"post": 2 * L}
    assert not w.final_norm
    assert any(note.startswith("residual from normed") for note in w.notes)


# -- several streams ------------------------------------------------------------------------------------------------


def unrecognised(w: Wiring) -> bool:
    return bool(w.joins) and set(w.placements) == {"unrecognised"} and bool(w.unplaced)


def test_residual_two_streams() -> None:
    class ResiDual(Net):
        def forward(self, ids: Tensor) -> Tensor:
            p = r = self.embed(ids)
            for layer in self.layers:
                for f, n in ((layer["f1"], layer["n1"]), (layer["f2"], layer["n2"])):
                    y = f(p)
                    r, p = r + y, n(p + y)
            return self.head(p + self.final(r))

    w = read_wiring(ResiDual(lambda: None, True, **norms()), torch.arange(12).reshape(2, 6))
    assert unrecognised(w)
    assert [j.kind for j in w.joins] == ["attention", "ffn"] * L


def test_hyper_connections() -> None:
    class Hyper(Net):
        def __init__(self) -> None:
            super().__init__(lambda: None, True, **norms())
            self.a = nn.ParameterList(torch.eye(4) for _ in range(2 * L))
            self.b = nn.ParameterList(torch.ones(4) for _ in range(2 * L))
            self.m = nn.ParameterList(torch.ones(4) for _ in range(2 * L))

        def forward(self, ids: Tensor) -> Tensor:
            H = self.embed(ids)[:, :, None].expand(-1, -1, 4, -1)
            fs = [(layer[f], layer[n]) for layer in self.layers for f, n in (("f1", "n1"), ("f2", "n2"))]
            for k, (f, n) in enumerate(fs):
                y = f(n(torch.einsum("n,btnd->btd", self.m[k], H)))
                H = torch.einsum("mn,btnd->btmd", self.a[k], H) + self.b[k][:, None] * y[:, :, None]
            return self.head(self.final(H.sum(2)))

    assert unrecognised(read_wiring(Hyper(), torch.arange(12).reshape(2, 6)))


def test_dense_connections_over_all_layers() -> None:
    class Dlcl(Net):
        def __init__(self) -> None:
            super().__init__(lambda: None, False, **norms(3))
            self.w = nn.ParameterList(torch.ones(i + 2) / (i + 2) for i in range(L))

        def forward(self, ids: Tensor) -> Tensor:
            ys = [self.embed(ids)]
            x = ys[0]
            for i, layer in enumerate(self.layers):
                x = x + layer["f1"](layer["n1"](x))
                x = x + layer["f2"](layer["n2"](x))
                ys.append(x)
                x = sum(w * layer["n3"](y) for w, y in zip(self.w[i], ys, strict=True))
            return self.head(x)

    w = read_wiring(Dlcl(), torch.arange(12).reshape(2, 6))
    assert [j.placement for j in w.joins if j.kind != "other"] == ["pre"] * 2 * L
    assert w.unplaced

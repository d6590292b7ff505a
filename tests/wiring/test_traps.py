"""What foreign models do to a stream and to their norms: none of it may change the wiring that is read."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

D = 16
Add = Callable[[Tensor, Tensor], Tensor]


class Attention(nn.Module):
    def __init__(self, d: int = D) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


def mlp(d: int = D) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


class Pre(nn.Module):
    """One Pre-LN block; the addition, the norm and the sublayers may be replaced."""

    def __init__(
        self,
        add: Add = torch.add,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        ffn: Callable[[int], nn.Module] = mlp,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.n1, self.n2, self.attn, self.ffn = norm(D), norm(D), Attention(), ffn(D)
        self.add, self.drop = add, nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = self.add(x, self.drop(self.attn(self.n1(x))))
        return self.add(x, self.drop(self.ffn(self.n2(x))))


def stack(*blocks: nn.Module, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(32, D), *blocks, norm(D))


IDS = torch.arange(12).reshape(2, 6)


def read(model: nn.Module, *args: Any, **kwargs: Any) -> Wiring:
    return read_wiring(model, *(args or ((IDS,) if not kwargs else ())), **kwargs)


def assert_pre(w: Wiring, joins: int = 4, norm: str = "layernorm", eps: float = 1e-5) -> None:
    assert w.placements == {"pre": joins}
    assert {(j.norm, j.skip_scale, j.branch_scale, j.per_channel) for j in w.joins} == {(norm, None, None, False)}
    assert [j.eps for j in w.joins] == pytest.approx([eps] * joins)
    assert w.final_norm
    assert not w.unplaced
    assert not w.unjoined


# -- additions ------------------------------------------------------------------------------------------------------


def in_place(x: Tensor, y: Tensor) -> Tensor:
    x += y
    return x


def into_branch(x: Tensor, y: Tensor) -> Tensor:
    y += x
    return y


def sliced(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[:, :3] += y[:, :3]
    x[:, 3:] += y[:, 3:]
    return x


ADDITIONS: dict[str, Add] = {
    "plus": lambda x, y: x + y,
    "swapped": lambda x, y: y + x,
    "torch.add": torch.add,
    "alpha": lambda x, y: torch.add(x, y, alpha=1),
    "in place": in_place,
    "into the branch": into_branch,
    "out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "minus minus": lambda x, y: x - (-y),
    "stacked": lambda x, y: torch.stack([x, y]).sum(0),
    "catted": lambda x, y: torch.cat([x[None], y[None]]).sum(0),
    "python sum": lambda x, y: sum([x, y]),
    "flat": lambda x, y: (x.reshape(-1, D) + y.reshape(-1, D)).view_as(x),
    "transposed": lambda x, y: (x.transpose(0, 1) + y.transpose(0, 1)).transpose(0, 1),
    "addcmul": lambda x, y: torch.addcmul(x, y, torch.ones(())),
    "in float32": lambda x, y: (x.float() + y.float()).to(x.dtype),
}


@pytest.mark.parametrize("name", list(ADDITIONS))
def test_additions(name: str) -> None:
    assert_pre(read(stack(*(Pre(ADDITIONS[name]) for _ in range(2)))))


def test_halves_are_scales() -> None:
    w = read(stack(*(Pre(lambda x, y: torch.stack([x, y]).mean(0)) for _ in range(2))))
    assert {(j.skip_scale, j.branch_scale) for j in w.joins} == {(0.5, 0.5)}
    w = read(stack(*(Pre(lambda x, y: torch.lerp(x, y, 0.25)) for _ in range(2))))
    assert {(j.skip_scale, j.branch_scale) for j in w.joins} == {(0.75, 0.25)}


def test_residual_fused_into_the_product() -> None:
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, D), nn.Parameter(torch.randn(D, D))

        def forward(self, x: Tensor) -> Tensor:
            flat = x.reshape(-1, D)
            return torch.addmm(flat, F.gelu(self.up(self.n(flat))), self.down).view_as(x)

    w = read(stack(Fused(), Fused()))
    assert w.placements == {"pre": 2}
    assert w.final_norm


# -- norms ----------------------------------------------------------------------------------------------------------


class Hand(nn.Module):
    """A norm written out: y = rule(x) * g + b."""

    def __init__(self, rule: Callable[[Tensor], Tensor], bias: bool = True) -> None:
        super().__init__()
        self.rule, self.g = rule, nn.Parameter(torch.ones(D))
        self.b = nn.Parameter(torch.zeros(D)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.rule(x) * self.g
        return y if self.b is None else y + self.b


def mean_square(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


def in_float32(x: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-3)).to(x.dtype)


def variance(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-3)


def two_moments(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) - mean.pow(2) + 1e-3)


def centred_squares(x: Tensor) -> Tensor:
    y = x - x.mean(-1, keepdim=True)
    return y / (y.square().sum(-1, keepdim=True) / D + 1e-3) ** 0.5


def unbiased(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)


def var_mean(x: Tensor) -> Tensor:
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * (var + 1e-3).pow(-0.5)


def euclidean(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1, eps=1e-3) * math.sqrt(D)


def root_of_mean(x: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) * D**-0.5 + 1e-3)


RULES: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (mean_square, "rmsnorm"),
    (in_float32, "rmsnorm"),
    (euclidean, "rmsnorm"),
    (root_of_mean, "rmsnorm"),
    (variance, "layernorm"),
    (two_moments, "layernorm"),
    (centred_squares, "layernorm"),
    (unbiased, "layernorm"),
    (var_mean, "layernorm"),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rule", "kind"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_norms_written_out(rule: Callable[[Tensor], Tensor], kind: str, bias: bool) -> None:
    def norm(d: int) -> nn.Module:
        return Hand(rule, bias)

    w = read(stack(Pre(norm=norm), Pre(norm=norm), norm=norm))
    assert_pre(w, norm=kind, eps=1e-3)
    assert len(w.norms) == 5
    assert {(n.size, n.fused) for n in w.norms} == {(D, False)}
    post = read(stack(*(Post(norm) for _ in range(2)), norm=lambda d: nn.Identity()))
    assert post.placements == {"post": 4}
    assert {j.norm for j in post.joins} == {kind}


class Post(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.n1, self.n2, self.attn, self.ffn = norm(D), norm(D), Attention(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = self.n1(x + self.attn(x))
        return self.n2(x + self.ffn(x))


def test_scalenorm() -> None:
    class ScaleNorm(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.g = nn.Parameter(torch.full((1,), math.sqrt(d)))

        def forward(self, x: Tensor) -> Tensor:
            return self.g * F.normalize(x, dim=-1)

    assert_pre(read(stack(Pre(norm=ScaleNorm), Pre(norm=ScaleNorm), norm=ScaleNorm)), norm="scalenorm", eps=1e-12)


def test_batchnorm_and_groupnorm() -> None:
    class Turned(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.transpose(1, 2)).transpose(1, 2)

    for norm, kind in (
        (lambda d: Turned(nn.BatchNorm1d(d)), "batchnorm"),
        (lambda d: Turned(nn.GroupNorm(4, d)), "groupnorm"),
    ):
        w = read(stack(Pre(norm=norm), Pre(norm=norm), norm=norm))
        assert_pre(w, norm=kind)
        assert [j.kind for j in w.joins] == ["attention", "ffn"] * 2


def test_norm_over_tokens_and_features_tells_its_size() -> None:
    class Wide(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()

        def forward(self, x: Tensor) -> Tensor:
            return F.layer_norm(x, x.shape[1:])

    w = read(stack(Pre(norm=Wide), norm=Wide))
    assert {n.size for n in w.norms} == {6 * D}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    def norm(d: int) -> nn.Module:
        return Hand(in_float32)

    w = read(stack(Pre(norm=norm), Pre(norm=norm), norm=norm).to(dtype))
    assert_pre(w, norm="rmsnorm", eps=1e-3)
    assert {n.dtype for n in w.norms} == {"float32"}
    bare = read(stack(Pre(norm=lambda d: Hand(mean_square)), norm=lambda d: Hand(mean_square)).to(dtype))
    assert {n.dtype for n in bare.norms} == {str(dtype).removeprefix("torch.")}


def test_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_pre(read(stack(Pre(), Pre())))


def test_a_norm_of_a_sum_of_experts_is_seen() -> None:
    class Experts(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, d, d))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("btd,edf->ebtf", x, self.w).sum(0)

    class Output(Pre):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.n1(self.attn(x))
            return x + self.n2(self.ffn(x))

    def norm(d: int) -> nn.Module:
        return Hand(mean_square, bias=False)

    assert read(stack(*(Output(norm=norm, ffn=Experts) for _ in range(2)))).placements == {"output": 4}


# -- how blocks are run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_dropout(training: bool) -> None:
    model = stack(Pre(drop=0.5), Pre(drop=0.5)).train(training)
    w = read(model)
    assert_pre(w)
    assert [j.branch_tap.path for j in w.joins if j.branch_tap] == ["1.drop", "1.drop", "2.drop", "2.drop"]
    assert [j.branch_tap.call for j in w.joins if j.branch_tap] == [0, 1, 0, 1]
    assert model.training is training


class Checkpointed(nn.Module):
    def __init__(self, block: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks(reentrant: bool) -> None:
    assert_pre(read(stack(*(Checkpointed(Pre(), reentrant) for _ in range(2))).train()))


def test_a_shared_layer_is_read_at_every_execution() -> None:
    block = Pre()
    w = read(stack(block, block, block))
    assert_pre(w, joins=6)
    assert [j.path for j in w.joins] == ["1"] * 6
    assert [j.out_tap.call for j in w.joins if j.out_tap] == [0, 0, 1, 1, 2, 2]


def test_control_flow_that_depends_on_data() -> None:
    class Branching(Pre):
        def forward(self, x: Tensor) -> Tensor:
            if x.abs().max().item() > 0 and bool((x == x).all()):
                return super().forward(x)
            return x

    assert_pre(read(stack(Branching(), Branching())))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_fast_path_of_torch_is_not_taken(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2).eval()
    w = read(model, torch.randn(2, 6, D))
    assert w.placements == {"pre" if norm_first else "post": 4}
    assert torch.backends.mha.get_fastpath_enabled()
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    assert read(model, torch.randn(2, 6, D), src_key_padding_mask=padding).placements == w.placements


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_modules(whole: bool) -> None:
    model = stack(Pre(), Pre())
    plain = read(model)
    if whole:
        compiled = torch.compile(model, backend="eager")
    else:
        compiled = model
        for i in (1, 2):
            compiled[i] = torch.compile(compiled[i], backend="eager")
    w = read(compiled)
    assert_pre(w)
    assert len(w.joins) == len(plain.joins)
    paths = {tap.path for j in w.joins for tap in (j.stream_tap, j.branch_tap, j.out_tap) if tap}
    assert all(compiled.get_submodule(path) is not None for path in paths)


def test_lora_adapters() -> None:
    class Lora(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.a = base, nn.Linear(base.in_features, 2, bias=False)
            self.b, self.drop = nn.Linear(2, base.out_features, bias=False), nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.b(self.a(self.drop(x))) * 2.0

    model = stack(Pre(), Pre())
    for block in model[1:3]:
        block.attn.qkv, block.attn.out = Lora(block.attn.qkv), Lora(block.attn.out)
        block.ffn[0], block.ffn[2] = Lora(block.ffn[0]), Lora(block.ffn[2])
    assert_pre(read(model))

    class Parallel(Pre):
        def forward(self, x: Tensor) -> Tensor:
            n = self.n1(x)
            return x + (self.attn(n) + self.ffn(n))

    blocks = [Parallel(), Parallel()]
    for block in blocks:
        block.attn.out, block.ffn[2] = Lora(block.attn.out), Lora(block.ffn[2])
    assert read(stack(*blocks)).placements == {"parallel-pre": 4}


def test_weight_parametrizations() -> None:
    model = stack(Pre(), Pre())
    for block in model[1:3]:
        nn.utils.parametrizations.weight_norm(block.ffn[0])
        nn.utils.parametrizations.spectral_norm(block.ffn[2])
    w = read(model)
    assert w.placements == {"pre": 4}
    assert [j.kind for j in w.joins] == ["attention", "ffn"] * 2


@pytest.fixture
def process_group() -> Any:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_ddp(process_group: Any) -> None:
    w = read(nn.parallel.DistributedDataParallel(stack(Pre(), Pre())))
    assert_pre(w)
    assert w.joins[0].path == "module.1"


@pytest.mark.filterwarnings("ignore")
def test_fsdp2(process_group: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = stack(Pre(), Pre())
    mesh = init_device_mesh("cpu", (1,))
    for block in model[1:3]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert_pre(read(model))


# -- what branches hold -----------------------------------------------------------------------------------------------


class Routed(nn.Module):
    """Top-1 experts in a data-dependent loop, with a shared expert beside them."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gate, self.experts, self.shared = nn.Linear(d, 3), nn.ModuleList(mlp(d) for _ in range(3)), mlp(d)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weight, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            where = (chosen == i).nonzero().squeeze(-1)
            if where.numel():
                out.index_add_(0, where, expert(flat[where]) * weight[where, None])
        return out.view_as(x) + self.shared(x)


class Summed(nn.Module):
    """Dense experts added up one after another."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(d, 4), nn.ModuleList(mlp(d) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.gate(x).softmax(-1)
        out: Any = 0
        for i, expert in enumerate(self.experts):
            out = out + weight[..., i : i + 1] * expert(x)
        return out  # type: ignore[no-any-return]


class Scan(nn.Module):
    """A selective state-space mixer, its recurrence as a loop, with the D x skip inside."""

    def __init__(self, d: int, n: int = 4) -> None:
        super().__init__()
        self.inp, self.conv, self.out = (
            nn.Linear(d, 4 * d),
            nn.Conv1d(2 * d, 2 * d, 3, groups=2 * d),
            nn.Linear(2 * d, d),
        )
        self.dt, self.bc = nn.Linear(2 * d, 2 * d), nn.Linear(2 * d, 2 * n)
        self.A, self.D = nn.Parameter(-torch.ones(2 * d, n)), nn.Parameter(torch.ones(2 * d))

    def forward(self, u: Tensor) -> Tensor:
        x, z = self.inp(u).chunk(2, -1)
        x = F.silu(self.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2))
        dt, (b, c) = F.softplus(self.dt(x)), self.bc(x).chunk(2, -1)
        h, ys = torch.zeros(*x.shape[::2], self.A.shape[1]), []
        for t in range(x.shape[1]):
            h = torch.exp(dt[:, t, :, None] * self.A) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out((torch.stack(ys, 1) + x * self.D) * F.silu(z))


class Delta(nn.Module):
    """A delta-rule memory: S <- S + k (v - S k)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        S, ys = torch.zeros(x.shape[0], x.shape[2], x.shape[2]), []
        for t in range(x.shape[1]):
            S = S + (v[:, t] - torch.einsum("bij,bj->bi", S, k[:, t]))[:, :, None] * k[:, t, None]
            ys.append(torch.einsum("bij,bj->bi", S, q[:, t]))
        return self.out(torch.stack(ys, 1))


class Inner(nn.Module):
    """A branch with a short convolution that adds to its own input."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.a, self.conv = nn.Linear(d, d), nn.Conv1d(d, d, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return x + self.conv(x.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize(
    ("ffn", "kind"),
    [(Routed, "ffn"), (Summed, "ffn"), (Scan, "mixer"), (Delta, "mixer"), (Inner, "mixer")],
    ids=["routed", "summed", "scan", "delta", "inner"],
)
def test_sums_inside_branches_are_no_joins(ffn: Callable[[int], nn.Module], kind: str) -> None:
    w = read(stack(Pre(ffn=ffn), Pre(ffn=ffn)))
    assert_pre(w)
    assert [j.kind for j in w.joins] == ["attention", kind] * 2


def test_layers_that_mix_tokens_without_attention() -> None:
    class Turned(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.transpose(1, 2)).transpose(1, 2)

    class Fourier(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.fft2(x.float()).real

    for ffn in (Turned, Fourier):
        assert [j.kind for j in read(stack(Pre(ffn=ffn), Pre(ffn=ffn))).joins] == ["attention", "mixer"] * 2


def test_an_inner_stream_of_two_joins_is_counted() -> None:
    class Group(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.conv = nn.Sequential(Pre(), Pre()), nn.Conv1d(D, D, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(self.blocks(x).transpose(1, 2)).transpose(1, 2)

    w = read(stack(Group(), Group()))
    assert w.placements == {"pre": 8, "none": 2}


def test_trained_queries_are_a_stream() -> None:
    class Queries(nn.Module):
        """Latents that are repeated over the batch and attend to an input (Perceiver, DETR)."""

        def __init__(self) -> None:
            super().__init__()
            self.latents, self.n, self.up = nn.Parameter(torch.randn(3, D)), nn.LayerNorm(D), nn.Linear(5, D)
            self.attn, self.blocks = nn.MultiheadAttention(D, 2, batch_first=True), nn.Sequential(Pre(), Pre())

        def forward(self, x: Tensor) -> Tensor:
            q, m = self.latents.expand(x.shape[0], -1, -1), self.up(x)
            q = q + self.attn(self.n(q), m, m, need_weights=False)[0]
            return self.blocks(q)

    w = read(Queries(), torch.randn(2, 4, 5))
    assert w.placements == {"pre": 5}
    assert [j.kind for j in w.joins][:2] == ["cross-attention", "attention"]


def test_a_branch_of_an_earlier_state_is_a_join() -> None:
    class Late(nn.Module):
        """x <- x + f(x), then x <- N(x + conv(embedding)): the second branch skips the first block."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.block, self.n = nn.Embedding(32, D), Post(), nn.LayerNorm(D)
            self.conv, self.last = nn.Conv1d(D, D, 3, padding=1), Post()

        def forward(self, ids: Tensor) -> Tensor:
            e = self.embed(ids)
            x = self.n(self.block(e) + torch.tanh(self.conv(e.transpose(1, 2)).transpose(1, 2)))
            return self.last(x)

    w = read(Late())
    assert w.placements == {"post": 5}
    assert [j.kind for j in w.joins] == ["attention", "ffn", "mixer", "attention", "ffn"]


def test_a_stream_spread_over_copies_is_not_recognised() -> None:
    class Spread(nn.Module):
        """H <- H + b f(N(sum a H)) over four copies, with bare skips."""

        def __init__(self) -> None:
            super().__init__()
            self.n, self.f, self.a, self.b = nn.LayerNorm(D), mlp(), nn.Linear(4 * D, 4), nn.Linear(4 * D, 4)

        def forward(self, H: Tensor) -> Tensor:
            a, b = self.a(H.flatten(2)).sigmoid(), self.b(H.flatten(2)).sigmoid()
            return H + b[..., None] * self.f(self.n((a[..., None] * H).sum(2)))[:, :, None]

    class Copies(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, None].repeat(1, 1, 4, 1)

    w = read(nn.Sequential(nn.Embedding(32, D), Copies(), Spread(), Spread()))
    assert w.placements == {"unrecognised": 2}
    assert any(line.startswith("several streams") for line in w.unplaced)


def test_towers() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.image = stack(Pre(), Pre()), nn.Sequential(nn.Linear(5, D), Post(), Post())
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
            a, b = self.image(pixels).mean(1), self.text(ids).mean(1)
            return self.scale * F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t()

    w = read(Towers(), IDS, torch.randn(2, 4, 5))
    assert w.placements == {"post": 4, "pre": 4}


def test_a_plain_stack_has_no_joins() -> None:
    net = nn.Sequential(
        nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, D), nn.LayerNorm(D), nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, D)
    )
    w = read(net, torch.randn(4, D))
    assert (w.joins, w.unjoined) == ((), ())

    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.tanh(x)

    assert read(nn.Sequential(nn.Linear(D, D), Gate()), torch.randn(4, D)).joins == ()


def test_part_of_the_branch_reads_the_stream_without_the_norm() -> None:
    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.attn = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            h = self.n(x)
            return x + self.attn(h, h, x, need_weights=False)[0]

    w = read(stack(Partial(), Partial()))
    assert w.placements == {"pre": 2}
    assert any("without its norm" in line for line in w.unplaced)


def test_reading_twice_gives_the_same() -> None:
    model = stack(Pre(), Pre())
    assert read(model) == read(model) == read(copy.deepcopy(model))


class GainFirst(nn.Module):
    """g * (x - m) / sqrt(v + eps) + b, the gain multiplied before the division (as in many hand-written norms)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.g, self.b, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.g * centred / (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() + self.b


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_gain_before_the_division_is_a_gain(dtype: torch.dtype) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = GainFirst(16, 1e-6), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(torch.relu(self.up(self.norm(x))))

    model = nn.Sequential(Block(), Block()).to(dtype)
    wiring = read_wiring(model, torch.randn(2, 5, 16, dtype=dtype))
    assert [(j.placement, j.norm, j.eps) for j in wiring.joins] == [("pre", "layernorm", 1e-6)] * 2
    assert {(n.size, n.dtype, n.fused) for n in wiring.norms} == {(16, str(dtype).removeprefix("torch."), False)}

"""The contract of every scheme in SCHEMES, with every norm.

A new scheme needs one row in EQUATIONS (its equation as a plain function), and one in STARTS where its init differs
from the init rule it names. Without the row in EQUATIONS it fails here.
"""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from streamgauge import nn
from streamgauge.errors import InputError

VOCAB, DEPTH, WIDTH, HEADS, TOKENS = 13, 3, 16, 4, 8

# name -> (block equation from x, f1, f2 and the block's norms in the order of its parameters; final norm; init rule)
EQUATIONS = {
    "none": (lambda x, f1, f2, n: f2(n[1](f1(n[0](x)))), True, "xavier"),
    "post": (lambda x, f1, f2, n: n[1]((h := n[0](x + f1(x))) + f2(h)), False, "xavier"),
    "pre": (lambda x, f1, f2, n: (h := x + f1(n[0](x))) + f2(n[1](h)), True, "gpt2"),
    "b2t": (lambda x, f1, f2, n: n[1](x + (h := n[0](x + f1(x))) + f2(h)), False, "xavier"),
    "sandwich": (lambda x, f1, f2, n: (h := x + n[1](f1(n[0](x)))) + n[3](f2(n[2](h))), True, "gpt2"),
}

# str(scheme) -> factor on the std of a block's matrices, from role, depth
STARTS = {"b2t(rescale=True)": lambda role, depth: depth**-0.5}

VARIANTS = [*nn.SCHEMES.values(), nn.b2t(rescale=True)]
NORMS = ["layernorm", "rmsnorm"]

every_scheme = pytest.mark.parametrize("scheme", VARIANTS, ids=str)
every_norm = pytest.mark.parametrize("norm", NORMS)


def build(scheme: nn.Scheme, norm: str | None = None, **options: object) -> nn.Decoder:
    torch.manual_seed(0)
    net = nn.Decoder(VOCAB, DEPTH, WIDTH, HEADS, scheme, norm, context=TOKENS, **options)
    with torch.no_grad():  # gains, biases off their start, so that a misplaced one shows
        for p in net.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    return net


def tokens(seed: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCAB, (2, TOKENS), generator=torch.Generator().manual_seed(seed))


# -- an independent transcription of the model --------------------------------------------------------------------


def plain_attention(w: dict[str, torch.Tensor], at: str, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ w[f"{at}.qkv.weight"].T + w[f"{at}.qkv.bias"]).split(WIDTH, dim=-1)
    out = torch.zeros_like(x)
    size = WIDTH // HEADS
    ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(size)
        out[..., part] = scores.masked_fill(ahead, -math.inf).softmax(-1) @ v[..., part]
    return out @ w[f"{at}.out.weight"].T + w[f"{at}.out.bias"]


def plain_ffn(w: dict[str, torch.Tensor], at: str, x: torch.Tensor) -> torch.Tensor:
    u = x @ w[f"{at}.up.weight"].T + w[f"{at}.up.bias"]
    u = u * 0.5 * (1 + torch.erf(u / math.sqrt(2)))
    return u @ w[f"{at}.down.weight"].T + w[f"{at}.down.bias"]


def plain_norm(kind: str, p: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    if kind == "rmsnorm":
        return p[0] * x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    d = x - x.mean(-1, keepdim=True)
    return p[0] * d / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-5) + p[1]


def plain_norms(w: dict[str, torch.Tensor], kind: str, at: str) -> list:
    found: dict[str, list[torch.Tensor]] = {}
    for key, value in w.items():
        if key.startswith(at):
            found.setdefault(key.rsplit(".", 1)[0], []).append(value)
    return [lambda x, p=p: plain_norm(kind, p, x) for p in found.values()]


def plain_model(net: nn.Decoder, kind: str, ids: torch.Tensor) -> torch.Tensor:
    equation, final, _ = EQUATIONS[net.scheme.name]
    w = {key: value.double() for key, value in net.state_dict().items()}
    x = w["token.weight"][ids] * (math.sqrt(WIDTH) if net.init.name == "xavier" else 1) + w["position.weight"]
    for k in range(DEPTH):
        at = f"stack.blocks.{k}"
        f1 = lambda x, at=at: plain_attention(w, f"{at}.sublayers.attention", x)  # noqa: E731
        f2 = lambda x, at=at: plain_ffn(w, f"{at}.sublayers.ffn", x)  # noqa: E731
        x = equation(x, f1, f2, plain_norms(w, kind, f"{at}.join."))
    last = plain_norms(w, kind, "stack.exit.")
    assert len(last) == int(final), "the final norm is not as the paper has it"
    return (last[0](x) if final else x) @ w["head.weight"].T


# -- the contract -------------------------------------------------------------------------------------------------


def test_every_scheme_has_its_equation_here() -> None:
    assert set(nn.SCHEMES) == set(EQUATIONS)


def test_every_norm_is_tried() -> None:
    assert set(NORMS) == set(nn.NORMS)


@every_norm
@every_scheme
def test_forward_is_the_equation(scheme: nn.Scheme, norm: str) -> None:
    net = build(scheme, norm).double()
    torch.testing.assert_close(net(tokens()), plain_model(net, norm, tokens()), rtol=1e-9, atol=1e-9)


@every_scheme
def test_every_matrix_starts_at_the_std_of_its_rule(scheme: nn.Scheme) -> None:
    depth, d, vocab, context = 2, 256, 160, 128
    torch.manual_seed(0)
    net = nn.Decoder(vocab, depth, d, 4, scheme, context=context)
    rule = EQUATIONS[scheme.name][2]
    factor = STARTS.get(str(scheme), lambda role, depth: 1.0)
    assert net.init.name == rule

    def expected(role: str, fan_in: int, fan_out: int) -> float:
        if role in ("token", "position"):
            return d**-0.5 if rule == "xavier" else 0.02
        std = math.sqrt(2 / (fan_in + fan_out)) if rule == "xavier" else 0.02
        if rule == "gpt2" and role in ("out", "down"):
            std = 0.02 / math.sqrt(2 * depth)
        return std if role == "head" else std * factor(role, depth)

    checked = {"token": net.token.weight, "position": net.position.weight, "head": net.head.weight}
    for k in range(depth):
        attention, ffn = net.get_submodule(f"stack.blocks.{k}.sublayers").values()
        q, key, v = attention.qkv.weight.split(d)
        parts = {"query": q, "key": key, "value": v, "out": attention.out.weight}
        parts |= {"up": ffn.up.weight, "down": ffn.down.weight}
        checked |= {f"{role} {k}": weight for role, weight in parts.items()}
    assert sum(w.numel() for w in checked.values()) == sum(p.numel() for p in net.parameters() if p.dim() > 1)
    for name, weight in checked.items():
        std = expected(name.split()[0], weight.shape[1], weight.shape[0])
        assert weight.std().item() == pytest.approx(std, rel=0.02), name
        assert abs(weight.mean().item()) < 5 * std / math.sqrt(weight.numel()), name
    assert all(p.count_nonzero() == 0 for name, p in net.named_parameters() if name.endswith("bias"))


@every_norm
@every_scheme
def test_every_parameter_gets_gradient(scheme: nn.Scheme, norm: str) -> None:
    net = build(scheme, norm)
    F.cross_entropy(net(tokens()).flatten(0, 1), tokens(2).flatten()).backward()
    dead = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert not dead


@every_norm
@every_scheme
def test_later_tokens_change_nothing_before_them(scheme: nn.Scheme, norm: str) -> None:
    net = build(scheme, norm)
    ids = tokens()
    changed = ids.clone()
    changed[:, 5:] = (ids[:, 5:] + 1) % VOCAB
    before, after = net(ids), net(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def compiled_pair(scheme: nn.Scheme, backend: str) -> tuple[torch.nn.Module, nn.Decoder]:
    """A model and its compiled form, with every norm in it: compilation is what takes the time here."""
    kinds = list(nn.NORMS.values())
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Decoder(VOCAB, len(kinds), WIDTH, HEADS, scheme, lambda site: kinds[site.block % len(kinds)](site.dim))
    return torch.compile(net, backend=backend, fullgraph=True), net


@every_scheme
def test_compiles_without_a_graph_break(scheme: nn.Scheme) -> None:
    compiled, net = compiled_pair(scheme, "eager")
    torch.testing.assert_close(compiled(tokens()), net(tokens()))


@pytest.mark.slow
@every_scheme
def test_compiled_gradients_equal_eager_ones(scheme: nn.Scheme) -> None:
    compiled, net = compiled_pair(scheme, "aot_eager")
    grads = []
    for model in (compiled, net):
        model.zero_grad()
        model(tokens()).square().sum().backward()
        grads.append([p.grad.clone() for p in net.stack.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


@every_norm
@every_scheme
def test_checkpointed_equals_plain(scheme: nn.Scheme, norm: str) -> None:
    grads = []
    for checkpoint in (False, True):
        net = build(scheme, norm, checkpoint=checkpoint)
        loss = net(tokens()).square().mean()
        loss.backward()
        grads.append([loss.detach(), *(p.grad for p in net.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@every_norm
@every_scheme
def test_gradients_agree_with_finite_differences(scheme: nn.Scheme, norm: str) -> None:
    torch.manual_seed(0)
    net = nn.Decoder(3, 2, 4, 2, scheme, norm, context=3, hidden=4).double()
    ids = torch.tensor([[0, 2, 1]])
    names = [name for name, _ in net.named_parameters()]
    start = tuple((p + 0.3 * torch.randn_like(p)).detach().requires_grad_() for p in net.parameters())

    def logits(*values: torch.Tensor) -> torch.Tensor:
        return functional_call(net, dict(zip(names, values, strict=True)), (ids,))

    assert torch.autograd.gradcheck(logits, start, fast_mode=True)


@every_norm
@every_scheme
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_finite_and_near_float32(scheme: nn.Scheme, norm: str, dtype: torch.dtype) -> None:
    net = build(scheme, norm)
    full, half = net(tokens()), copy.deepcopy(net).to(dtype)(tokens())
    assert half.dtype == dtype
    error = (half.float() - full).square().mean().sqrt() / full.square().mean().sqrt()
    assert error < 40 * torch.finfo(dtype).eps


@every_norm
@every_scheme
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_survives_a_stream_of_rms_3000(scheme: nn.Scheme, norm: str, dtype: torch.dtype) -> None:
    net = build(scheme, norm)
    x = 3000 * torch.randn(2, TOKENS, WIDTH)
    full, half = net.stack(x), copy.deepcopy(net).to(dtype).stack(x.to(dtype)).float()
    assert half.isfinite().all()
    assert F.cosine_similarity(half, full, dim=-1).min() > 0.95


@every_norm
@every_scheme
def test_state_dict_and_pickle_round_trip(scheme: nn.Scheme, norm: str) -> None:
    net = build(scheme, norm)
    other = nn.Decoder(VOCAB, DEPTH, WIDTH, HEADS, scheme, norm, context=TOKENS)
    other.load_state_dict(net.state_dict(), strict=True)
    for same in (other, pickle.loads(pickle.dumps(net))):
        assert torch.equal(same(tokens()), net(tokens()))
        assert same.scheme == net.scheme


@every_norm
@every_scheme
def test_built_without_memory_and_started_later(scheme: nn.Scheme, norm: str) -> None:
    with torch.device("meta"):
        net = nn.Decoder(VOCAB, DEPTH, WIDTH, HEADS, scheme, norm, context=TOKENS, positions="rope")
    assert all(p.is_meta for p in net.parameters())
    assert net(torch.empty(2, TOKENS, dtype=torch.long, device="meta")).shape == (2, TOKENS, VOCAB)
    net.to_empty(device="cpu")
    torch.manual_seed(3)
    net.initialize()
    twin = nn.Decoder(VOCAB, DEPTH, WIDTH, HEADS, scheme, norm, context=TOKENS, positions="rope")
    torch.manual_seed(3)
    twin.initialize()
    assert torch.equal(net(tokens()), twin(tokens()))


@every_scheme
def test_no_parameter_is_zero_dimensional(scheme: nn.Scheme) -> None:
    assert all(p.dim() > 0 for p in build(scheme).parameters())


@every_scheme
def test_norms_go_only_where_the_scheme_allows_it(scheme: nn.Scheme) -> None:
    if scheme.normless:
        with pytest.raises(InputError, match=f"{scheme.name}.*needs its norms"):
            build(scheme, "none")
        return
    net = build(scheme, "none")
    assert not any(isinstance(m, tuple(nn.NORMS.values())) for m in net.modules())
    joins = net.declared_wiring().sublayers
    assert {(j.placement, j.norm, j.eps) for j in joins} == {("none", None, None)}


@every_norm
@every_scheme
def test_declares_one_wiring_for_every_block(scheme: nn.Scheme, norm: str) -> None:
    wiring = build(scheme, norm).declared_wiring()
    found = wiring.sublayers
    assert [j.index for j in found] == list(range(len(found)))
    per_block = len(found) // DEPTH
    assert per_block * DEPTH == len(found) >= 2 * DEPTH
    kinds = [j.kind for j in found]
    assert kinds == kinds[:per_block] * DEPTH
    assert {"attention", "ffn"} <= set(kinds)
    assert all(j.path.startswith(f"stack.blocks.{j.index // per_block}.") for j in found)


@every_scheme
def test_describes_itself(scheme: nn.Scheme) -> None:
    text = nn.describe(scheme)
    assert nn.equation(scheme) in text
    assert scheme.arxiv in text
    assert text.startswith(str(scheme))


@every_scheme
def test_refuses_an_unknown_option(scheme: nn.Scheme) -> None:
    with pytest.raises(InputError, match=scheme.name):
        getattr(nn, scheme.name.replace("-", "_"))(no_such_option=1)

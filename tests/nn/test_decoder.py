from __future__ import annotations

import copy

import pytest
import torch

import streamgauge
from streamgauge import nn
from streamgauge.errors import InputError


def small(**options: object) -> nn.Decoder:
    given: dict = {"vocab": 11, "depth": 2, "width": 16, "heads": 4, "context": 8, **options}
    return nn.Decoder(**given)


IDS = torch.arange(16).reshape(2, 8) % 11


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depth": 0}, "depth must be a whole number of at least 1, not 0"),
        ({"depth": 2.0}, "depth must be a whole number"),
        ({"depth": True}, "depth must be a whole number"),
        ({"vocab": -1}, "vocab must be a whole number"),
        ({"width": "16"}, "width must be a whole number"),
        ({"context": 0}, "context must be a whole number"),
        ({"heads": 3}, "heads=3 does not divide width=16; try heads=2 or heads=4"),
        ({"heads": 17}, "does not divide width=16; try heads=16"),
        ({"scheme": "prenorm"}, "unknown scheme 'prenorm'; did you mean"),
        ({"scheme": 3}, "scheme must be a name"),
        ({"norm": "rms"}, "unknown norm 'rms'; did you mean 'rmsnorm'"),
        ({"init": "xavir"}, "did you mean 'xavier'"),
        ({"init": 0.02}, "init must be a name or an Init"),
        ({"ffn": "relu"}, "unknown ffn 'relu'"),
        ({"positions": "rotary"}, "unknown positions"),
        ({"positions": "rope", "heads": 16}, "needs an even head size, not 1"),
        ({"hidden": 0}, "hidden must be a whole number"),
        ({"dropout": 1.0}, "dropout must be a number from 0 to below 1"),
        ({"dropout": -0.1}, "dropout must be"),
        ({"eps": 0.0}, "eps must be a positive number"),
        ({"norm": "none", "eps": 1e-5}, "would be ignored"),
        ({"scheme": "b2t", "norm": "none"}, "'b2t' needs its norms"),
        ({"scheme": "sandwich", "norm": "none"}, "scheme='pre' with norm='none'"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        small(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids", [torch.zeros(8, dtype=torch.long), torch.zeros(1, 9, dtype=torch.long)])
def test_ids_that_do_not_fit_are_refused(ids: torch.Tensor) -> None:
    with pytest.raises(InputError, match="at most 8 tokens"):
        small()(ids)


@pytest.mark.parametrize("positions", ["learned", "rope"])
def test_positions_tell_equal_tokens_apart(positions: str) -> None:
    """Without positions one causal block sees the earlier tokens as a set: their order is lost on the last token."""
    torch.manual_seed(0)
    swapped = (torch.tensor([[1, 2, 3]]), torch.tensor([[2, 1, 3]]))
    one = {"depth": 1, "init": "xavier"}
    net = small(positions="none", **one)
    a, b = (net(ids)[0, -1] for ids in swapped)
    torch.testing.assert_close(a, b)
    net = small(positions=positions, **one)
    a, b = (net(ids)[0, -1] for ids in swapped)
    assert (a - b).abs().max() > 1e-4


def test_shorter_sequences_see_the_same_positions() -> None:
    for positions in ("learned", "rope", "none"):
        net = small(positions=positions)
        torch.testing.assert_close(net(IDS[:, :5]), net(IDS)[:, :5])


def test_tied_head_is_one_parameter() -> None:
    net = small(tied=True)
    assert net.head.weight is net.token.weight
    assert sum(p.numel() for p in small().parameters()) - sum(p.numel() for p in net.parameters()) == 11 * 16
    assert [m.role for m, _ in net.matrices()].count("head") == 0
    copied = copy.deepcopy(net)
    assert copied.head.weight is copied.token.weight


def test_size_is_that_of_gpt2() -> None:
    """GPT-2 small has 124,439,808 parameters."""
    with torch.device("meta"):
        net = nn.Decoder(50257, 12, 768, 12, context=1024, tied=True)
    assert sum(p.numel() for p in net.parameters()) == 124_439_808


@pytest.mark.parametrize(("width", "hidden"), [(16, 48), (96, 256), (128, 344)])
def test_swiglu_has_about_the_size_of_the_gelu_layer(width: int, hidden: int) -> None:
    net = nn.Decoder(5, 1, width, 4, ffn="swiglu")
    assert net.stack.blocks[0].sublayers["ffn"].down.in_features == hidden
    assert hidden % 8 == 0
    assert hidden >= 8 * width / 3


def test_dropout_acts_in_training_and_only_there() -> None:
    net = small(dropout=0.3)
    assert not torch.equal(net(IDS), net(IDS))
    net.eval()
    assert torch.equal(net(IDS), net(IDS))


def test_bias_free() -> None:
    net = small(bias=False, norm="rmsnorm")
    assert not [name for name, _ in net.named_parameters() if name.endswith("bias")]


def test_norm_by_site() -> None:
    net = small(norm=lambda site: nn.RMSNorm(site.dim, eps=1e-4) if site.block == 0 else nn.LayerNorm(site.dim))
    joins = net.declared_wiring().joins
    assert [(j.norm, j.eps) for j in joins] == [("rmsnorm", 1e-4)] * 2 + [("layernorm", 1e-5)] * 2


def test_eps_reaches_every_norm() -> None:
    net = small(scheme="sandwich", eps=1e-3)
    found = [m.eps for m in net.modules() if isinstance(m, nn.LayerNorm)]
    assert found == [1e-3] * 9


def test_learns_a_pattern() -> None:
    torch.manual_seed(0)
    net = small(scheme="pre", init="xavier")
    optimizer = torch.optim.AdamW(nn.recipe(net, lr=1e-2)[0])
    for _ in range(60):
        logits = net(IDS[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_is_reached_from_the_package() -> None:
    assert streamgauge.nn.Decoder is nn.Decoder

"""What a scheme declares is what is read off its graph, for every scheme and norm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from streamgauge import nn
from streamgauge.vocabulary import Join, Wiring
from streamgauge.wiring import read_wiring

VARIANTS = [*nn.SCHEMES.values(), nn.b2t(rescale=True)]
DEPTH = 3
IDS = torch.arange(12).reshape(2, 6)

every_scheme = pytest.mark.parametrize("scheme", VARIANTS, ids=str)


def bare(wiring: Wiring) -> tuple[list[Join], list[Join], bool]:
    """Joins, unjoined sublayers and final norm, without the hook points and the paths."""

    def strip(joins: tuple[Join, ...]) -> list[Join]:
        return [replace(j, path="", stream_tap=None, branch_tap=None, out_tap=None) for j in joins]

    return strip(wiring.joins), strip(wiring.unjoined), wiring.final_norm


def build(scheme: nn.Scheme, norm: object = None, **options: object) -> nn.Decoder:
    torch.manual_seed(0)
    return nn.Decoder(12, DEPTH, 16, 4, scheme, norm, **options)


@pytest.mark.parametrize("norm", list(nn.NORMS))
@every_scheme
def test_read_back_is_what_was_declared(scheme: nn.Scheme, norm: str) -> None:
    net = build(scheme, norm, eps=1e-4)
    declared, read = net.declared_wiring(), read_wiring(net, IDS)
    assert bare(read) == bare(declared)
    assert [j.path for j in read.joins] == [j.path for j in declared.joins]
    assert not read.unplaced


@every_scheme
@pytest.mark.parametrize(
    "options",
    [
        {"ffn": "swiglu", "positions": "rope", "bias": False},
        {"tied": True, "positions": "none"},
        {"dropout": 0.1},
        {"checkpoint": True},
    ],
    ids=["llama-like", "tied", "dropout", "checkpoint"],
)
def test_options_do_not_change_the_wiring(scheme: nn.Scheme, options: dict) -> None:
    net = build(scheme, **options)
    assert bare(read_wiring(net, IDS)) == bare(net.declared_wiring())


@every_scheme
def test_read_back_without_norms(scheme: nn.Scheme) -> None:
    if not scheme.normless:
        net = build(scheme, "none")
        assert bare(read_wiring(net, IDS)) == bare(net.declared_wiring())


@every_scheme
def test_read_back_from_the_meta_device(scheme: nn.Scheme) -> None:
    with torch.device("meta"):
        net = build(scheme)
    assert bare(read_wiring(net, IDS.to("meta"))) == bare(net.declared_wiring())


@every_scheme
def test_norms_that_differ_by_block(scheme: nn.Scheme) -> None:
    net = build(scheme, lambda site: nn.RMSNorm(site.dim) if site.block else nn.LayerNorm(site.dim, eps=1e-3))
    assert bare(read_wiring(net, IDS)) == bare(net.declared_wiring())

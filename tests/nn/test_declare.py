from __future__ import annotations

import pytest

from streamgauge import nn


@pytest.mark.parametrize(
    ("scheme", "placements", "kinds", "final"),
    [
        ("post", ["post"] * 2, ["attention", "ffn"], False),
        ("pre", ["pre"] * 2, ["attention", "ffn"], True),
        ("b2t", ["post"] * 3, ["attention", "ffn", "other"], False),
        ("sandwich", ["sandwich"] * 2, ["attention", "ffn"], True),
    ],
)
def test_one_block(scheme: str, placements: list[str], kinds: list[str], final: bool) -> None:
    wiring = nn.Decoder(11, 1, 8, 2, scheme, "rmsnorm", eps=1e-4).declared_wiring()
    assert [j.placement for j in wiring.joins] == placements
    assert [j.kind for j in wiring.joins] == kinds
    assert {(j.norm, j.eps) for j in wiring.joins} == {("rmsnorm", 1e-4)}
    assert wiring.final_norm == final
    assert not wiring.unjoined


def test_without_a_residual_nothing_is_joined() -> None:
    wiring = nn.Decoder(11, 2, 8, 2, "none").declared_wiring()
    assert not wiring.joins
    assert [j.kind for j in wiring.unjoined] == ["attention", "ffn"] * 2


def test_without_norms_nothing_is_placed() -> None:
    wiring = nn.Decoder(11, 1, 8, 2, "pre", "none").declared_wiring()
    assert [(j.placement, j.norm) for j in wiring.joins] == [("none", None)] * 2
    assert not wiring.final_norm


def test_paths_name_modules_of_the_model() -> None:
    for scheme in nn.SCHEMES:
        net = nn.Decoder(11, 2, 8, 2, scheme)
        for join in net.declared_wiring().sublayers:
            net.get_submodule(join.path)

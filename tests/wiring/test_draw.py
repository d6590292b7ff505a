"""The drawing: one block as equations, and which blocks differ."""

from __future__ import annotations

from dataclasses import replace

from streamgauge.vocabulary import Join, Norm, Wiring
from streamgauge.wiring import differences, draw

ATTENTION = Join(0, "a", "pre", "rmsnorm", 1e-5, kind="attention")
FFN = Join(0, "f", "pre", "rmsnorm", 1e-5, kind="ffn")


def wiring(*joins: Join, final: bool = True) -> Wiring:
    numbered = tuple(replace(join, index=i) for i, join in enumerate(joins))
    return Wiring(numbered, (), final, (Norm("n", "rmsnorm", 1e-5, role="final"),) if final else ())


def test_blocks_alike_are_drawn_once() -> None:
    assert draw(wiring(*[ATTENTION, FFN] * 32)).splitlines() == [
        "32 blocks of",
        "    x + attention(rmsnorm(x))  (eps 1e-05)",
        "    x + ffn(rmsnorm(x))  (eps 1e-05)",
        "final norm: rmsnorm (eps 1e-05)",
    ]
    assert differences(wiring(*[ATTENTION, FFN] * 32)) == []


def test_blocks_that_differ_are_listed() -> None:
    odd = replace(FFN, placement="none", norm=None, eps=None)
    w = wiring(*[ATTENTION, FFN] * 31, ATTENTION, odd, final=False)
    assert differences(w) == ["blocks 0-30 alike", "block 31: x + ffn(x) instead of x + ffn(rmsnorm(x))  (eps 1e-05)"]
    assert draw(w).splitlines()[-1] == "no final norm"
    middle = wiring(*[ATTENTION, FFN] * 3, ATTENTION, odd, *[ATTENTION, FFN] * 4)
    assert differences(middle)[0] == "blocks 0-2, 4-7 alike"


def test_an_encoder_and_a_decoder_are_two_parts() -> None:
    cross = replace(ATTENTION, kind="cross-attention")
    lines = draw(wiring(*[ATTENTION, FFN] * 6, *[ATTENTION, cross, FFN] * 4)).splitlines()
    assert [line for line in lines if line.endswith("of")] == ["6 blocks of", "4 blocks of"]


def test_equations_of_placements_and_scales() -> None:
    deepnorm = replace(FFN, placement="post", norm="layernorm", skip_scale=1.5)
    scaled = replace(FFN, placement="sandwich", branch_scale=0.5, per_channel=True, skip_scale="learned-vector")
    bare = Wiring((), (replace(FFN, placement="none"),))
    assert "layernorm(1.5 x + ffn(x))" in draw(wiring(deepnorm))
    assert "w x + 0.5 g rmsnorm(ffn(rmsnorm(x)))" in draw(wiring(scaled))
    assert "ffn(x), no skip" in draw(bare)
    assert draw(Wiring(unplaced=("one",), notes=("two",))).splitlines() == [
        "no joins",
        "no final norm",
        "not placed: one",
        "assumed: two",
    ]

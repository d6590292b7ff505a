from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.reporting import draw
from streamgauge.reporting.blocks import Stack, spans, stacks
from streamgauge.reporting.periods import periods
from streamgauge.vocabulary import Join, Norm, Wiring


def stack(placements: list[str]) -> Wiring:
    return Wiring(joins=tuple(Join(i, f"b.{i}", p, "layernorm", 1e-5) for i, p in enumerate(placements)))


@given(st.lists(st.sampled_from(["pre", "post", "none"]), max_size=40))
def test_periods_unrolled_are_the_sublayers_in_order(placements: list[str]) -> None:
    unrolled = [join.placement for group in periods(stack(placements).joins) for join in group.unit * group.times]
    assert unrolled == placements


def test_equal_blocks_are_drawn_once() -> None:
    found = list(periods(stack(["post", "pre"] * 24 + ["post"]).joins))
    assert [(len(g.unit), g.times, g.first, g.last) for g in found] == [(2, 24, 0, 47), (1, 1, 48, 48)]
    text = draw(stack(["post", "pre"] * 500))
    assert "500×" in text
    assert text.count("\n") < 20


def test_different_scales_are_not_equal_blocks() -> None:
    joins = tuple(Join(i, "b", "pre", branch_scale=0.5 + i) for i in range(3))
    assert [g.times for g in periods(joins)] == [1, 1, 1]


def test_every_placement_shows_its_norm_where_it_stands() -> None:
    def lines(placement: str) -> list[str]:
        return [line.strip() for line in draw(stack([placement])).splitlines()]

    assert any(line.startswith("├─▶ layernorm(eps 1e-05) ─▶ other ─╮") for line in lines("pre"))
    post = lines("post")
    assert post[post.index(next(line for line in post if line.startswith("⊕"))) + 1] == "layernorm(eps 1e-05)"
    assert any("layernorm(eps 1e-05) ─▶ other ─▶ layernorm(eps 1e-05)" in line for line in lines("sandwich"))
    assert any(line.startswith("├─▶ other ─▶ layernorm(eps 1e-05)") for line in lines("output"))
    assert not any(line.startswith("layernorm") for line in lines("pre"))


def test_scales_final_norm_and_remarks_are_shown() -> None:
    join = Join(0, "b", "post", "layernorm", skip_scale=2.213, branch_scale="learned", per_channel=False)
    norms = (Norm("f", "rmsnorm", 1e-6, role="final"),)
    text = draw(Wiring((join,), final_norm=True, norms=norms, unplaced=("an add",), notes=("ids guessed",)))
    for part in ("× 2.213 on the skip", "× learned", "rmsnorm(eps 1e-06)  (final)", "- an add", "- ids guessed"):
        assert part in text


def test_a_sublayer_without_skip_says_so() -> None:
    bare = replace(stack(["none", "none"]), joins=(), unjoined=stack(["none", "none"]).joins)
    text = draw(bare)
    assert "no skip" in text
    assert "⊕" not in text
    assert "2×" in text


def test_a_model_with_nothing_in_it_is_drawn() -> None:
    assert draw(Wiring()).split() == ["input", "│", "output"]


def test_hostile_paths_cannot_steer_a_terminal() -> None:
    assert "\x1b" not in draw(Wiring((Join(0, "x\x1b[2J", "pre"),)))


def decoder(depth: int, odd: dict[int, Join] | None = None) -> Wiring:
    """`depth` Pre-LN blocks h.0, h.1 ... of attention and ffn; `odd` replaces sublayers by index."""
    kinds = ("attention", "ffn")
    joins = [Join(i, f"h.{i // 2}.sub.{i % 2}", "pre", "layernorm", 1e-5, kind=kinds[i % 2]) for i in range(2 * depth)]
    for index, join in (odd or {}).items():
        joins[index] = join
    return Wiring(joins=tuple(joins), final_norm=True)


def test_a_block_is_the_number_that_leaves_least_to_draw() -> None:
    (part,) = stacks(decoder(5).joins)
    assert isinstance(part, Stack)
    assert (part.name, part.names, len(part.typical)) == ("h", (0, 1, 2, 3, 4), 2)
    assert part.remarks() == []
    assert "5×" in draw(decoder(5))


def test_blocks_that_differ_are_named_with_the_difference() -> None:
    odd = {
        6: Join(6, "h.3.sub.0", "none", kind="attention"),
        9: Join(9, "h.4.sub.1", "pre", "rmsnorm", 1e-6, branch_scale=0.5, kind="ffn"),
    }
    text = draw(decoder(32, odd))
    assert "- h 0-2, 5-31: alike" in text
    assert "- h 3: attention without a norm (elsewhere pre, layernorm(eps 1e-05))" in text
    assert "- h 4: ffn pre, rmsnorm(eps 1e-06), branch × 0.5 (elsewhere pre, layernorm(eps 1e-05))" in text
    assert text.count("⊕") == 2, "the typical block once"


def test_blocks_of_other_sublayers_are_named() -> None:
    wiring = decoder(6)
    extra = Join(99, "h.5.sub.2", "pre", "layernorm", 1e-5, kind="cross-attention")
    text = draw(replace(wiring, joins=(*wiring.joins, extra)))
    assert "- h 5: attention, ffn, cross-attention (elsewhere attention, ffn)" in text


def test_two_stacks_are_drawn_one_after_the_other() -> None:
    encoder = [Join(i, f"enc.{i // 2}", "post", "layernorm", 1e-12) for i in range(8)]
    later = [Join(8 + i, f"dec.{i // 3}", "pre", "rmsnorm", 1e-6) for i in range(9)]
    parts = stacks([*encoder, *later])
    assert [(p.name, len(p.blocks)) for p in parts if isinstance(p, Stack)] == [("enc", 4), ("dec", 3)]


def test_spans() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert spans([4]) == "4"

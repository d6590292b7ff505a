from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.reporting import draw
from streamgauge.reporting.drawing import groups
from streamgauge.vocabulary import Join, Norm, Wiring


def stack(placements: list[str]) -> Wiring:
    return Wiring(joins=tuple(Join(i, f"b.{i}", p, "layernorm", 1e-5) for i, p in enumerate(placements)))


@given(st.lists(st.sampled_from(["pre", "post", "none"]), max_size=40))
def test_groups_unrolled_are_the_sublayers_in_order(placements: list[str]) -> None:
    unrolled = [join.placement for group in groups(stack(placements)) for join in group.unit * group.times]
    assert unrolled == placements


def test_equal_blocks_are_drawn_once() -> None:
    found = list(groups(stack(["post", "pre"] * 24 + ["post"])))
    assert [(len(g.unit), g.times, g.first, g.last) for g in found] == [(2, 24, 0, 47), (1, 1, 48, 48)]
    text = draw(stack(["post", "pre"] * 500))
    assert "500×" in text
    assert text.count("\n") < 20


def test_different_scales_are_not_equal_blocks() -> None:
    joins = tuple(Join(i, "b", "pre", branch_scale=0.5 + i) for i in range(3))
    assert [g.times for g in groups(Wiring(joins=joins))] == [1, 1, 1]


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

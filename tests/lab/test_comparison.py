from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import InputError
from streamgauge.lab.comparison import Comparison
from streamgauge.lab.config import Config

TOML = """
schemes = ["pre", "post"]
lrs = [3e-4, 1e-3]
depth = 2
width = 16
data = ["a.txt"]
"""


def test_arms_are_the_product_and_named_by_what_varies() -> None:
    arms = Comparison.of(schemes=["pre", "post"], lrs=[1e-3, 3e-4], depth=2).arms()
    assert list(arms) == ["pre-lr0.001", "pre-lr0.0003", "post-lr0.001", "post-lr0.0003"]
    assert arms["post-lr0.0003"] == Config(scheme="post", lr=3e-4, depth=2)
    assert list(Comparison.of(schemes=["pre", "post"]).arms()) == ["pre", "post"]
    assert list(Comparison.of(scheme="b2t").arms()) == ["b2t"]
    assert list(Comparison.of(depths=[1, 2], seeds=[0, 1]).arms())[-1] == "depth2-seed1"


def test_from_toml_and_flags_over_it(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(TOML)
    spec = Comparison.from_toml(path)
    assert spec.base == Config(depth=2, width=16, data=("a.txt",))
    assert (spec.schemes, spec.lrs) == (("pre", "post"), (3e-4, 1e-3))
    over = Comparison.from_toml(path, schemes=["b2t"], depths=[1, 3], steps=7, lrs=None)
    assert (over.base.scheme, over.depths, over.base.steps, over.lrs) == ("b2t", (1, 3), 7, (3e-4, 1e-3))
    assert over.schemes == (), "one value is no axis"


def test_flat_form_there_and_back() -> None:
    spec = Comparison.of(schemes=["pre"], seeds=[1, 2], norm="rmsnorm", data="x.txt", lr=2e-3)
    assert Comparison.of(spec.to_dict()) == spec


def test_command_gives_the_same_comparison_back() -> None:
    spec = Comparison.of(schemes=["pre", "post"], lrs=[2e-3], depth=2, validate_every=50, data="my text.txt")
    words = shlex.split(spec.command("runs/x"))
    assert words[:2] == ["streamgauge", "compare"]
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert flags == {
        "--schemes": "pre,post",
        "--lrs": "0.002",
        "--depths": "2",
        "--validate-every": "50",
        "--data": "my text.txt",
        "--out": "runs/x",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scheme": "pre", "schemes": ["post"]}, r"^scheme: given beside schemes"),
        ({"shemes": ["pre"]}, r"^unknown field 'shemes'; did you mean 'schemes'\?"),
        ({"schemes": ["pre", "pre"]}, r"^schemes: 'pre' stands twice"),
        ({"schemes": ["pre", "pots"]}, r"^scheme: unknown scheme 'pots'; did you mean 'post'\?"),
        ({"depths": [4, 0]}, r"^depth: .*not 0"),
        ({"depths": ["4"]}, r"^depths: .*valid integer, not \['4'\]"),
        ({"lrs": "1e-3"}, r"^lrs: .*valid number"),
        ({"steps": "many"}, r"^steps: "),
        ({"base": 3}, r"^unknown field 'base'"),
    ],
)
def test_bad_specs_are_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        Comparison.of(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("schemes = [", "not TOML"),
        ("dept = 3", "unknown field 'dept'; did you mean 'depth'"),
        ("depth = '3'", "depth: .*valid integer"),
        ("[arms]\nx = 1", "unknown field 'arms'"),
    ],
)
def test_bad_toml_names_the_file(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"spec\.toml: .*{says}") as caught:
        Comparison.from_toml(path)
    assert "\n" not in str(caught.value)


def test_missing_toml_and_undecodable_toml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        Comparison.from_toml(tmp_path / "none.toml")
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bin\.toml: not TOML"):
        Comparison.from_toml(tmp_path / "bin.toml")

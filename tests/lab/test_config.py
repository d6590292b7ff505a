from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import InputError
from streamgauge.lab.config import Config


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"depth": 0}, r"^depth: input should be greater than or equal to 1, not 0$"),
        ({"depth": "4"}, r"^depth: input should be a valid integer, not '4'$"),
        ({"depth": True}, r"^depth: .*not True"),
        ({"width": 64.0}, r"^width: "),
        ({"heads": 5}, r"^heads: 5 does not divide width=64"),
        ({"lr": -1e-3}, r"^lr: .*greater than 0"),
        ({"lr": float("nan")}, r"^lr: "),
        ({"lr": float("inf")}, r"^lr: .*finite"),
        ({"beta2": 1.0}, r"^beta2: .*less than 1"),
        ({"seed": -1}, r"^seed: "),
        ({"steps": 10, "warmup": 10}, r"^warmup: 10 is not below steps=10"),
        ({"scheme": "pst"}, r"^scheme: unknown scheme 'pst'; did you mean 'post'\?"),
        ({"norm": "layernrm"}, r"^norm: unknown norm 'layernrm'; did you mean 'layernorm'\?"),
        ({"init": "xavire"}, r"^init: unknown init 'xavire'; did you mean 'xavier'\?"),
        ({"data": 3}, r"^data: .*valid string"),
        ({"min_lr": 2.0}, r"^min_lr: "),
        ({"clip": -1.0}, r"^clip: "),
    ],
)
def test_bad_settings_name_their_field_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        Config(**settings)
    assert "\n" not in str(caught.value)


def test_values_take_their_declared_types() -> None:
    c = Config(lr=1, data="a.txt", norm="none")  # type: ignore[arg-type]
    assert c.lr == 1.0
    assert isinstance(c.lr, float)
    assert c.data == ("a.txt",)
    assert Config(data=["a", "b"]).data == ("a", "b")  # type: ignore[arg-type]


def test_warmup_is_a_tenth_unless_given() -> None:
    assert Config(steps=250).warmup_steps == 25
    assert Config(steps=5).warmup_steps == 0
    assert Config(steps=250, warmup=0).warmup_steps == 0


def test_json_there_and_back(tmp_path: Path) -> None:
    c = Config(scheme="b2t", lr=3e-4, data=("x.txt", "y.txt"), norm="rmsnorm")
    (tmp_path / "config.json").write_text(c.to_json())
    assert Config.from_json(tmp_path / "config.json") == c


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"dept": 3}', '{"depth": 0}', "\x00"])
def test_bad_json_names_the_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"config\.json: ") as caught:
        Config.from_json(path)
    assert "\n" not in str(caught.value)

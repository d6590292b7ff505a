from __future__ import annotations

import pytest

from streamgauge.errors import InputError, unknown
from streamgauge.registry import Registry


def test_lookup_and_order() -> None:
    table = Registry("norm", {"layernorm": 1})
    table.add("rmsnorm", 2)
    assert list(table) == ["layernorm", "rmsnorm"]
    assert table["rmsnorm"] == 2
    assert "rmsnorm" in table
    assert table.get("nope") is None


def test_misspelt_name_gets_the_closest_match() -> None:
    table = Registry("norm", {"layernorm": 1, "rmsnorm": 2})
    with pytest.raises(InputError, match="unknown norm 'layrnorm'; did you mean 'layernorm'"):
        table["layrnorm"]


def test_far_name_gets_the_list() -> None:
    assert str(unknown("scheme", "zzz", ["pre", "post"])) == "unknown scheme 'zzz'; known: post, pre"


def test_a_name_is_registered_once() -> None:
    table = Registry("rule", {"a": 1})
    with pytest.raises(ValueError, match="twice"):
        table.add("a", 2)

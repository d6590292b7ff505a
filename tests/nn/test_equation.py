from __future__ import annotations

import pytest
import torch

from streamgauge import nn
from streamgauge.errors import InputError
from streamgauge.nn.equation import Function, Term, equation
from streamgauge.nn.joins.base import OneNorm


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        ("none", "x <- f(N(x))"),
        ("post", "x <- N(x + f(x))"),
        ("pre", "x <- x + f(N(x))"),
        ("b2t", "x <- N2(h + f2(h) + x),  h = N1(x + f1(x))"),
        ("sandwich", "x <- x + N_out(f(N(x)))"),
    ],
)
def test_is_printed_from_the_code(scheme: str, text: str) -> None:
    assert equation(scheme) == text


class Scaled(OneNorm):
    """documented, not run"""

    placement = "post"

    def __init__(self, site: object, norm: object) -> None:
        super().__init__(site, norm)
        self.alpha = 2.0
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, f: object) -> torch.Tensor:
        return self.norm(self.alpha * x + self.gain * (0.5 * f(x) - x) / 3)


class Stacked(Scaled):
    """x <- mean(x, f(x))"""

    def forward(self, x: torch.Tensor, f: object) -> torch.Tensor:
        return torch.stack([x, f(x)]).mean(0)


def test_constants_and_parameters_by_name() -> None:
    scheme = nn.Scheme("scaled", "", nn.each(Scaled), "", "", "", "", 0, "")
    assert equation(scheme) == "x <- N(alpha * x + gain * (0.5 * f(x) - x) / 3)"


def test_what_symbols_cannot_follow_is_taken_from_the_docstring() -> None:
    scheme = nn.Scheme("stacked", "", nn.each(Stacked), "", "", "", "", 0, "")
    assert equation(scheme) == "x <- mean(x, f(x))"


def test_a_number_before_a_term() -> None:
    x = Term("x")
    assert (2 + x).args[0].op == "2"
    assert Function("f")(x).args == (x,)


def test_describes_option_and_default() -> None:
    assert "L^-1/2" in nn.describe(nn.b2t(rescale=True))
    assert "L^-1/2" not in nn.describe("b2t")
    assert "with final norm" in nn.describe("pre")
    assert "no final norm" in nn.describe("post")
    with pytest.raises(InputError, match="did you mean"):
        nn.describe("bt2")

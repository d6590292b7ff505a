from __future__ import annotations

import pytest
import torch

from streamgauge import nn
from streamgauge.errors import InputError
from streamgauge.nn.norms import choose_norm, norm_kind

SITE = nn.Site(1, 4, 8)


@pytest.mark.parametrize("norm", ["rmsnorm", nn.RMSNorm, lambda site: nn.RMSNorm(site.dim)])
def test_a_name_a_class_or_a_function_of_the_site(norm: object) -> None:
    built = choose_norm(norm)(SITE)
    assert isinstance(built, nn.RMSNorm)
    assert built.weight.shape == (8,)


def test_none_is_the_identity() -> None:
    assert isinstance(choose_norm("none")(SITE), torch.nn.Identity)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", torch.nn.LayerNorm, torch.nn.RMSNorm])
def test_eps_reaches_the_norm(norm: object) -> None:
    assert choose_norm(norm, 1e-3)(SITE).eps == 1e-3


@pytest.mark.parametrize(
    ("norm", "eps", "says"),
    [
        ("layrnorm", None, "did you mean 'layernorm'"),
        ("NONE", None, "unknown norm"),
        (3, None, "norm must be a name"),
        ("none", 1e-5, "would be ignored"),
        (lambda site: nn.RMSNorm(site.dim), 1e-5, "would be ignored"),
        ("layernorm", 0, "positive number"),
        ("layernorm", -1e-5, "positive number"),
        ("layernorm", float("nan"), "positive number"),
        ("layernorm", "1e-5", "positive number"),
        ("layernorm", True, "positive number"),
    ],
)
def test_what_cannot_be_used_is_refused(norm: object, eps: float | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        choose_norm(norm, eps)


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (nn.LayerNorm(4), "layernorm"),
        (nn.RMSNorm(4), "rmsnorm"),
        (torch.nn.LayerNorm(4), "layernorm"),
        (torch.nn.RMSNorm(4), "rmsnorm"),
        (torch.nn.Identity(), None),
        (torch.nn.Linear(4, 4), None),
    ],
)
def test_kind_of_ours_and_of_torch(module: torch.nn.Module, kind: str | None) -> None:
    assert norm_kind(module) == kind


@pytest.mark.parametrize("name", list(nn.NORMS))
def test_agrees_with_torch(name: str) -> None:
    peer = {"layernorm": torch.nn.LayerNorm(16), "rmsnorm": torch.nn.RMSNorm(16, eps=1e-6)}[name]
    ours = nn.NORMS[name](16)
    ours.load_state_dict(peer.state_dict())
    x = torch.randn(3, 16)
    assert torch.equal(ours(x), peer(x))

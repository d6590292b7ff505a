"""Norms over the last axis. Statistics are held in float32 under half precision; the output has the input's dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.errors import InputError, unknown
from streamgauge.nn.site import Site
from streamgauge.registry import Registry
from streamgauge.vocabulary import NormKind

NormMaker = Callable[[Site], nn.Module]


class LayerNorm(nn.Module):
    """g (x - mean x) / sqrt(var x + eps) + b, with the biased variance over the last axis.

    x (..., dim) -> (..., dim), same dtype. Gain g starts at 1, bias b at 0.
    Source: Ba, Kiros & Hinton 2016, arXiv 1607.06450.
    """

    kind: ClassVar[NormKind] = "layernorm"
    default_eps: ClassVar[float] = 1e-5

    def __init__(self, dim: int, eps: float | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.eps = self.default_eps if eps is None else eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        g, b = self.weight, self.bias
        if x.dtype == g.dtype:
            return F.layer_norm(x, (self.dim,), g, b, self.eps).to(x.dtype)
        return F.layer_norm(x.float(), (self.dim,), g.float(), b.float(), self.eps).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


class RMSNorm(nn.Module):
    """g x / sqrt(mean x^2 + eps), over the last axis.

    x (..., dim) -> (..., dim), same dtype. Gain g starts at 1.
    Source: Zhang & Sennrich 2019, arXiv 1910.07467; eps 1e-6 as in T5 and Llama.
    """

    kind: ClassVar[NormKind] = "rmsnorm"
    default_eps: ClassVar[float] = 1e-6

    def __init__(self, dim: int, eps: float | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.eps = self.default_eps if eps is None else eps
        self.weight = nn.Parameter(torch.ones(dim))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, (self.dim,), self.weight, self.eps).to(x.dtype)
        return F.rms_norm(x.float(), (self.dim,), self.weight.float(), self.eps).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


TORCH_NORMS: dict[type[nn.Module], NormKind] = {nn.LayerNorm: "layernorm", nn.RMSNorm: "rmsnorm"}


def norm_kind(module: nn.Module) -> NormKind | None:
    """The kind of a norm of ours or of torch; None for any other module."""
    kind: NormKind | None = getattr(module, "kind", None) or TORCH_NORMS.get(type(module))
    return kind


NORMS: Registry[type[nn.Module]] = Registry("norm", {"layernorm": LayerNorm, "rmsnorm": RMSNorm})


@dataclass(frozen=True)
class NormChoice:
    """The same norm at every site; kind "none" puts an identity there."""

    kind: str | type[nn.Module]
    eps: float | None = None

    def __call__(self, site: Site) -> nn.Module:
        if self.kind == "none":
            return nn.Identity()
        build: Callable[..., nn.Module] = NORMS[self.kind] if isinstance(self.kind, str) else self.kind
        return build(site.dim) if self.eps is None else build(site.dim, eps=self.eps)


def choose_norm(norm: Any, eps: float | None = None) -> NormMaker:
    """The norm of each site from what the user gave: a name, "none", a class, or a function Site -> module.

    Errors: InputError for an unknown name, for an eps that is not a positive number, and for an eps that nothing
    would use.
    """
    if isinstance(norm, str) and norm != "none" and norm not in NORMS:
        raise unknown("norm", norm, [*NORMS, "none"])
    if not (isinstance(norm, (str, type)) or callable(norm)):
        raise InputError(f"norm must be a name, a norm class or a function of the site, not {norm!r}")
    if eps is None:
        return NormChoice(norm) if isinstance(norm, (str, type)) else norm
    if norm == "none" or not isinstance(norm, (str, type)):
        reason = "norm='none' has no norm" if norm == "none" else "the norm function builds its own norms"
        raise InputError(f"eps={eps} would be ignored: {reason}; leave eps out")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not (eps > 0 and math.isfinite(eps)):
        raise InputError(f"eps must be a positive number, not {eps!r}; layer norm uses 1e-5")
    return NormChoice(norm, float(eps))

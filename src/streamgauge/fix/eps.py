"""Remedies for the eps of norms."""

from __future__ import annotations

from torch import nn

from streamgauge.errors import InputError
from streamgauge.fix.base import Patient, remedy
from streamgauge.rules.precision.dtypes import FORMATS
from streamgauge.vocabulary import Norm

NAMES = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps", "norm_eps")
"""What norms call it, in torch and transformers."""

SAFE = 1e-5
USUAL = {"layernorm": 1e-5, "groupnorm": 1e-5, "rmsnorm": 1e-6}
"""torch's defaults; 1e-6 as in T5 and Llama."""


@remedy("eps-underflow", "the eps that rounds to zero in half precision becomes 1e-5")
def raise_eps(patient: Patient) -> list[str]:
    """eps <- 1e-5 in every norm written out in half precision whose eps is 0 or rounds to 0 in the dtype of its
    statistics. 1e-5 is 168 times the smallest float16.

    Beside the norms that the wiring shows: modules of vectors of one length in half precision that keep such an eps, as
    an eps of zero can leave nothing for the wiring to read. torch's fused norms and those that upcast are left alone.
    """
    norms = patient.wiring().norms
    chosen = [(n, SAFE) for n in norms if not n.fused and n.eps is not None and _lost(n.eps, n.dtype)]
    known = {n.path for n in norms}
    for path, module in patient.model.named_modules():
        eps, dtype = _kept(module), _vectors(module)
        if path not in known and eps is not None and dtype is not None and _lost(eps, dtype):
            chosen.append((Norm(path, "layernorm", eps, dtype=dtype), SAFE))
    return _set(patient.model, chosen)


def _lost(eps: float, dtype: str) -> bool:
    return dtype in FORMATS and (eps == 0 or FORMATS[dtype].flushes(eps))


def _kept(module: nn.Module) -> float | None:
    """The eps that the module keeps as an attribute."""
    values = (getattr(module, name, None) for name in NAMES)
    return next((float(value) for value in values if isinstance(value, float)), None)


def _vectors(module: nn.Module) -> str | None:
    """The half-precision dtype of a module that holds vectors of one length and is none of torch's own."""
    own = list(module.parameters(recurse=False))
    if type(module).__module__.startswith("torch.") or len({p.shape for p in own}) != 1 or own[0].dim() != 1:
        return None
    name = str(own[0].dtype).removeprefix("torch.")
    return name if name in ("float16", "bfloat16") else None


@remedy("eps-dominates", "eps becomes 1e-5 in LayerNorms and 1e-6 in RMSNorms where it is larger")
def lower_eps(patient: Patient) -> list[str]:
    """eps <- 1e-5 (LayerNorm, GroupNorm) or 1e-6 (RMSNorm) in every norm whose eps is larger.

    Where it is not larger already, the stream is too small and not the eps too large: see `embedding-scale`.
    """
    norms = [n for n in patient.wiring().norms if n.eps is not None and n.eps > 1.001 * USUAL.get(n.kind, float("inf"))]
    return _set(patient.model, [(n, USUAL[n.kind]) for n in norms])


def _set(model: nn.Module, chosen: list[tuple[Norm, float]]) -> list[str]:
    """Write each eps where its module keeps it; InputError, with nothing changed, where one has none that is read."""
    places: dict[str, tuple[nn.Module, str, float]] = {}
    for norm, eps in chosen:
        module = model.get_submodule(norm.path)
        name = next((n for n in NAMES if _is(getattr(module, n, None), norm.eps)), None)
        if name is None:
            raise InputError(
                f"the norm {norm.path or 'in the model itself'} has eps {norm.eps:g} in its code and not as an "
                f"attribute; write {eps:g} there"
            )
        places[norm.path] = module, name, eps
    changes = []
    for path, (module, name, eps) in places.items():
        changes.append(f"{path}.{name}: {getattr(module, name):g} -> {eps:g}")
        setattr(module, name, eps)
    return changes


def _is(value: object, eps: float | None) -> bool:
    return isinstance(value, float | int) and eps is not None and abs(value - eps) <= 1e-3 * max(abs(eps), 1e-30)

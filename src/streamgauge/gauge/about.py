"""What a run records about itself without being asked: software versions, model and optimizer."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import torch
from torch import nn

OPTIONS = ("betas", "momentum", "eps", "weight_decay", "amsgrad")


def versions() -> dict[str, str]:
    """The software that numbers depend on."""
    from streamgauge import __version__

    named = {"streamgauge": __version__, "python": platform.python_version(), "platform": platform.platform()}
    named["torch"] = str(torch.__version__)
    for package in ("numpy", "transformers"):
        try:
            named[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return named


def model_facts(model: nn.Module) -> dict[str, Any]:
    """Sizes, dtypes and devices of the parameters; a shared parameter counts once."""
    parameters = list(model.parameters())
    return {
        "model": type(model).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "devices": sorted({str(p.device) for p in parameters}),
    }


def optimizer_facts(optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Kind and options of the optimizer; the options are those of its first parameter group."""
    if optimizer is None or not optimizer.param_groups:
        return {}
    first = optimizer.param_groups[0]
    options = {name: first[name] for name in OPTIONS if name in first}
    return {"optimizer": type(optimizer).__name__, "param_groups": len(optimizer.param_groups), **options}

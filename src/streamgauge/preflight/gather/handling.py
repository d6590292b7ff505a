"""What happens around a step: clipping, accumulation, precision."""

from __future__ import annotations

from typing import Any

import torch

from streamgauge.errors import InputError
from streamgauge.vocabulary import Handling

PRECISIONS: dict[str, torch.dtype | None] = {
    "fp32": None,
    "32": None,
    "32-true": None,
    "float32": None,
    "no": None,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "bf16-mixed": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "half": torch.float16,
    "16-mixed": torch.float16,
}
"""Names of the autocast dtype as the usual libraries spell them; None runs without autocast."""


def handling(
    *,
    clip: float | None = None,
    accumulate: int | None = None,
    precision: torch.dtype | None = None,
    seen: torch.dtype | None = None,
    scaler: Any = None,
) -> Handling:
    """The handling as given, and the autocast dtype `seen` at the model's door (None: no autocast there).

    autocast is "float32" where the forward ran without it; loss_scale the scale of a GradScaler that is enabled.
    """
    dtype = precision if precision is not None else seen
    scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None
    name = str(dtype or torch.float32).removeprefix("torch.")
    return Handling(clip, accumulate, name, scale)


def autocast_now() -> torch.dtype | None:
    """The dtype of the autocast region that this code runs in, None outside of one."""
    kinds = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    return next((torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)), None)


def precision_of(precision: str | torch.dtype | None) -> torch.dtype | None:
    """The autocast dtype that `precision` names; InputError for another name."""
    if precision is None or isinstance(precision, torch.dtype):
        return None if precision in (None, torch.float32) else precision
    if str(precision) not in PRECISIONS:
        raise InputError(f"precision {precision!r} is unknown; give fp32, bf16 or fp16 (the dtype of autocast)")
    return PRECISIONS[str(precision)]

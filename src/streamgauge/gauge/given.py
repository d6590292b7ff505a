"""What a caller may hand to the gauge: checked at the door, one line of advice, nothing stored before."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamgauge.errors import InputError

LARGEST = 2**53  # steps pass through float64 when they are read, and SQLite's integers end at 2**63 - 1


def text(value: object, what: str) -> str:
    """`value`, if it is text that can be written as UTF-8."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is {value!r}; give a text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} is {value!r}, which has no form in UTF-8; remove the lone surrogates") from None
    return value


def step_number(value: object, what: str = "step") -> int:
    """`value` as the index of a step, 0 ... 2**53."""
    whole = getattr(value, "__index__", None)
    if isinstance(value, bool) or whole is None:
        raise InputError(f"{what}={value!r} is not the number of a step; give an integer of at least 0")
    try:
        step = int(whole())
    except (TypeError, ValueError):
        raise InputError(f"{what} is no single integer; give an integer of at least 0") from None
    if not 0 <= step <= LARGEST:
        raise InputError(f"{what} is out of range; give an integer from 0 to 2**53")
    return step


def number(value: Any, what: str) -> float:
    """`value` as one real number; NaN and infinities are numbers here."""
    size = value.numel() if isinstance(value, Tensor) else getattr(value, "size", 1)
    if size != 1:
        raise InputError(f"{what} has shape {tuple(value.shape)}; take its mean")
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InputError(f"{what} is of type {type(value).__name__} and no real number; give one number") from None


def scalar(value: Any, what: str) -> Tensor | float:
    """`value` as a 0-d tensor where it is a tensor (it is not fetched from its device), else as a number."""
    if not isinstance(value, Tensor):
        return number(value, what)
    if value.numel() != 1:
        raise InputError(f"{what} has shape {tuple(value.shape)}; take its mean")
    if value.is_complex() or value.is_meta:
        raise InputError(f"{what} is {value.dtype} on {value.device}, no real number; give one number")
    return value.detach().reshape(())


def tokens(value: Any, what: str) -> float:
    """`value` as a count: finite, not negative."""
    count = number(value, what)
    if isinstance(value, bool) or not (math.isfinite(count) and count >= 0):
        raise InputError(f"{what}={value!r} is no count of tokens; give a number of at least 0")
    return count


def facts(value: object) -> dict[str, Any]:
    """`value` as facts: a mapping of names; those that the gauge itself reads are checked."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"facts is a {type(value).__name__}; give a dict of names and values")
    found = {text(name, "the name of a fact"): fact for name, fact in value.items()}
    if found.get("tokens_per_step") is not None:
        tokens(found["tokens_per_step"], "tokens_per_step")
    return found


def folder(value: object) -> Path | None:
    """`value` as the path of a run's folder that the file system can name; None stays None."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"run is a {type(value).__name__}; give the path of a folder, or None to keep it in memory")
    try:
        path = Path(value)
        os.lstat(path)
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return path  # for the store to say what is wrong with it
        raise InputError(f"run={_short(value)} cannot be a folder: {_why(error)}; give another path") from None
    return path


def optimizer(value: Any) -> torch.optim.Optimizer | None:
    """`value`, if it has the parameter groups of an optimizer."""
    if value is not None and not isinstance(getattr(value, "param_groups", None), list):
        raise InputError(f"the optimizer is a {type(value).__name__}; pass a torch.optim.Optimizer, or None")
    return value  # type: ignore[no-any-return]


def _short(value: object) -> str:
    shown = repr(str(value))
    return shown if len(shown) <= 60 else f"{shown[:40]}...' ({len(str(value))} characters)"


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)

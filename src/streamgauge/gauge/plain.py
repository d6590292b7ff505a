"""Configs and facts as JSON: dataclasses, paths, dtypes and numpy numbers become plain values, the rest an error."""

from __future__ import annotations

import dataclasses
import json
import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from streamgauge.errors import InputError
from streamgauge.vocabulary import Word


def plain(value: Any, where: str) -> Any:
    """`value` in the types that JSON has; a number that is not finite by its name ("nan", "inf", "-inf")."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _encodable(value, where)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Word):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Namespace | SimpleNamespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {_encodable(str(key), where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = value if isinstance(value, list | tuple) else sorted(value, key=str)
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(items)]
    if isinstance(value, Path | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return plain(value.tolist(), where)
    raise InputError(
        f"{where} has type {type(value).__name__}, which JSON cannot hold; give numbers, text, lists, dicts"
    )


def dumps(value: Any, where: str) -> str:
    """`plain(value)` as JSON text."""
    try:
        return json.dumps(plain(value, where), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise InputError(f"{where} contains itself or is nested too deeply for JSON; give a flat dict") from None
    except ValueError as error:  # an integer of thousands of digits; InputError is one too and says enough
        raise error if isinstance(error, InputError) else InputError(f"{where} has no form in JSON: {error}") from None


def _encodable(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} holds {text!r}, which has no form in UTF-8; remove the lone surrogates") from None
    return text

from __future__ import annotations

import json
import math
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from streamgauge.errors import InputError
from streamgauge.gauge.plain import dumps, plain
from streamgauge.vocabulary import Quantity


@dataclass
class Settings:
    lr: float
    data: Path
    dtype: torch.dtype


def test_a_config_becomes_plain_values() -> None:
    given = {
        "settings": Settings(0.1, Path("a/b"), torch.bfloat16),
        "betas": (0.9, np.float32(0.5)),
        "names": {"y", "x"},
        "table": torch.tensor([1, 2]),
        "best": math.inf,
        "word": Quantity(1.5, "nat"),
        3: None,
        "args": Namespace(seed=1),
    }
    assert json.loads(dumps(given, "config")) == {
        "settings": {"lr": 0.1, "data": "a/b", "dtype": "torch.bfloat16"},
        "betas": [0.9, 0.5],
        "names": ["x", "y"],
        "table": [1, 2],
        "best": "inf",
        "word": {"value": 1.5, "unit": "nat"},
        "3": None,
        "args": {"seed": 1},
    }


def test_what_json_cannot_hold_is_named() -> None:
    with pytest.raises(InputError, match=r"^config.model\[1\] has type object, which JSON cannot hold"):
        plain({"model": [1, object()]}, "config")

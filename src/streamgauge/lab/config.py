"""One run, as a frozen value: what is trained, on what, how."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from streamgauge.errors import InputError, closest
from streamgauge.lab.corpus import STDLIB
from streamgauge.lab.fields import checked, known, names, naming
from streamgauge.lab.files import MEBI, content
from streamgauge.nn import INITS, NORMS, SCHEMES

Count = Annotated[int, Field(ge=1, le=10**9)]
Depth = Annotated[int, Field(ge=1, le=10_000)]
Width = Annotated[int, Field(ge=1, le=2**16)]
Size = Annotated[int, Field(ge=1, le=2**20)]
Whole = Annotated[int, Field(ge=0, le=10**9)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Config:
    """Every setting of one run; construction raises InputError that names the field.

    scheme, norm, init   names in `streamgauge.nn`; None is the scheme's own
    depth, width, heads, context   blocks, channels, attention heads, bytes that the model sees
    batch, steps         sequences per step, optimizer steps
    lr, warmup, min_lr   peak learning rate, steps of linear warm-up (None: a tenth), end of the cosine over the peak
    clip                 largest global gradient norm; 0 leaves gradients as they are
    weight_decay, beta1, beta2, eps   AdamW's, decay on matrices only
    seed                 of initialization and data order
    data                 "stdlib", or text files
    every                steps between two sampled steps of the gauge
    validate_every, validation_batches   when and on how many fixed batches the validation loss is taken
    """

    scheme: str = "pre"
    norm: str | None = None
    init: str | None = None
    depth: Depth = 4
    width: Width = 64
    heads: Width = 4
    context: Size = 128
    batch: Size = 8
    steps: Count = 300
    lr: Positive = 1e-3
    warmup: Whole | None = None
    min_lr: Share = 0.1
    clip: NotNegative = 1.0
    weight_decay: NotNegative = 0.1
    beta1: Beta = 0.9
    beta2: Beta = 0.95
    eps: Positive = 1e-8
    seed: Seed = 0
    data: tuple[str, ...] = (STDLIB,)
    every: Count = 10
    validate_every: Count = 100
    validation_batches: Size = 16

    def __post_init__(self) -> None:
        for name, value in checked(type(self), vars(self)).items():
            object.__setattr__(self, name, value)
        for field, table in (("scheme", SCHEMES), ("norm", NORMS), ("init", INITS)):
            name = getattr(self, field)
            if name is not None and name not in table and not (field == "norm" and name == "none"):
                raise InputError(f"{field}: unknown {field} {name!r}; {closest(name, table)}")
        if self.width % self.heads:
            raise InputError(f"heads: {self.heads} does not divide width={self.width}; give a divisor of the width")
        if self.warmup is not None and self.warmup >= self.steps:
            raise InputError(f"warmup: {self.warmup} is not below steps={self.steps}; give fewer warm-up steps")

    @property
    def warmup_steps(self) -> int:
        return self.steps // 10 if self.warmup is None else self.warmup

    def to_json(self) -> str:
        return json.dumps(vars(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, path: Path) -> Self:
        try:
            values = json.loads(content(path, 16 * MEBI, "the folder of a run"))
        except InputError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: not a run's config.json: {error}; give the folder of a run") from None
        if not isinstance(values, dict):
            raise InputError(f"{path}: not a run's config.json: no object; give the folder of a run")
        with naming(path):
            return cls(**known(values, names(cls)))

"""What the floating dtypes can hold, and which of them a model computes in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from streamgauge.vocabulary import Handling, Norm, Parameter, Wiring


@dataclass(frozen=True)
class Format:
    """largest finite value, smallest positive (subnormal) value, and bits of the fraction."""

    largest: float
    smallest: float
    fraction: int

    def flushes(self, value: float) -> bool:
        """Does this positive value round to zero?  Ties go to even, so half of the smallest does."""
        return value <= self.smallest / 2

    def half_ulp(self, value: float) -> float:
        """Half the distance from |value| to the next number: what a smaller update is rounded away by."""
        if value == 0 or not math.isfinite(value):
            return 0.0
        return max(2.0 ** (math.floor(math.log2(abs(value))) - self.fraction), self.smallest) / 2


FORMATS: dict[str, Format] = {
    "float16": Format(65504.0, 2.0**-24, 10),
    "bfloat16": Format((2 - 2**-7) * 2.0**127, 2.0**-133, 7),
    "float32": Format((2 - 2**-23) * 2.0**127, 2.0**-149, 23),
    "float64": Format((2 - 2**-52) * 2.0**1023, 2.0**-1074, 52),
}


def half_in_play(
    handling: Handling | None, parameters: Iterable[Parameter] | None, wiring: Wiring | None
) -> bool | None:
    """Is anything computed in float16?  None where nothing tells."""
    if handling is not None and handling.autocast == "float16":
        return True
    dtypes = {p.dtype for p in parameters or ()}
    norms: tuple[Norm, ...] = wiring.norms if wiring is not None else ()
    if "float16" in dtypes or any(n.dtype == "float16" for n in norms):
        return True
    if (handling is not None and handling.autocast is not None) or dtypes:
        return False
    return None

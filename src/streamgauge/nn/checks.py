"""Checks of what a model is built from; each failure is one line that says how to mend it."""

from __future__ import annotations

from streamgauge.errors import InputError
from streamgauge.nn.inits import INITS, Init
from streamgauge.nn.schemes import Scheme


def whole(name: str, value: object, least: int = 1) -> int:
    """`value` as a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def share(name: str, value: object) -> float:
    """`value` as a number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise InputError(f"{name} must be a number from 0 to below 1, not {value!r}")
    return float(value)


def split_heads(width: int, heads: int) -> None:
    if width % heads:
        fits = [h for h in range(1, width + 1) if width % h == 0]
        near = sorted(fits, key=lambda h: (abs(h - heads), h))[:2]
        raise InputError(f"heads={heads} does not divide width={width}; try heads={near[0]} or heads={near[1]}")


def choose_init(init: str | Init | None, scheme: Scheme) -> Init:
    """The scheme's own rule, the rule of that name, or the rule itself."""
    if init is None:
        return INITS[scheme.init]
    if isinstance(init, Init):
        return init
    if not isinstance(init, str):
        raise InputError(f"init must be a name or an Init such as nn.gpt2(sigma=0.01), not {init!r}")
    return INITS[init]


def norm_allowed(scheme: Scheme, norm: object) -> None:
    if norm == "none" and scheme.normless:
        raise InputError(f"scheme {scheme.name!r} needs its norms: {scheme.normless}")

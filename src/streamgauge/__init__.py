"""streamgauge: choose, check, watch and repair the residual stream and the normalization of deep transformers.

Public names load on first use, so that `import streamgauge` and the command line start without torch.
"""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "InputError": "errors",
    "Finding": "vocabulary",
    "Join": "vocabulary",
    "Reading": "vocabulary",
    "Readings": "vocabulary",
    "Verdict": "vocabulary",
    "Wiring": "vocabulary",
    "read_wiring": "wiring",
    "check": "preflight",
    "explain": "rules",
    "Guard": "guard",
    "compare": "api",
    "load": "api",
    "report": "api",
    "watch": "api",
}
_ROOMS = ("nn", "fix", "lab")

__all__ = [
    "Finding",
    "Guard",
    "InputError",
    "Join",
    "Reading",
    "Readings",
    "Verdict",
    "Wiring",
    "__version__",
    "check",
    "compare",
    "explain",
    "fix",
    "lab",
    "load",
    "nn",
    "read_wiring",
    "report",
    "watch",
]

if TYPE_CHECKING:
    from streamgauge import fix, lab, nn
    from streamgauge.api import compare, load, report, watch
    from streamgauge.errors import InputError
    from streamgauge.guard import Guard
    from streamgauge.preflight.check import check
    from streamgauge.rules import explain
    from streamgauge.vocabulary import Finding, Join, Reading, Readings, Verdict, Wiring
    from streamgauge.wiring import read_wiring


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return _imported(name)
    if name in _HOMES:
        value = getattr(_imported(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'streamgauge' has no attribute {name!r}")


def _imported(name: str) -> ModuleType:
    """Import a room; some of what it imports draws from `random` on the way, which a seeded run must not notice."""
    state = random.getstate()
    try:
        return importlib.import_module(f"streamgauge.{name}")
    finally:
        random.setstate(state)


def __dir__() -> list[str]:
    return __all__

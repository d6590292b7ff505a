"""In-place remedies, one function per remedy that a finding can name.

`apply(model, name, optimizer=..., inputs=...)` changes the object that it is given, returns one line for each change.
A remedy lives in the file of its family and enters `REMEDIES` through the decorator beside it.
"""

from __future__ import annotations

from streamgauge.fix import decay, eps, initialization  # (they register their remedies)
from streamgauge.fix.base import REMEDIES, Remedy, apply, remedy_lines

__all__ = ["REMEDIES", "Remedy", "apply", "decay", "eps", "initialization", "remedy_lines"]

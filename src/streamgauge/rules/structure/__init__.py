"""Family W: what the wiring shows."""

from streamgauge.rules.structure.final_norm import missing_final_norm
from streamgauge.rules.structure.residual import missing_residual

__all__ = ["missing_final_norm", "missing_residual"]

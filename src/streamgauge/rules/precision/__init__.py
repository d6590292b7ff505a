"""Family P: what the dtypes can hold."""

from streamgauge.rules.precision.eps import eps_dominates, eps_underflow, half_norm_statistics
from streamgauge.rules.precision.overflow import half_overflow, lost_updates

__all__ = ["eps_dominates", "eps_underflow", "half_norm_statistics", "half_overflow", "lost_updates"]

"""Family T: what goes wrong while training."""

from streamgauge.rules.dynamics.finite import non_finite
from streamgauge.rules.dynamics.gradient import exploding_gradient, vanishing_gradient

__all__ = ["exploding_gradient", "non_finite", "vanishing_gradient"]

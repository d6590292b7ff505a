"""Family T: what goes wrong while training."""

from streamgauge.rules.dynamics.attention import attention_entropy_collapse, attention_logit_growth
from streamgauge.rules.dynamics.finite import non_finite
from streamgauge.rules.dynamics.gradient import exploding_gradient, vanishing_gradient
from streamgauge.rules.dynamics.layers import layer_collapse, redundant_layer
from streamgauge.rules.dynamics.outliers import massive_activations, stable_rank_drop
from streamgauge.rules.dynamics.spike import loss_spike

__all__ = [
    "attention_entropy_collapse",
    "attention_logit_growth",
    "exploding_gradient",
    "layer_collapse",
    "loss_spike",
    "massive_activations",
    "non_finite",
    "redundant_layer",
    "stable_rank_drop",
    "vanishing_gradient",
]

"""Family I: what the first forward and backward pass show."""

from streamgauge.rules.initialization.collapse import token_collapse
from streamgauge.rules.initialization.dead import dead_parameters
from streamgauge.rules.initialization.scale import stream_explodes, stream_vanishes, unscaled_residual_init
from streamgauge.rules.initialization.size import embedding_scale, large_init
from streamgauge.rules.initialization.start import initial_loss, norm_nullspace

__all__ = [
    "dead_parameters",
    "embedding_scale",
    "initial_loss",
    "large_init",
    "norm_nullspace",
    "stream_explodes",
    "stream_vanishes",
    "token_collapse",
    "unscaled_residual_init",
]

"""Family W: what the wiring shows."""

from streamgauge.rules.structure.batch_norm import batch_norm_over_padding
from streamgauge.rules.structure.depth_scale import wrong_depth_scale
from streamgauge.rules.structure.final_norm import missing_final_norm
from streamgauge.rules.structure.identity import identity_layer
from streamgauge.rules.structure.mixed import mixed_placement
from streamgauge.rules.structure.norm_axis import narrow_norm, norm_axis
from streamgauge.rules.structure.norm_use import norm_flag_ignored, unused_norm
from streamgauge.rules.structure.output_norm import output_norm_without_qk_norm
from streamgauge.rules.structure.partial import partial_norm, partial_residual
from streamgauge.rules.structure.post_norm import deep_post_norm, doubled_final_norm, residual_from_normed
from streamgauge.rules.structure.residual import missing_residual

__all__ = [
    "batch_norm_over_padding",
    "deep_post_norm",
    "doubled_final_norm",
    "identity_layer",
    "missing_final_norm",
    "missing_residual",
    "mixed_placement",
    "narrow_norm",
    "norm_axis",
    "norm_flag_ignored",
    "output_norm_without_qk_norm",
    "partial_norm",
    "partial_residual",
    "residual_from_normed",
    "unused_norm",
    "wrong_depth_scale",
]

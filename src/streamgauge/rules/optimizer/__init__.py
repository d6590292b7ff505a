"""Family O: what the optimizer and the schedule do."""

from streamgauge.rules.optimizer.adam import adam_eps, stale_beta2
from streamgauge.rules.optimizer.habits import always_clipping, decay_on_gains
from streamgauge.rules.optimizer.rate import lr_too_high, lr_too_low
from streamgauge.rules.optimizer.warmup import post_norm_without_warmup, warmup_too_slow

__all__ = [
    "adam_eps",
    "always_clipping",
    "decay_on_gains",
    "lr_too_high",
    "lr_too_low",
    "post_norm_without_warmup",
    "stale_beta2",
    "warmup_too_slow",
]

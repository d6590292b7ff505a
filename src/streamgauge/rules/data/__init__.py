"""Family D: what the data and the masks allow."""

from streamgauge.rules.data.masks import fully_masked_row, target_leak
from streamgauge.rules.data.plateau import unigram_plateau

__all__ = ["fully_masked_row", "target_leak", "unigram_plateau"]

"""Family D: what the data and the masks allow."""

from streamgauge.rules.data.plateau import unigram_plateau

__all__ = ["unigram_plateau"]

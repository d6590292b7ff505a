"""Family I: what the first forward and backward pass show."""

from streamgauge.rules.initialization.collapse import token_collapse

__all__ = ["token_collapse"]

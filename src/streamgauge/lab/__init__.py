"""Data, training and paired comparisons: the room that knows both columns."""

from __future__ import annotations

from streamgauge.lab.arms import compare
from streamgauge.lab.comparison import AXES, Comparison
from streamgauge.lab.config import Config
from streamgauge.lab.corpus import VOCAB, Corpus, load, standard_library, text
from streamgauge.lab.intact import check_intact
from streamgauge.lab.loop import Result, build, train, validate
from streamgauge.lab.presets import PRESETS
from streamgauge.lab.record import RECORD, Record
from streamgauge.lab.stop import Stopped
from streamgauge.lab.summary import Row, summary

__all__ = [
    "AXES",
    "PRESETS",
    "RECORD",
    "VOCAB",
    "Comparison",
    "Config",
    "Corpus",
    "Record",
    "Result",
    "Row",
    "Stopped",
    "build",
    "check_intact",
    "compare",
    "load",
    "standard_library",
    "summary",
    "text",
    "train",
    "validate",
]

"""Whether a run can fit into this machine's memory, told before anything is allocated."""

from __future__ import annotations

import os

from streamgauge.errors import InputError
from streamgauge.lab.config import Config
from streamgauge.lab.corpus import VOCAB


def least_bytes(config: Config) -> int:
    """16 (12 L d^2 + 2 V d) + 4 B T (L d + V): a lower bound on what training holds at a time, in bytes.

    Weights, gradients and Adam's two moments of L blocks of width d, each with attention (4 d^2) and a feed-forward
    four times as wide (8 d^2), and of embedding and head over V symbols; one stream state per block and the logits of
    B sequences of T symbols. float32.
    """
    c = config
    weights = 12 * c.depth * c.width**2 + 2 * VOCAB * c.width
    return 16 * weights + 4 * c.batch * c.context * (c.depth * c.width + VOCAB)


def check_room(config: Config) -> None:
    """InputError where a run needs more than all memory of the machine; nothing where that is not known."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return
    if (least := least_bytes(config)) > memory > 0:
        c, gibi = config, 2**30
        raise InputError(
            f"depth={c.depth}, width={c.width}, batch={c.batch}, context={c.context} takes at least "
            f"{least / gibi:,.0f} GiB of memory, this machine has {memory / gibi:,.0f}; give smaller ones"
        )

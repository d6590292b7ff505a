from __future__ import annotations

import pytest

from streamgauge.nn import Site


@pytest.mark.parametrize(
    ("site", "index", "total"),
    [
        (Site(0, 12, 8), 0, 24),
        (Site(11, 12, 8, slot=1), 23, 24),
        (Site(2, 6, 8, ("attention", "cross-attention", "ffn"), slot=2), 8, 18),
        (Site(12, 12, 8), 24, 24),
    ],
)
def test_counts_sublayers_from_zero(site: Site, index: int, total: int) -> None:
    assert (site.index, site.total) == (index, total)


def test_moves_within_its_block() -> None:
    site = Site(3, 6, 8).at(1)
    assert (site.block, site.slot, site.kind) == (3, 1, "ffn")

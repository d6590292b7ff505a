from __future__ import annotations

import math

import torch

from streamgauge.gauge.ledger import Ledger


def test_values_come_back_in_order_and_once() -> None:
    ledger = Ledger()
    ledger.put(0, "loss", -1, torch.tensor(2.5))
    ledger.put(0, "lr", -1, 0.1)
    ledger.put(1, "loss", -1, torch.tensor(math.nan))
    rows = ledger.settle()
    assert rows[:2] == [(0, "loss", -1, 2.5), (0, "lr", -1, 0.1)]
    assert math.isnan(rows[2][3])
    assert ledger.settle() == []


def test_a_value_is_taken_when_it_is_put() -> None:
    ledger, value = Ledger(), torch.tensor(1.0)
    ledger.put(0, "loss", -1, value)
    value.add_(1)
    assert ledger.settle() == [(0, "loss", -1, 1.0)]


def test_on_the_host_nothing_waits_for_a_device() -> None:
    ledger = Ledger()
    ledger.put(0, "loss", -1, torch.tensor(1.0))
    assert ledger.on_host
    ledger.put(0, "loss", -1, torch.tensor(1.0, device="meta"))
    assert not ledger.on_host

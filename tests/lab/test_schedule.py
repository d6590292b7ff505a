from __future__ import annotations

import numpy as np
import pytest

from streamgauge.lab.schedule import warmup_cosine


def test_warmup_is_linear_and_reaches_the_peak() -> None:
    assert [warmup_cosine(t, 100, 4, 0.1) for t in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_no_warmup_starts_at_the_peak() -> None:
    assert warmup_cosine(0, 100, 0, 0.1) == 1.0


def test_cosine_agrees_with_torch() -> None:
    import torch

    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50, eta_min=0.1)
    for t in range(50):
        assert warmup_cosine(t, 50, 0, 0.1) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)
        optimizer.step()
        theirs.step()


def test_falls_to_the_floor_and_stays() -> None:
    values = np.array([warmup_cosine(t, 60, 10, 0.2) for t in range(10, 80)])
    assert (np.diff(values) <= 1e-12).all()
    assert values[50] == pytest.approx(0.2)
    assert values[-1] == pytest.approx(0.2)
    assert values[25] == pytest.approx(0.6), "half way between peak and floor at half time"

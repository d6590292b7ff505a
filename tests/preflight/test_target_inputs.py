"""What a factory gives beside its model is what the check reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgauge.errors import InputError
from streamgauge.preflight.check import check_target

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.ffn = nn.LayerNorm(8), nn.Linear(8, 8)
    def forward(self, alpha, beta, gamma):
        if gamma.dim() != 1:
            raise ValueError("gamma is one axis")
        h = alpha * beta
        return h + self.ffn(self.norm(h)) + 0 * gamma.mean()
def sizes():
    return torch.randn(2, 3, 8), torch.ones(3, 1), torch.ones(5)
def bare():
    return Net()
def positional():
    return Net(), sizes()
def keyword():
    return Net(), dict(zip(("alpha", "beta", "gamma"), sizes()))
"""


@pytest.mark.parametrize("name", ["positional", "keyword"])
def test_inputs_of_a_factory_are_used(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net_with_inputs.py"
    path.write_text(NET, encoding="utf-8")
    with pytest.raises(InputError, match=r"let the factory return \(model, inputs\)"):
        check_target(f"{path}:bare")
    result = check_target(f"{path}:{name}")
    assert len(result.wiring.joins) == 1
    assert not any("guessed" in note for note in result.notes)

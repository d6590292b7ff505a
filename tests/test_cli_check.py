"""`streamgauge check`: forms of output, settings of the project, and the lines of `--fix`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgauge.cli import main

MODEL = """
import torch
from torch import nn

class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(64, 32)
        self.attn = nn.ModuleList(nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(8))
        self.norm = nn.ModuleList(nn.LayerNorm(32) for _ in range(8))
        self.head = nn.Linear(32, 64)
    def forward(self, input_ids):
        x = self.tok(input_ids)
        for n, a in zip(self.norm, self.attn):
            h = n(x)
            x = a(h, h, h, need_weights=False)[0]
        return self.head(x)

def bare():
    torch.manual_seed(0)
    return Bare()

def tied():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, dropout=0.0)
    body = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(32), enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(64, 32), body, nn.Linear(32, 64, bias=False))
    model[2].weight = model[0].weight
    return model
"""


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_check_as_sarif_and_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{put(tmp_path, 'models.py', MODEL)}:bare"
    assert main(["check", target, "--format", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert run["results"][0]["ruleId"] == "W001"
    assert place["region"]["startLine"] == MODEL.split("\n").index("def bare():") + 1
    assert main(["check", target, "--format", "html"]) == 1
    page = capsys.readouterr().out
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "missing-residual" in page


def test_settings_of_the_project_and_flags_over_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = f"{put(tmp_path, 'models.py', MODEL)}:bare"
    put(tmp_path, "pyproject.toml", "[tool.streamgauge]\nignore = ['missing-residual', 'I', 'T']")
    assert main(["check", target]) == 0
    assert main(["check", target, "--ignore", "T"]) == 1
    put(tmp_path, "pyproject.toml", "[tool.streamgauge]\nselect = ['I004']\nthresholds.I004.cut = 2")
    capsys.readouterr()
    assert main(["check", target, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] == ["token-collapse"]
    put(tmp_path, "pyproject.toml", "[tool.streamgauge]\nthresholds.I004.cutt = 2")
    assert main(["check", target]) == 2
    assert "did you mean 'cut'" in capsys.readouterr().err


def test_fix_prints_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "models.py", MODEL)
    assert main(["check", f"{path}:bare", "--fix"]) == 1
    assert "fix: no finding has a remedy" in capsys.readouterr().out
    capsys.readouterr()
    assert main(["check", f"{path}:tied", "--fix", "--select", "embedding-scale"]) == 0
    assert 'sg.fix.apply(model, "embedding-scale")  # I005' in capsys.readouterr().out


SCRIPT = (
    MODEL
    + """
model = tied()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    print("a line of the script", flush=True)
    ids = torch.randint(64, (4, 9))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)


@pytest.mark.slow
def test_what_a_script_prints_stays_out_of_the_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["check", put(tmp_path, "train.py", SCRIPT), "--format", "sarif"])
    captured = capfd.readouterr()
    (run,) = json.loads(captured.out)["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/train.py")
    assert "a line of the script" in captured.err

"""Whole scripts in processes of their own: what a user types, and what comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import streamgauge
from streamgauge.cli import main

SOURCE = str(Path(streamgauge.__file__).parents[1])
MODEL = """
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(16, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 16)
    def forward(self, ids):
        return self.head(self.encoder(self.tok(ids)))
"""
TRAIN = """
import argparse, os, sys
import torch
import torch.nn.functional as F
from model import Net

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--fault", default="")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
print("argv", sys.argv[1:], flush=True)
print("main", __name__, os.path.basename(__file__), os.path.basename(sys.path[0]), flush=True)

class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            if torch.utils.data.get_worker_info() is not None:  # trains in the worker: none of the check's business
                net(torch.zeros(1, 2)).sum().backward()
                optimizer.step()
            yield torch.randint(0, 16, (4, 6))

def main():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    for step, ids in enumerate(torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=args.workers)):
        if step == args.steps:
            break
        if args.fault == "raise" and step == 20:
            raise KeyError("my own fault")
        if args.fault == "early":
            raise KeyError("before any step")
        optimizer.zero_grad()
        loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        print("step", step, flush=True)
        torch.save(net.state_dict(), "model.pt")
    print("trained")

if __name__ == "__main__":
    if args.fault == "swallow":
        try:
            main()
        except BaseException:
            print("swallowed", flush=True)
        main()
    elif args.fault == "never":
        print("nothing to do")
    elif args.fault == "exit":
        main(); sys.exit(7)
    else:
        main()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return "project/train.py"


@pytest.mark.slow
def test_check_of_a_script(script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", script, "--format", "json", "--", "--lr", "0.002"]) == 0
    out, err = capfd.readouterr()
    answer = json.loads(out)
    own = err.splitlines()
    assert own[:3] == ["argv ['--lr', '0.002']", "main __main__ train.py project", "step 0"]
    assert own[-1] == "step 40", "it ends within the 42nd step of the optimizer"
    assert len(answer["wiring"]["joins"]) == 4
    assert answer["facts"]["setup"]["groups"][0]["lr"] == 0.002
    assert any("torch.save(model.pt) x41" in note for note in answer["notes"])
    assert sorted(p.name for p in tmp_path.rglob("*") if "__pycache__" not in p.parts) == [
        "model.py",
        "project",
        "train.py",
    ]


@pytest.mark.slow
def test_workers_of_a_data_loader_are_left_alone(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", script, "--", "--workers", "1"]) == 0
    assert "judged: Net" in capfd.readouterr().out


@pytest.mark.slow
def test_an_exception_of_the_script_stays_visible_and_is_judged(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", script, "--", "--fault", "raise"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("argv ")
    assert "step 19\n" in out
    assert "KeyError: 'my own fault'" in err
    assert "streamgauge" not in err, "the traceback is the script's alone"
    assert "the script raised KeyError" in out
    assert "after 20 steps" in out


@pytest.mark.slow
def test_a_script_that_swallows_the_end_is_ended_all_the_same(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert main(["check", script, "--", "--fault", "swallow"]) == 0
    out = capfd.readouterr().out
    assert "swallowed" in out
    assert out.count("step 0") == 1
    assert "\ntrained\n" not in out
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [("never", "no optimizer step was seen"), ("early", "it raised KeyError")],
    ids=["never", "early"],
)
def test_nothing_to_judge_is_one_line_and_exit_code_2(
    script: str, capfd: pytest.CaptureFixture[str], fault: str, words: str
) -> None:
    assert main(["check", script, "--", "--fault", fault]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("streamgauge")]
    assert len(lines) == 1
    assert words in lines[0]


def test_a_script_that_never_imports_torch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    assert main(["check", str(tmp_path / "hello.py")]) == 2
    out, err = capfd.readouterr()
    assert out == "hello\n"
    assert "without importing torch" in err


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("def train(:\n")
    assert main(["check", str(tmp_path / "broken.py")]) == 2
    err = capfd.readouterr().err
    assert "SyntaxError" in err
    assert "child.py" not in err


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_missing_script(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(tmp_path / "no.py")]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no.py: no such file" in err


def test_arguments_for_what_is_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "gpt2", "--", "--lr", "1"]) == 2
    assert "gpt2 is no script" in capsys.readouterr().err


def test_settings_for_what_is_not_trained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "gpt2", "--lr", "1"]) == 2
    assert "--lr: gpt2 comes without data" in capsys.readouterr().err


def test_a_misspelt_rule_is_told_before_the_script_runs(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", script, "--select", "missing-residul"]) == 2
    out, err = capfd.readouterr()
    assert "missing-residual" in err
    assert "argv" not in out


@pytest.mark.slow
def test_run_watches_to_the_end_and_passes_the_exit_code_on(
    script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["run", script, "--out", "out", "--every", "10", "--", "--steps", "30", "--fault", "exit"])
    assert code == 7
    out = capfd.readouterr().out
    assert "trained" in out
    assert "report: out/report.html" in out
    assert (tmp_path / "model.pt").exists(), "a run may write"
    run = streamgauge.load("out")
    assert run.status == "interrupted"
    assert run.readings("loss").steps.tolist() == list(range(30))
    assert run.readings("stream_rms").steps.tolist() == [0, 10, 20]
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert main(["run", script, "--out", "out"]) == 2
    assert "already holds a run" in capfd.readouterr().err


@pytest.mark.slow
def test_a_run_without_training_stores_nothing(script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", script, "--out", "out", "--", "--fault", "never"]) == 0
    assert "no training step was seen" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "run"])
def test_ctrl_c_goes_to_the_script_and_is_followed_by_the_findings(script: str, tmp_path: Path, command: str) -> None:
    flags = ["--budget", "100000", "--seconds", "1000"] if command == "check" else ["--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge.cli", command, script, *flags, "--", "--steps", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line == "step 20\n":
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the foreground
    out, err = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in err
    assert process.returncode == (0 if command == "check" else 130)
    assert "judged: Net" in out
    assert ("report: " in out) is (command == "run")

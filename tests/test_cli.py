"""The command line: exit codes, and one line for each thing a user can get wrong."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import streamgauge
from streamgauge.cli import compare as compare_command
from streamgauge.cli import main
from streamgauge.errors import InputError
from streamgauge.lab import AXES, Comparison, Config

Make = Callable[[Path], list[str]]

FACTORIES = """
import torch
from torch import nn

class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, x):
        raise RuntimeError("shape mismatch in my layer")

def fails():
    return Fails()

def raises():
    raise KeyError("width")

def nothing():
    return None

def plain():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())

def needs(width):
    return nn.Linear(width, width)

def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(32), enable_nested_tensor=False)

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
"""
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 128, "n_positions": 64}


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def compare(*flags: str) -> Make:
    return lambda d: ["compare", *flags, "--out", str(d / "out")]


def check(name: str, text: str, suffix: str = "", *flags: str) -> Make:
    return lambda d: ["check", put(d, name, text) + suffix, *flags]


def factory(name: str) -> Make:
    return check("models.py", FACTORIES, f":{name}")


def spec(text: str) -> Make:
    return lambda d: ["compare", put(d, "spec.toml", text), "--out", str(d / "out")]


def store(version: int) -> Make:
    def make(d: Path) -> list[str]:
        with sqlite3.connect(d / "run.sqlite") as connection:
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("PRAGMA application_id = 1397183047")
            connection.execute("CREATE TABLE run (key TEXT, value TEXT)")
        connection.close()
        return ["report", str(d)]

    return make


def occupied(d: Path) -> list[str]:
    (d / "out").mkdir()
    put(d / "out", "thesis.txt", "mine")
    return ["compare", "--schemes", "pre", "--steps", "1", "--warmup", "0", "--out", str(d / "out")]


BAD: dict[str, tuple[Make, str]] = {
    "unknown command": (lambda d: ["chek"], "did you mean 'check'"),
    "unknown flag": (lambda d: ["check", "gpt2", "--wirings"], "--wiring"),
    "missing argument": (lambda d: ["check"], "target"),
    "unknown format": (lambda d: ["check", "gpt2", "--format", "xml"], "xml"),
    "unknown preset": (lambda d: ["check", "gtp2"], "gpt2"),
    "missing config": (lambda d: ["check", str(d / "config.json")], "config.json"),
    "empty folder": (lambda d: ["check", str(d)], "config.json"),
    "broken JSON": (check("config.json", "{"), "config.json"),
    "JSON list": (check("config.json", "[1]"), "config.json"),
    "no model type": (check("config.json", "{}"), "model_type"),
    "unknown model type": (check("config.json", '{"model_type": "gtp2"}'), "gtp2"),
    "wrong field type": (check("config.json", json.dumps({**GPT2, "n_layer": "three"})), "config.json"),
    "impossible heads": (check("config.json", json.dumps({**GPT2, "n_head": 5})), "config.json"),
    "missing file of a factory": (lambda d: ["check", str(d / "no.py") + ":build"], "no.py"),
    "missing module": (lambda d: ["check", "no_such_package.models:build"], "no_such_package"),
    "missing factory": (factory("encodr"), "encodr"),
    "factory raises": (factory("raises"), "width"),
    "factory needs arguments": (factory("needs"), "width"),
    "factory makes no model": (factory("nothing"), "NoneType"),
    "forward fails": (factory("fails"), "shape mismatch in my layer"),
    "file with a syntax error": (check("models.py", "def build(:\n", ":build"), "models.py"),
    "unknown rule": (lambda d: ["check", "gpt2", "--select", "missing-residul"], "missing-residual"),
    "fix as JSON": (lambda d: ["check", "gpt2", "--fix", "--format", "json"], "--fix"),
    "unknown scheme": (compare("--schemes", "prre"), "did you mean 'pre'"),
    "unknown norm": (compare("--norms", "layernrm"), "layernorm"),
    "unknown init": (compare("--inits", "xavir"), "xavier"),
    "illegal pair": (compare("--schemes", "b2t", "--norms", "none"), "needs its norms"),
    "depth 0": (compare("--depths", "0"), "depth"),
    "heads that do not divide the width": (compare("--width", "64", "--heads", "5"), "heads"),
    "no number": (compare("--lrs", "fast"), "--lrs"),
    "no integer": (compare("--steps", "x"), "--steps"),
    "negative learning rate": (compare("--lrs", "-0.1"), "lr"),
    "no steps": (compare("--steps", "0"), "steps"),
    "warm-up beyond the end": (compare("--steps", "10", "--warmup", "10"), "warmup"),
    "no workers": (compare("--workers", "0"), "workers"),
    "value twice": (compare("--schemes", "pre,pre"), "pre"),
    "unknown comparison preset": (compare("--preset", "first-lite"), "first-light"),
    "missing text": (compare("--data", "no-such.txt"), "no-such.txt"),
    "empty text": (lambda d: ["compare", "--data", put(d, "e.txt", ""), "--out", str(d / "out")], "e.txt"),
    "short text": (lambda d: ["compare", "--data", put(d, "s.txt", "abc"), "--out", str(d / "out")], "short"),
    "missing spec": (lambda d: ["compare", str(d / "no.toml"), "--out", str(d / "out")], "no.toml"),
    "broken TOML": (spec("schemes = ["), "spec.toml"),
    "unknown TOML key": (spec('scheems = ["pre"]'), "did you mean 'schemes'"),
    "wrong TOML type": (spec("depth = 'deep'"), "depth"),
    "occupied folder": (occupied, "not empty"),
    "no out": (lambda d: ["compare", "--schemes", "pre"], "--out"),
    "report of nothing": (lambda d: ["report", str(d / "no")], "no"),
    "report of an empty folder": (lambda d: ["report", str(d)], "run.sqlite"),
    "report of another file": (lambda d: ["report", put(d, "run.sqlite", "not a database" * 100)], "run.sqlite"),
    "report of an empty store": (lambda d: ["report", put(d, "run.sqlite", "")], "empty"),
    "report of a newer store": (store(99), "99"),
    "report of a broken comparison": (lambda d: ["report", str(Path(put(d, "comparison.json", "{")).parent)], "json"),
    "no schemes": (compare("--schemes", ","), "--schemes: ',' is an empty list"),
    "no norms": (compare("--norms", ""), "--norms: '' is an empty list"),
    "no inits": (compare("--inits", " , "), "--inits"),
    "no depths": (compare("--depths", ","), "--depths"),
    "no rates": (compare("--lrs", ""), "--lrs"),
    "no seeds": (compare("--seeds", ""), "--seeds"),
    "no data": (compare("--data", ""), "--data"),
    "out of nothing": (lambda d: ["compare", "--out", ""], "an empty path"),
    "report of an empty name": (lambda d: ["report", ""], "an empty path"),
    "report to an empty name": (lambda d: ["report", str(d), "--out", ""], "an empty path"),
    "spec of an empty name": (lambda d: ["compare", "", "--out", str(d / "out")], "an empty path"),
    "check of an empty name": (lambda d: ["check", ""], "an empty target"),
    "run of an empty name": (lambda d: ["run", ""], "an empty name"),
    "select nothing": (lambda d: ["check", "gpt2", "--select", ""], "--select: '' is an empty list"),
    "ignore nothing": (lambda d: ["check", "gpt2", "--ignore", ","], "--ignore: ',' is an empty list"),
    "run selects nothing": (lambda d: ["run", "train.py", "--select", ""], "--select"),
    "a target that is not UTF-8": (lambda d: ["check", "gp\udcff"], "udcff"),
    "a scheme that is not UTF-8": (compare("--schemes", "pr\udcff"), "udcff"),
    "a folder that is not UTF-8": (lambda d: ["report", "no\udcff"], "udcff"),
    "explain nothing known": (lambda d: ["explain", "W999"], "W999"),
    "unknown scheme to describe": (lambda d: ["schemes", "b2tt"], "did you mean 'b2t'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, names = BAD[name]
    arguments = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.err.startswith("streamgauge: error: "), captured.err
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    assert names in captured.err
    assert captured.out == ""
    after = [p for p in sorted(tmp_path.rglob("*")) if "__pycache__" not in p.parts]
    assert after == before, "a command that cannot run writes nothing"


def test_a_gpt2_config_file_is_read_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", put(tmp_path, "config.json", json.dumps(GPT2))]) == 0
    out = capsys.readouterr().out
    assert "6 joins (6 pre), with final norm" in out
    assert "stream_rms" in out
    assert "no findings" in out


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", put(tmp_path, "config.json", json.dumps(GPT2)), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["wiring"]["joins"]) == 6
    assert answer["findings"] == []
    assert answer["readings"]["stream_rms"]["steps"] == [0]


def test_a_factory_is_read_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "models.py", FACTORIES)
    assert main(["check", f"{path}:encoder"]) == 0
    assert "8 joins (8 pre), with final norm" in capsys.readouterr().out


def test_an_importable_factory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "our_models.py", FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "our_models:encoder"]) == 0
    assert "8 joins" in capsys.readouterr().out


def test_an_error_finding_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "models.py", FACTORIES)
    assert main(["check", f"{path}:bare"]) == 1
    out = capsys.readouterr().out
    assert "missing-residual" in out
    assert main(["check", f"{path}:bare", "--ignore", "missing-residual,I,T"]) == 0


def test_only_the_wiring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "models.py", FACTORIES)
    assert main(["check", f"{path}:bare", "--wiring"]) == 0
    assert "missing-residual" not in capsys.readouterr().out


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert "W001" in capsys.readouterr().out
    assert main(["explain", "w001"]) == 0
    assert "How to fix" in capsys.readouterr().out
    assert main(["schemes"]) == 0
    assert "x + f(N(x))" in capsys.readouterr().out
    assert main(["schemes", "b2t"]) == 0
    assert "2206.00330" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["check"], ["compare"], ["report"], ["explain"], ["schemes"]])
def test_help_teaches(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_every_setting_of_a_comparison_has_a_flag() -> None:
    """`Comparison.command` prints a flag per axis and field; each must be one that the command knows."""
    known = set(inspect.signature(compare_command).parameters)
    assert known >= set(AXES)
    assert known >= {field.name for field in dataclasses.fields(Config)} - set(AXES.values())


def test_a_printed_command_remakes_its_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Comparison.of(schemes=("none", "pre"), lrs=(1e-3, 3e-4), depth=2, width=16, heads=2, beta2=0.999, eps=1e-6)
    seen: list[Comparison] = []

    def record(comparison: Comparison, *args: object, **kwargs: object) -> Path:
        seen.append(comparison)
        raise InputError("stop here")

    monkeypatch.setattr("streamgauge.lab.compare", record)
    assert main(shlex.split(spec.command(tmp_path / "out"))[1:]) == 2
    assert seen == [spec]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"streamgauge {streamgauge.__version__}\n"

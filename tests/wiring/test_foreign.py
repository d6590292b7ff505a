"""Code of others: whatever it raises, prints or leaves out, there is one line, and no silent end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge.errors import InputError, closest
from streamgauge.wiring import guess_inputs, load_model, read_wiring

D = 8
EXITS = ["sys.exit()", "sys.exit(0)", "sys.exit('bye\\nbye')", "raise SystemExit", "raise GeneratorExit", "quit_(0)"]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has its own `mine` and its own path to import from."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("mine", None)


def line(call: Any, *args: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*args)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 1200
    return text


def code(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text("import sys\nfrom torch import nn\nquit_ = sys.exit\n" + text, encoding="utf-8")
    return f"{folder / name}:make"


@pytest.mark.parametrize("ends", EXITS)
@pytest.mark.parametrize("where", ["def make(): {}", "{}", "class M:\n  make = property(lambda s: quit_(0))\nM().make"])
def test_leaving_the_process_is_an_error(tmp_path: Path, ends: str, where: str) -> None:
    assert "instead of returning a model" in line(load_model, code(tmp_path, where.format(ends)))
    assert ("mine" in sys.modules) == where.startswith("def")


def test_the_code_of_the_exit_is_told(tmp_path: Path) -> None:
    target = code(tmp_path, "def make(): sys.exit(0)")
    assert line(load_model, target) == (
        f"{target}: make ended the process with sys.exit(0) instead of returning a model"
    )


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.ffn = error, nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    "error", [SystemExit(), SystemExit(0), SystemExit("a\nb"), GeneratorExit(), BaseException("x")]
)
def test_leaving_the_process_in_a_forward(error: BaseException) -> None:
    model = Raises(error)
    for call in (lambda: read_wiring(model, torch.ones(2, D)), lambda: read_wiring(model), lambda: guess_inputs(model)):
        assert "the forward of Raises" in line(call)


def test_ctrl_c_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_model(code(tmp_path, "def make(): raise KeyboardInterrupt"))
    for call in (guess_inputs, read_wiring):
        with pytest.raises(KeyboardInterrupt):
            call(Raises(KeyboardInterrupt()))


SIBLING = """
import {sibling}
def make():
    import {sibling}.late
    return {sibling}.late.build()
"""
BUILDS = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ffn = nn.Linear(8, 8)
    def forward(self, x):
        import {sibling}_inner
        return x + self.ffn(x)
def build():
    return Net()
"""


@pytest.mark.parametrize("by", ["file", "relative file", "module"])
def test_siblings_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    sibling = "sib_" + by.replace(" ", "_")
    (tmp_path / sibling).mkdir()
    (tmp_path / sibling / "__init__.py").touch()
    (tmp_path / sibling / "late.py").write_text(BUILDS.format(sibling=sibling), encoding="utf-8")
    (tmp_path / f"{sibling}_inner.py").touch()
    file = tmp_path / f"{sibling}_main.py"
    file.write_text(SIBLING.format(sibling=sibling), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != ""])
    if by != "file":
        monkeypatch.chdir(tmp_path)
    target = {"file": f"{file}:make", "relative file": f"{file.name}:make", "module": f"{file.stem}:make"}[by]
    assert len(read_wiring(load_model(target).model, torch.ones(2, D)).joins) == 1


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("torch.ones(2, 8)", tuple),
        ("(torch.ones(2, 8),)", tuple),
        ("{'input': torch.ones(2, 8)}", dict),
        ("'tokenizer'", None),
        ("{'lr': 1}", None),
        ("[torch.ones(2, 8)]", None),
    ],
)
def test_a_factory_may_give_inputs(tmp_path: Path, made: str, kind: type | None) -> None:
    target = code(tmp_path, f"import torch\ndef make(): return nn.Sequential(nn.Linear(8, 8)), {made}")
    source = load_model(target)
    assert type(source.inputs) is (kind or type(None))
    assert bool(source.notes) == (kind is None)
    if isinstance(source.inputs, dict):
        read_wiring(source.model, **source.inputs)
    elif source.inputs:
        read_wiring(source.model, *source.inputs)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("async def make(): return nn.Linear(2, 2)", "is async"),
        ("def make(): yield nn.Linear(2, 2)", "gave generator"),
        ("class make(nn.Module):\n  def __init__(self): self.x = 1", "call super().__init__() first"),
        ("class make(nn.Module):\n  def __init__(self): self.x = nn.Linear(2, 2)", "before Module.__init__() call"),
        ("import torch\ndef make(): return torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))", "scripted or traced"),
        ("import torch\ndef make(): return torch.jit.script(nn.Linear(2, 2))", "scripted or traced"),
        (
            "import torch\ndef make(): return nn.Sequential(torch.jit.script(nn.Linear(2, 2)))",
            "holds a scripted module",
        ),
        ("def __getattr__(n): raise ValueError(n)", "make cannot be had (ValueError: make)"),
        ("def make(): raise ValueError('a\\nb\\x1b[1m')", "ValueError: a b\\x1b[1m"),
        ("def make(): return make()", "RecursionError"),
        ("import no_such_sibling", "no module 'no_such_sibling'"),
        ("def make(:", "SyntaxError"),
    ],
)
def test_factories_that_give_no_usable_model(tmp_path: Path, text: str, said: str) -> None:
    assert said in line(load_model, code(tmp_path, text))


class Touchy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ffn = nn.Linear(D, D)

    @property
    def config(self) -> Any:
        raise RuntimeError("not yet")

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(x)


def test_a_property_that_raises() -> None:
    assert "RuntimeError: not yet" in line(guess_inputs, Touchy())
    assert "RuntimeError: not yet" in line(read_wiring, Touchy())
    assert len(read_wiring(Touchy(), torch.ones(2, D)).joins) == 1


def test_what_foreign_code_prints_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "print('import')\nclass make(nn.Linear):\n  def __init__(self): super().__init__(8, 8); print('init')\n"
    guess_inputs(load_model(code(tmp_path, text + "  def forward(self, x): print('run'); return x")).model)
    out, err = capsys.readouterr()
    assert out == ""
    assert [word in err for word in ("import", "init", "run")] == [True] * 3


# -- targets that are no plain config ---------------------------------------------------------------------------------

BERT = {"model_type": "bert", "vocab_size": 8, "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 200_000 + "]" * 200_000, "nested too deep"),
        ('{"model_type": ' + "9" * 6000 + "}", "cannot be read"),
        ("\udcff", "cannot be read"),
        (" " * 10_000_001, "more than 10 MB"),
        (json.dumps({**BERT, "num_hidden_layers": 1_000_000}), "num_hidden_layers = 1000000; at most 5000"),
        (json.dumps({"model_type": "gpt2", "n_layer": 10**3000}), "n_layer = more than 10^12"),
        (json.dumps({"model_type": "t5", "part": {"num_decoder_layers": 10**6}}), "at most 5000 layers"),
        (json.dumps({"model_type": ""}), "more"),
        (json.dumps({"model_type": "\n" + "q" * 9000}), "unknown model_type"),
    ],
    ids=["deep", "digits", "bytes", "large", "layers", "n_layer", "inner", "empty", "long"],
)
def test_configs_that_would_hang_or_crash(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert said in line(load_model, str(path))


@pytest.mark.parametrize("names", [[3], [None], 7, "x", {}, [[]], ["os"], ["nn.Linear"]])
def test_odd_architectures(tmp_path: Path, names: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BERT, "architectures": names}), encoding="utf-8")
    assert type(load_model(str(path)).model).__name__ == "BertLMHeadModel"


@pytest.mark.parametrize("name", ["a\0b", "a\0b.json", "a\0b.py:make", "x" * 5000, "x" * 5000 + ".json"])
def test_names_that_are_no_path(name: str) -> None:
    assert line(load_model, name)
    assert line(load_model, "x" * 5000 + ".py:make")


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    os.mkfifo(tmp_path / "mine.py")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("", "config.json", "zero.json", "mine.py:make"):
        assert "not a regular file" in line(load_model, str(tmp_path / name))


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    Path(path).write_text(json.dumps(BERT), encoding="utf-8")
    assert load_model(path).description.encode("utf-8").endswith(b"\\udcff.json")


def test_a_config_is_built_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BERT, "vocab_size": 0, "pad_token_id": None, "odd": 1}), encoding="utf-8")
    load_model(path, largest=10**6)
    assert capfd.readouterr() == ("", "")


def test_a_hint_lists_a_dozen_names() -> None:
    assert closest("zzz", [f"name{i:03}" for i in range(400)]).endswith("name011 and 388 more")
    assert len(closest("z" * 10**6, ["a"])) < 20


# -- wrapped models ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_inputs_of_a_wrapped_model() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, D)

        def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
            return self.embed(tokens) * scale

    for wrap in (torch.compile, nn.DataParallel, lambda m: torch.compile(nn.DataParallel(m))):
        assert list(guess_inputs(wrap(Two()))[1]) == ["tokens"]

"""Targets of the command line: presets, configs, checkpoint folders, factories; and inputs that are guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.wiring import PRESETS, guess_inputs, load_model, read_wiring

TINY = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "rms_norm_eps": 3e-6,
}


def write(folder: Path, config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


def test_a_config_file_and_a_checkpoint_folder(tmp_path: Path) -> None:
    path = write(tmp_path, TINY)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    for target in (str(path), str(tmp_path)):
        source = load_model(target)
        assert all(p.is_meta for p in source.model.parameters())
        wiring = read_wiring(source.model)
        assert wiring.placements == {"pre": 4}
        assert wiring.joins[0].eps == 3e-6
        assert wiring.notes == ("inputs guessed: input_ids ids [2, 8]",)
    assert not any(p.is_meta for p in load_model(str(path), largest=10**6).model.parameters())


def test_the_architecture_that_a_config_names_is_built(tmp_path: Path) -> None:
    path = write(tmp_path, {**TINY, "architectures": ["LlamaForSequenceClassification"], "pad_token_id": 0})
    assert type(load_model(str(path)).model).__name__ == "LlamaForSequenceClassification"


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("{", "not JSON at line 1"),
        ("[1]", "no field 'model_type'"),
        ({"vocab_size": 3}, "no field 'model_type'"),
        ({"model_type": "lama"}, "unknown model_type 'lama'; did you mean 'llama'?"),
        ({"model_type": "own", "auto_map": {"AutoModel": "code.py"}}, "its own code (auto_map) is not run"),
        ({**TINY, "num_attention_heads": 0}, "not a valid llama config"),
        ({**TINY, "hidden_size": "wide"}, "llama"),
    ],
)
def test_unusable_configs_give_one_line(tmp_path: Path, config: Any, line: str) -> None:
    path = write(tmp_path, config)
    with pytest.raises(InputError) as caught:
        load_model(str(path))
    assert str(path) in str(caught.value)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("gpt", "unknown target 'gpt'"),
        ("llama-3-8", "did you mean 'llama-3-8b'?"),
        ("missing/config.json", "no such file"),
        ("no_such_module:make", "no module 'no_such_module'"),
        ("math:sqroot", "did you mean 'sqrt'?"),
        ("math:sqrt", "it must take no arguments"),
        ("math:pi", "neither a module nor a callable"),
        ("platform:node", "must return a torch.nn.Module"),
        ("missing.py:make", "no such file missing.py"),
    ],
)
def test_unusable_targets_give_one_line(target: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model(target)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no config\.json"):
        load_model(str(tmp_path))


FACTORY = """
import torch
from torch import nn
def make():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False)
def pair():
    return make(), "tokenizer"
def broken():
    raise RuntimeError("no luck")
model = make()
"""


def test_factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in (f"{tmp_path}/mine.py:make", f"{tmp_path}/mine.py:model", "mine:make", "mine:pair"):
        assert read_wiring(load_model(target).model).placements == {"post": 4}
    with pytest.raises(InputError, match=r"broken\(\) failed \(RuntimeError: no luck\)"):
        load_model(f"{tmp_path}/mine.py:broken")


def test_presets_are_valid_configs() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for kind, kwargs in PRESETS.values():
        config = CONFIG_MAPPING[kind].from_dict(dict(kwargs))
        assert all(getattr(config, name) == value for name, value in kwargs.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert-base", "t5-small", "vit-base"])
def test_presets_are_read(name: str) -> None:
    source = load_model(name)
    wiring = read_wiring(source.model)
    kind, kwargs = PRESETS[name]
    layers = kwargs.get("n_layer") or kwargs.get("num_hidden_layers") or kwargs["num_layers"]
    assert len(wiring.joins) == layers * (5 if kind == "t5" else 2)
    assert set(wiring.placements) == {"post" if kind == "bert" else "pre"}


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_inputs_by_the_first_layer() -> None:
    for model, shape in (
        (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4)), (2, 8)),
        (nn.Sequential(nn.Linear(5, 4)), (2, 8, 5)),
        (nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), nn.LazyLinear(3)), (2, 3, 32, 32)),
        (nn.Sequential(nn.LayerNorm(7)), (2, 8, 7)),
        (nn.Sequential(nn.Conv1d(2, 4, 3)), (2, 2, 64)),
    ):
        args, kwargs, notes = guess_inputs(model)
        assert args == ()
        assert [tuple(v.shape) for v in kwargs.values()] == [shape]
        assert notes[0].startswith("inputs guessed: input ")


def test_keyword_inputs_and_two_inputs() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)

        def forward(self, *, tokens: Tensor, scale: float = 1.0) -> Tensor:
            return self.embed(tokens) * scale

    assert list(guess_inputs(Keyword())[1]) == ["tokens"]
    both = guess_inputs(nn.Transformer(16, 2, 1, 1, 32, batch_first=True))[1]
    assert {name: tuple(value.shape) for name, value in both.items()} == {"src": (2, 8, 16), "tgt": (2, 8, 16)}


def test_guessing_leaves_the_random_state() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5)).train()
    before = torch.get_rng_state()
    guess_inputs(model)
    assert torch.equal(torch.get_rng_state(), before)

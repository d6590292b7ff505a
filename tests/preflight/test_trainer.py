from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import streamgauge as sg

pytestmark = pytest.mark.filterwarnings("ignore")


class Forbidden(transformers.TrainerCallback):
    """A rehearsal is no run: no event of a run may be told."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a callback fired")

    on_step_end = on_save = on_log = on_train_begin


def trainer(folder: Path, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=13, n_layer=2, n_embd=16, n_head=2, n_positions=12)
    model = transformers.GPT2LMHeadModel(config)
    rows = [(3 * torch.arange(12) + i) % 13 for i in range(40)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=4,
        learning_rate=5e-3,
        report_to=[],
        use_cpu=True,
        max_steps=40,
        warmup_steps=10,
        **settings,
    )
    return transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Forbidden()])


def test_a_trainer_brings_everything(tmp_path: Path) -> None:
    made = trainer(tmp_path, gradient_accumulation_steps=2, max_grad_norm=0.7)
    before = copy.deepcopy(made.model.state_dict())
    random = torch.get_rng_state()
    made.model.eval()
    result = sg.check(made)
    assert result.target == "Trainer of GPT2LMHeadModel"
    assert result.facts["setup"].name == "AdamW"
    assert result.facts["setup"].groups[0].peak_lr == pytest.approx(5e-3)
    assert (result.facts["schedule"].warmup_steps, result.facts["schedule"].total_steps) == (10, 40)
    assert (result.facts["handling"].clip, result.facts["handling"].accumulate) == (0.7, 2)
    assert (result.facts["vocab"], result.facts["causal_lm"]) == (13, True)
    loss = result.readings["loss"].values[:, 0]
    assert loss[-1] < loss[0] - 0.3
    assert [f for f in result.findings if f.severity != "info"] == []
    assert made.optimizer is None
    assert made.lr_scheduler is None
    assert not made.model.training
    assert all(torch.equal(v, before[k]) for k, v in made.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_the_same_trainer_trains_afterwards_as_if_unchecked(tmp_path: Path) -> None:
    def losses(checked: bool) -> list[float]:
        made = trainer(tmp_path, logging_steps=1, save_strategy="no")
        made.remove_callback(Forbidden)
        if checked:
            sg.check(made, budget=20)
        made.train()
        return [entry["loss"] for entry in made.state.log_history if "loss" in entry]

    assert losses(False) == losses(True)


def test_a_trainer_without_data_is_told(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.train_dataset = None
    with pytest.raises(sg.InputError, match="no train_dataset"):
        sg.check(made)

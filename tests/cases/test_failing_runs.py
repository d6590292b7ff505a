"""Runs that fail for a known reason, each with its healthy twin: the cause comes first, and the twin is left alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import streamgauge as sg

FOLDER = Path(__file__).with_name("failing_runs")

ACCEPTED = {
    "01_missing_residual": ("missing-residual",),
    "03_postln_deep_nowarmup": ("deep-post-norm", "post-norm-without-warmup", "lr-too-high"),
    "05_missing_final_norm": ("missing-final-norm",),
    "06_layernorm_eps_fp16": ("eps-underflow",),
    "09_fully_masked_row_nan": ("fully-masked-row",),
    "10_tied_embedding_std1": ("embedding-scale", "initial-loss"),
    "14_residual_from_normed": ("residual-from-normed",),
    "15_warmup_stepped_per_epoch": ("warmup-too-slow",),
    "16_layernorm_over_sequence": ("norm-axis", "target-leak"),
    "18_fp16_activation_overflow": ("half-overflow",),
    "20_double_zero_init": ("dead-parameters",),
    "23_norm_flag_not_forwarded": ("norm-flag-ignored", "doubled-final-norm", "deep-post-norm"),
}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"failing_run_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alarms(name: str, *, faulty: bool) -> list[str]:
    """The names of the findings at level warning or above, root cause first."""
    module = load(name)
    module.FAULTY = faulty
    model, optimizer, loss_fn, batches = module.build()
    result = sg.check(model, loss_fn, batches, optimizer)
    return [finding.name for finding in result.findings if finding.severity != "info"]


def test_every_file_is_in_the_table():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(ACCEPTED)


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_cause_comes_first(name):
    found = alarms(name, faulty=True)
    assert found[:1]
    assert found[0] in ACCEPTED[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_healthy_twin_is_left_alone(name):
    assert alarms(name, faulty=False) == []

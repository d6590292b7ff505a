"""The runs that fail for a known reason, as plain training loops under the hooks: the cause first, twins clean."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from streamgauge.preflight.script import evidence_of
from streamgauge.preflight.script.job import Seen
from streamgauge.rules import examine

FOLDER = Path(__file__).parents[2] / "cases" / "failing_runs"
ACCEPTED = {
    "01_missing_residual": {"missing-residual"},
    "03_postln_deep_nowarmup": {"deep-post-norm", "post-norm-without-warmup", "lr-too-high"},
    "05_missing_final_norm": {"missing-final-norm"},
    "06_layernorm_eps_fp16": {"eps-underflow"},
    "09_fully_masked_row_nan": {"fully-masked-row"},
    "10_tied_embedding_std1": {"embedding-scale", "initial-loss"},
    "14_residual_from_normed": {"residual-from-normed"},
    "15_warmup_stepped_per_epoch": {"warmup-too-slow"},
    "16_layernorm_over_sequence": {"norm-axis", "target-leak"},
    "18_fp16_activation_overflow": {"half-overflow"},
    "20_double_zero_init": {"dead-parameters"},
    "23_norm_flag_not_forwarded": {"norm-flag-ignored", "doubled-final-norm", "deep-post-norm"},
}
"""File -> names of which one has to come first, from the README of the cases."""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"case_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(name: str, faulty: bool) -> Callable[[], None]:
    """The loop that the file itself runs."""

    def loop() -> None:
        case = load(name)
        case.FAULTY = faulty
        _, optimizer, loss_fn, batches = case.build()
        for _ in range(case.STEPS):
            loss = loss_fn(next(batches))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return loop


def serious(seen: Seen) -> list[str]:
    return [f.name for f in examine(evidence_of(seen)).findings if f.severity != "info"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ACCEPTED)
def test_the_cause_comes_first(name: str, rehearse: Callable[..., Seen]) -> None:
    found = serious(rehearse(trained(name, faulty=True)))
    assert found[:1], "nothing at level warning or above"
    assert found[0] in ACCEPTED[name], found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ACCEPTED)
def test_the_healthy_twin_is_clean(name: str, rehearse: Callable[..., Seen]) -> None:
    assert serious(rehearse(trained(name, faulty=False))) == []


def test_every_case_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(ACCEPTED)

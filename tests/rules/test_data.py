"""Rules on masks: real batches with an empty sequence, real models that see the future."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from streamgauge.preflight import probes
from streamgauge.preflight.objective import Inputs
from streamgauge.preflight.origin import trace_origin
from streamgauge.rules import RULES, Evidence
from streamgauge.vocabulary import NotAssessed, Probe

HERE = Path(__file__).parent


def module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


small = module(HERE / "small.py")
MASKED = module(HERE.parent / "cases" / "failing_runs" / "09_fully_masked_row_nan.py")


@pytest.mark.parametrize(("faulty", "severity"), [(True, "error"), (False, None)])
def test_fully_masked_row_of_a_real_batch(faulty, severity):
    MASKED.FAULTY = faulty
    model, _, loss_fn, batches = MASKED.build()
    twentieth = next(itertools.islice(batches, 20, None))
    origin = trace_origin(model, lambda: loss_fn(twentieth), step=20)
    assert (origin is not None) == faulty
    if origin is not None:
        (finding,) = RULES["fully-masked-row"](Evidence(facts={"origin": origin}))
        assert finding.severity == severity
        assert finding.place == "blocks.0"
        assert finding.evidence["batch"].value == 20
        assert finding.evidence["masked_rows"].value == MASKED.T


def test_another_nan_is_no_masked_row():
    model = nn.Linear(4, 4)
    origin = trace_origin(model, lambda: (model(torch.zeros(2, 4)) * 0 / torch.zeros(2, 4)).sum())
    assert RULES["fully-masked-row"](Evidence(facts={"origin": origin})) == ()


class Leaky(nn.Module):
    """A causal decoder, or one whose norm takes its statistics over the tokens as well."""

    def __init__(self, over_tokens: bool) -> None:
        super().__init__()
        self.inner, self.over_tokens = small.decoder(depth=1), over_tokens
        self.tok, self.head = nn.Embedding(small.VOCAB, 16), nn.Linear(16, small.VOCAB)

    def forward(self, ids):
        x = self.tok(ids)
        x = F.layer_norm(x, x.shape[1:] if self.over_tokens else x.shape[-1:])
        return self.head(x) + self.inner(ids)


@pytest.mark.parametrize(("over_tokens", "severity"), [(True, "error"), (False, None)])
def test_target_leak_of_a_real_norm(over_tokens, severity):
    ids = small.batch(0)[:, :-1]
    probe = probes.future(Leaky(over_tokens), Inputs((ids,), {}), ids)
    finding = small.found("target-leak", Evidence(facts={"probes": (probe,), "causal_lm": True}))
    assert (finding and finding.severity) == severity


def test_target_leak_needs_to_know_the_task():
    facts = {"probes": (Probe("future", 1.0, 0.0),)}
    answer = RULES["target-leak"](Evidence(facts=facts))
    assert isinstance(answer, NotAssessed)
    assert "next tokens" in answer.reason
    answer = RULES["target-leak"](Evidence(facts={"probes": (Probe("input", 1.0),), "causal_lm": True}))
    assert isinstance(answer, NotAssessed)


def test_dropout_noise_is_no_leak():
    assert (
        small.found("target-leak", Evidence(facts={"probes": (Probe("future", 0.2, 0.1),), "causal_lm": True})) is None
    )

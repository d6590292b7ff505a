from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs

from streamgauge.errors import InputError
from streamgauge.preflight import gather

CHAIN = {
    "lambda": lambda o: lrs.LambdaLR(o, lambda s: min(1.0, (s + 1) / 20)),
    "cosine": lambda o: lrs.CosineAnnealingLR(o, 50),
    "onecycle": lambda o: lrs.OneCycleLR(o, 3e-3, total_steps=40),
    "linear": lambda o: lrs.LinearLR(o, 0.1, total_iters=10),
    "sequential": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, total_iters=10), lrs.CosineAnnealingLR(o, 50)], [10]
    ),
    "chained": lambda o: lrs.ChainedScheduler([lrs.LinearLR(o, 0.1, total_iters=10), lrs.ExponentialLR(o, 0.9)]),
    "restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 10),
}


def adamw(model: nn.Module, **more: object) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **more)


@pytest.mark.parametrize("name", CHAIN)
def test_rates_read_ahead_are_those_the_scheduler_then_gives(name: str) -> None:
    optimizer = adamw(nn.Linear(2, 2))
    scheduler = CHAIN[name](optimizer)
    state, lr = str(scheduler.state_dict()), optimizer.param_groups[0]["lr"]
    ahead = gather.rates(scheduler, 40)
    assert str(scheduler.state_dict()) == state
    assert optimizer.param_groups[0]["lr"] == lr
    real = []
    for _ in range(40):
        real.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(real) < 40:
            scheduler.step()
    assert ahead is not None
    assert ahead[0] == pytest.approx(real, rel=1e-12)


def test_a_schedule_under_way_that_has_a_closed_form_is_read_from_its_start() -> None:
    optimizer = adamw(nn.Linear(2, 2))
    scheduler = lrs.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
    fresh = gather.schedule(scheduler)
    for _ in range(7):
        optimizer.step()
        scheduler.step()
    assert gather.schedule(scheduler) == fresh
    assert fresh.warmup_steps == 19
    assert fresh.planned[:2] == pytest.approx((0.05, 0.1))


def test_noam_is_scaled_to_its_peak() -> None:
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters(), lr=1.0)
    scheduler = lrs.LambdaLR(optimizer, lambda s: 512**-0.5 * min((s + 1) ** -0.5, (s + 1) * 400**-1.5))
    read = gather.schedule(scheduler)
    assert read.warmup_steps == 399
    assert max(read.planned) == 1.0
    (peak,) = gather.peaks(gather.rates(scheduler)) or ()
    assert peak == pytest.approx(512**-0.5 * 400**-0.5)
    assert gather.setup(optimizer, peaks=(peak,)).groups[0].peak_lr == pytest.approx(peak)


def test_what_is_told_wins_and_what_is_unknown_stays_unknown() -> None:
    told = gather.schedule(warmup=10, steps=100)
    assert (told.name, told.warmup_steps, told.total_steps) == ("given", 10, 100)
    assert told.planned[:2] == (0.1, 0.2)
    assert told.planned[9:12] == (1.0, 1.0, 1.0)
    assert gather.schedule() == gather.schedule(None)
    assert gather.schedule().name is None
    plateau = gather.schedule(lrs.ReduceLROnPlateau(adamw(nn.Linear(2, 2))))
    assert (plateau.name, plateau.planned) == ("ReduceLROnPlateau", ())
    assert gather.schedule(lambda t: 2.0 * min(1.0, t / 5)).planned[5] == 1.0


def test_setup_names_parameters_and_constants() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "weight_decay": 0.0, "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    read = gather.setup(optimizer, model)
    assert (read.name, read.beta1, read.beta2, read.eps) == ("AdamW", 0.8, 0.95, 1e-6)
    assert read.groups[0].paths == ("0.weight", "0.bias")
    assert [(g.lr, g.weight_decay) for g in read.groups] == [(1e-3, 0.1), (0.5, 0.0)]
    assert read.steps_taken == 0
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert gather.setup(optimizer, model).steps_taken == 1
    assert gather.setup(optimizer).groups[1].paths == ("1.0", "1.1")
    assert gather.setup(torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)).momentum == 0.9


def test_parameters_tell_no_gradient_from_a_zero_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    (model[0](torch.ones(2, 3)) * 0).sum().backward()
    read = {p.path: p for p in gather.parameters(model)}
    assert read["0.weight"].shared_with == ("1.weight",)
    assert read["0.weight"].grad_rms == 0.0
    assert read["0.bias"].largest_grad == 0.0
    assert read["2.weight"].grad_rms is None
    assert read["0.weight"].owner == "Linear"
    want = float(model[0].weight.detach().square().mean().sqrt())
    assert read["0.weight"].rms == pytest.approx(want, rel=1e-6)
    given = {"0.weight": torch.full((3, 3), 1e-30)}
    assert {p.path: p for p in gather.parameters(model, given)}["0.weight"].grad_rms == pytest.approx(1e-30)


def test_meta_parameters_have_no_values() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    assert all(p.rms is None and p.grad_rms is None for p in gather.parameters(model))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("normalize_before", True, True),
        ("norm_first", False, True),
        ("pre_norm", True, True),
        ("use_pre_ln", False, True),
        ("do_layer_norm_before", True, True),
        ("apply_residual_connection_post_layernorm", False, True),
        ("encoder_normalize_before", True, True),
        ("layernorm_positioning", "pre", True),
        ("norm_position", "post_ln", True),
        ("norm_position", "rms", False),
        ("norm", True, False),
        ("batch_first", True, False),
        ("normalize", True, False),
        ("norm_first", None, False),
        ("post_norm", 3, False),
    ],
)
def test_flags_are_found_by_name_and_type(name: str, value: object, found: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    setattr(model[0], name, value)
    assert [(f.path, f.name, f.value) for f in gather.flags(model)] == ([("0", name, value)] if found else [])


def test_flags_of_configs_are_listed_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.config = model[0].config = SimpleNamespace(pre_norm=True, hidden=3)
    model[1].cfg = {"norm_first": False}
    assert [(f.path, f.name) for f in gather.flags(model)] == [("config", "pre_norm"), ("1.cfg", "norm_first")]
    assert [f.path for f in gather.flags(nn.TransformerEncoderLayer(8, 2))] == [""]


def test_handling() -> None:
    assert gather.handling(clip=1.0, accumulate=2, precision=torch.bfloat16).autocast == "bfloat16"
    assert gather.handling().autocast == "float32"
    assert gather.autocast_now() is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gather.autocast_now() == torch.bfloat16
    assert gather.precision_of("bf16") == torch.bfloat16
    assert gather.precision_of(torch.float32) is None
    with pytest.raises(InputError, match="fp32, bf16 or fp16"):
        gather.precision_of("fp8")
    assert math.isclose(gather.handling(scaler=torch.amp.GradScaler("cpu", init_scale=8.0)).loss_scale or 0, 8.0)

"""Loops of every kind under the hooks, in this process: what reaches the rules."""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.preflight.script.job import Seen
from streamgauge.vocabulary import Handling, OptimizerSetup, Origin, Schedule

Ids = Callable[[], Tensor]
Rehearse = Callable[..., Seen]


def loss_of(model: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def told(seen: Seen, words: str) -> bool:
    return any(words in note for note in seen.notes)


def handling(seen: Seen) -> Handling:
    fact = seen.facts["handling"]
    assert isinstance(fact, Handling)
    return fact


def test_a_plain_loop(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    losses: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
        for _ in range(1000):
            loss = loss_of(net, ids())
            optimizer.zero_grad()
            loss.backward()
            losses.append(float(loss.detach()))
            norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters() if p.grad is not None)))
            optimizer.step()

    norms: list[float] = []
    seen = rehearse(loop)
    assert (seen.model, seen.ended, seen.steps, seen.backwards) == ("Net", "rehearsed", 42, 42)
    assert seen.wiring is not None
    assert [join.placement for join in seen.wiring.joins] == ["pre"] * 4
    assert seen.readings["loss"].values[:, 0] == pytest.approx(losses, rel=1e-6)
    assert seen.readings["grad_norm"].values[:, 0] == pytest.approx(norms, rel=1e-5)
    assert seen.readings["stream_rms"].values.shape[1] == 4
    assert seen.readings["stream_rms"].steps[0] == 0
    setup = seen.facts["setup"]
    assert isinstance(setup, OptimizerSetup)
    assert (setup.name, setup.groups[0].lr, setup.groups[0].weight_decay) == ("AdamW", 1e-3, 0.1)
    assert handling(seen) == Handling(None, 1, "float32", None)
    assert seen.facts["vocab"] == 16
    assert seen.facts["causal_lm"] is True
    assert seen.facts["phase"] == "rehearsal"


def test_parameters_carry_the_gradients_of_the_first_step(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    first: dict[str, float] = {}

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            for name, p in net.named_parameters():
                if p.grad is not None:
                    first.setdefault(name, float(p.grad.square().mean().sqrt()))
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()

    seen = rehearse(loop)
    parameters = seen.facts["parameters"]
    assert isinstance(parameters, tuple)
    assert {p.path: p.grad_rms for p in parameters} == pytest.approx(first, rel=1e-5)


def test_the_norm_is_that_before_clipping(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    norms: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(50):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.01)))
            optimizer.step()

    seen = rehearse(loop)
    assert handling(seen).clip == 0.01
    assert min(norms) > 0.01
    assert seen.readings["grad_norm"].values[:, 0] == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("divided", [True, False])
def test_accumulation_is_counted_and_the_loss_is_the_mean(
    rehearse: Rehearse, net: nn.Module, ids: Ids, divided: bool
) -> None:
    means: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(50):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(4):
                loss = loss_of(net, ids())
                total += float(loss.detach()) / 4
                (loss / 4 if divided else loss).backward()
            means.append(total)
            optimizer.step()

    seen = rehearse(loop)
    assert handling(seen).accumulate == 4
    assert (seen.steps, seen.backwards) == (24, 96)
    assert seen.readings["loss"].values[:, 0] == pytest.approx(means, rel=1e-5)


def test_a_sum_over_all_tokens_of_the_step_is_added_up(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for _ in range(50):
            for _ in range(2):
                batch = ids()
                logits = net(batch[:, :-1]).flatten(0, 1)
                loss = F.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum") / torch.tensor(2 * 4 * 5)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    seen = rehearse(loop)
    assert seen.readings["loss"].values[:, 0] == pytest.approx(math.log(16), rel=0.2)


def test_the_rate_rises_to_the_peak_and_the_scheduler_does_not_see_it(
    rehearse: Rehearse, net: nn.Module, ids: Ids
) -> None:
    own: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda _: 1.01)  # goes on from the last rate
        for _ in range(100):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            optimizer.step()
            own.append(optimizer.param_groups[0]["lr"])
            scheduler.step()

    seen = rehearse(loop, lr=0.1)
    rates = seen.readings["lr"].values[:, 0]
    assert rates[:8] == pytest.approx([1e-3 * 1.01**t for t in range(8)])
    assert (rates[8:26] > own[8]).all()
    assert rates[-1] == pytest.approx(0.1)
    assert own == pytest.approx([1e-3 * 1.01**t for t in range(len(own))])
    assert seen.facts["peak_from"] == 24


def test_a_warm_up_is_read_ahead_and_run_through_in_fast_motion(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    def loop() -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 100))
        for _ in range(100):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            optimizer.step()
            scheduler.step()

    seen = rehearse(loop)
    schedule = seen.facts["schedule"]
    assert isinstance(schedule, Schedule)
    assert (schedule.name, schedule.warmup_steps, schedule.steps_per_tick) == ("LambdaLR", 99, 1.0)
    assert seen.readings["lr"].values[-1, 0] == pytest.approx(0.01)
    assert told(seen, "raised towards its peak")


@pytest.mark.parametrize(("steps", "per_tick"), [(10, 10.0), (60, 60.0)])
def test_a_scheduler_stepped_per_epoch(
    rehearse: Rehearse, net: nn.Module, ids: Ids, steps: int, per_tick: float
) -> None:
    """Epochs of 10 steps are seen; one of 60 is not over when the rehearsal is, and is read off the loader."""
    data = torch.utils.data.DataLoader([ids() for _ in range(steps)], batch_size=None)  # type: ignore[arg-type]

    def loop() -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 500))
        for _ in range(20):
            for batch in data:
                optimizer.zero_grad()
                loss_of(net, batch).backward()
                optimizer.step()
            scheduler.step()

    schedule = rehearse(loop).facts["schedule"]
    assert isinstance(schedule, Schedule)
    assert schedule.steps_per_tick == per_tick


def test_the_optimizer_stepped_most_decides_which_model_is_judged(rehearse: Rehearse) -> None:
    class Generator(nn.Linear):
        pass

    class Critic(nn.Linear):
        pass

    generator, critic = Generator(3, 2), Critic(2, 1)

    def loop() -> None:
        slow, fast = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
        for step in range(300):
            fast.zero_grad()
            critic(torch.randn(4, 2)).mean().backward()
            (-critic(generator(torch.randn(4, 3)).detach()).mean()).backward()
            fast.step()
            if step % 3 == 0:
                slow.zero_grad()
                critic(generator(torch.randn(4, 3))).mean().backward()
                slow.step()

    seen = rehearse(loop)
    assert seen.model == "Critic"
    assert handling(seen).accumulate == 2
    assert told(seen, "not judged: Generator (8 parameters)")


def test_a_frozen_model_beside_the_trained_one_is_no_candidate(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    teacher = nn.Sequential(nn.Embedding(16, 16), nn.Linear(16, 16)).requires_grad_(False)

    def loop() -> None:
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(100):
            batch = ids()
            optimizer.zero_grad()
            F.mse_loss(net(batch), teacher(batch)).backward()
            optimizer.step()

    seen = rehearse(loop)
    assert seen.model == "Net"
    assert not told(seen, "not judged")


def test_a_model_that_is_never_called_as_a_whole(rehearse: Rehearse, ids: Ids) -> None:
    class ByMethod(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok = nn.Embedding(16, 16)
            self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True) for _ in range(3))
            self.head = nn.Linear(16, 16)

        def compute_loss(self, batch: Tensor) -> Tensor:
            x = self.tok(batch)
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())

        def fit(self) -> None:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            for _ in range(100):
                optimizer.zero_grad()
                self.compute_loss(ids()).backward()
                optimizer.step()

    torch.manual_seed(0)
    seen = rehearse(lambda: ByMethod().fit())
    assert seen.model == "ByMethod"
    assert seen.wiring is not None
    assert [join.placement for join in seen.wiring.joins] == ["post"] * 6
    assert seen.wiring.joins[0].path.startswith("blocks.0")
    assert seen.steps == 41, "the first step ends before the method is known"


def test_pieces_that_nothing_holds_together(rehearse: Rehearse) -> None:
    """The loop calls an embedding, blocks and a head by hand: the largest is judged, the others are listed."""
    torch.manual_seed(0)
    tok, block, head = nn.Embedding(8, 8), nn.TransformerEncoderLayer(8, 2, 64, batch_first=True), nn.Linear(8, 8)
    wide = nn.Linear(8, 70)

    def loop() -> None:
        parts = (tok, block, head, wide)
        optimizer = torch.optim.SGD([p for m in parts for p in m.parameters()], lr=0.1)
        for _ in range(100):
            x = block(tok(torch.randint(0, 8, (2, 5))))
            optimizer.zero_grad()
            (head(x).square().mean() + wide(x).square().mean()).backward()
            optimizer.step()

    seen = rehearse(loop)
    assert seen.model == "TransformerEncoderLayer"
    assert told(seen, "Embedding (64 parameters)")


def test_a_closure_is_looked_at_when_it_has_run(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    losses: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, ids())
            loss.backward()
            losses.append(float(loss.detach()))
            return loss

        for _ in range(100):
            optimizer.step(closure)

    seen = rehearse(loop)
    assert seen.readings["loss"].values[:, 0] == pytest.approx(losses, rel=1e-6)
    assert (seen.readings["grad_norm"].values > 0).all()


@pytest.mark.parametrize("unscaled", [True, False])
def test_a_scaled_loss_is_seen_unscaled(rehearse: Rehearse, net: nn.Module, ids: Ids, unscaled: bool) -> None:
    losses: list[float] = []
    norms: list[float] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(100):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(net, ids())
            losses.append(float(loss.detach()))
            scaler.scale(loss).backward()
            if unscaled:
                scaler.unscale_(optimizer)
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 1e9)))
            scaler.step(optimizer)
            scaler.update()

    seen = rehearse(loop)
    assert seen.readings["loss"].values[:, 0] == pytest.approx(losses, rel=1e-6)
    factor = 1.0 if unscaled else 1024.0
    assert seen.readings["grad_norm"].values[:, 0] * factor == pytest.approx(norms, rel=1e-4)
    assert (handling(seen).autocast, handling(seen).loss_scale) == ("bfloat16", 1024.0)
    assert told(seen, "clipped while scaled") is not unscaled


def test_steps_that_the_scaler_skips_for_ever_are_the_evidence(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        for _ in range(500):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, ids()).sqrt() * torch.tensor(1e30) * torch.tensor(1e30)).backward()
            scaler.step(optimizer)
            scaler.update()

    seen = rehearse(loop)
    assert seen.ended == "rehearsed"
    assert not math.isfinite(seen.readings["loss"].values[-1, 0])


def test_a_loss_that_is_not_finite_ends_the_rehearsal_with_its_origin(rehearse: Rehearse, ids: Ids) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok, self.block, self.head, self.calls = nn.Embedding(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), 0

        def forward(self, batch: Tensor) -> Tensor:
            self.calls += self.training
            x = self.tok(batch)
            scores = x @ x.transpose(1, 2)
            if self.calls > 5:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool), -math.inf)
            return self.head(x + scores.softmax(-1) @ self.block(x))

    def loop() -> None:
        model = Masked()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            loss_of(model, ids()).backward()
            optimizer.step()

    torch.manual_seed(0)
    seen = rehearse(loop)
    origin = seen.facts["origin"]
    assert isinstance(origin, Origin)
    assert "softmax" in origin.op
    assert origin.masked_rows > 0
    assert seen.failure.startswith("the loss is nan at step")


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_script_that_gives_up_on_a_nan_is_judged_by_it(rehearse: Rehearse, ids: Ids, how: str) -> None:
    def loop() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(16, 16), nn.Linear(16, 16))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
        for _ in range(100):
            loss = loss_of(model, ids())
            if not bool(loss.isfinite()):
                if how == "exit":
                    raise SystemExit("NaN")
                raise FloatingPointError("NaN")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    seen = rehearse(loop)
    assert seen.ended == "raised"
    assert seen.error.endswith("NaN")
    assert not math.isfinite(seen.readings["loss"].values[-1, 0])


def test_an_end_before_the_budget(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            optimizer.step()

    seen = rehearse(loop)
    assert (seen.ended, seen.steps) == ("finished", 3)


def test_nothing_that_trains(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    assert rehearse(lambda: net(ids())).model == ""
    seen = rehearse(lambda: loss_of(net, ids()).backward())
    assert (seen.model, seen.backwards) == ("", 1)


def test_an_evaluation_between_the_steps_changes_nothing(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    fixed = [ids() for _ in range(100)]
    state = {name: value.clone() for name, value in net.state_dict().items()}

    def loop(evaluating: bool) -> Callable[[], None]:
        def run() -> None:
            net.load_state_dict(state)
            optimizer = torch.optim.Adam(net.parameters())
            for batch in fixed:
                if evaluating:
                    with torch.no_grad():
                        net(batch)
                optimizer.zero_grad()
                loss_of(net, batch).backward()
                optimizer.step()

        return run

    plain, with_evaluation = rehearse(loop(False)), rehearse(loop(True))
    assert plain.readings["loss"].values.tolist() == with_evaluation.readings["loss"].values.tolist()
    assert plain.readings["grad_rms"].values.tolist() == with_evaluation.readings["grad_rms"].values.tolist()


def test_losses_are_those_of_the_script_without_hooks(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    fixed = [ids() for _ in range(42)]
    state = {name: value.clone() for name, value in net.state_dict().items()}
    losses: list[float] = []

    def loop() -> None:
        torch.manual_seed(1)
        net.load_state_dict(state)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for batch in fixed:
            optimizer.zero_grad()
            loss = F.dropout(net(batch), 0.5).logsumexp(-1).mean()
            loss.backward()
            losses.append(float(loss.detach()))
            optimizer.step()

    loop()
    bare = list(losses)
    losses.clear()
    rehearse(loop)
    assert losses == bare


def test_checkpoints_are_left_out_and_listed(rehearse: Rehearse, net: nn.Module, ids: Ids, tmp_path: Path) -> None:
    copies: list[Any] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(50):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            optimizer.step()
            torch.save(net.state_dict(), tmp_path / "model.pt")
            memory = io.BytesIO()
            torch.save(net.state_dict(), memory)
            copies.append(torch.load(io.BytesIO(memory.getvalue())))

    seen = rehearse(loop)
    assert not (tmp_path / "model.pt").exists()
    assert copies[0].keys() == net.state_dict().keys()
    assert told(seen, "model.pt) x41")
    rehearse(loop, allow_writes=True)
    assert (tmp_path / "model.pt").exists()


def test_a_compiled_model_is_measured_eagerly_under_its_own_names(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    compilations: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compilations.append(1)
        return graph

    def loop() -> None:
        model = torch.compile(net, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(50):
            optimizer.zero_grad()
            loss_of(model, ids()).backward()
            optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        seen = rehearse(loop)
    assert seen.model == "Net"
    assert not compilations
    assert seen.wiring is not None
    assert seen.wiring.joins[0].path == "blocks.0"
    assert not told(seen, "places were seen")
    assert told(seen, "torch.compile was left out")


def test_experiments_are_made_at_the_first_step_and_leave_no_trace(
    rehearse: Rehearse, net: nn.Module, ids: Ids
) -> None:
    """The net attends to the future, and its targets are the next tokens."""
    kept: list[dict[str, Tensor]] = []

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            loss_of(net, ids()).backward()
            if not kept:
                kept.append({name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None})
                optimizer.register_step_pre_hook(lambda *_: kept.append(grads()) if len(kept) == 1 else None)
            optimizer.step()

    def grads() -> dict[str, Tensor]:
        return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}

    seen = rehearse(loop)
    probes = seen.facts["probes"]
    assert isinstance(probes, tuple)
    found = {probe.name: probe.change for probe in probes}
    assert found["future"] > 0.01
    assert found["input"] > 0.01
    assert net.training
    assert seen.backwards == 42
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_loaded_weights_are_called_so(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    state = {name: value.clone() for name, value in net.state_dict().items()}

    def loop() -> None:
        net.load_state_dict(state)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(2):
            loss_of(net, ids()).backward()
            optimizer.step()

    assert rehearse(loop).facts["pretrained"] is True


def test_everything_patched_is_put_back(rehearse: Rehearse, net: nn.Module, ids: Ids) -> None:
    owners = (torch, torch.Tensor, torch.autograd, nn.Module, torch.optim.Optimizer, F, nn.utils, torch.amp.GradScaler)
    before = [dict(vars(owner)) for owner in owners]

    def loop() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loss_of(net, ids()).backward()
        optimizer.step()

    rehearse(loop, allow_writes=True)
    for owner, was in zip(owners, before, strict=True):
        now = vars(owner)
        assert [name for name in was if name in now and was[name] is not now[name]] == [], owner
    steps = sys.modules["torch.optim.optimizer"]
    assert not steps._global_optimizer_pre_hooks
    assert not steps._global_optimizer_post_hooks

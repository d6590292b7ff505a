from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from streamgauge.errors import InputError
from streamgauge.gauge import load_run
from streamgauge.lab import Config, Result, build, standard_library, text, train, validate
from streamgauge.lab.schedule import warmup_cosine

TINY = Config(depth=2, width=16, heads=2, context=16, batch=4, steps=6, every=2, validate_every=4, validation_batches=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_run_folder_holds_readings_config_and_facts(run: Path) -> None:
    heard: list[dict[str, float]] = []
    result = train(TINY, run, progress=heard.append)
    stored, corpus = load_run(run), standard_library()
    assert Config.from_json(run / "config.json") == TINY
    assert stored.config["scheme"] == "pre"
    assert stored.status == "finished"
    for key, value in corpus.facts().items():
        assert stored.facts[key] == value
    assert stored.facts["seed"] == 0
    assert stored.facts["threads"] == torch.get_num_threads()
    assert {"python", "torch", "numpy", "streamgauge"} <= set(stored.versions)
    losses = stored.readings("loss")
    assert losses.steps.tolist() == list(range(6))
    assert [m["loss"] for m in heard] == losses.values[:, 0].tolist()
    assert [m["step"] for m in heard] == [1, 2, 3, 4, 5, 6]
    assert stored.readings("val_loss").steps.tolist() == [3, 5]
    assert stored.readings("val_loss").values[-1, 0] == result.val_loss
    assert (result.steps, result.note) == (6, "")
    assert stored.readings("stream_rms").values.shape == (3, 4)


def test_first_loss_is_that_of_the_untrained_model_on_the_first_batch(run: Path) -> None:
    train(TINY, run)
    torch.manual_seed(TINY.seed)
    inputs, targets = standard_library().batch(TINY.seed, 0, TINY.batch, TINY.context)
    chance = torch.nn.functional.log_softmax(build(TINY)(inputs).detach(), -1)
    expected = -chance.gather(-1, targets[..., None]).mean()
    assert load_run(run).readings("loss").values[0, 0] == pytest.approx(float(expected), rel=1e-6)


def test_learning_rate_follows_the_schedule(run: Path) -> None:
    config = Config(**vars(TINY) | {"warmup": 2, "lr": 3e-3})
    train(config, run)
    expected = [3e-3 * warmup_cosine(t, 6, 2, 0.1) for t in range(6)]
    np.testing.assert_allclose(load_run(run).readings("lr").values[:, 0], expected)


def test_same_seed_same_losses_and_other_seed_others(tmp_path: Path) -> None:
    def losses(name: str, seed: int) -> list[float]:
        train(Config(**vars(TINY) | {"seed": seed}), tmp_path / name)
        return load_run(tmp_path / name).readings("loss").values[:, 0].tolist()  # type: ignore[no-any-return]

    first = losses("a", 3)
    torch.rand(5)
    assert losses("b", 3) == first
    assert losses("c", 4) != first


def test_arms_of_one_seed_see_identical_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.lab import loop

    real = loop.loss_on

    def seen(**changes: object) -> list[bytes]:
        batches: list[bytes] = []

        def listening(net: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            batches.append(batch[0].numpy().tobytes() + batch[1].numpy().tobytes())
            return real(net, batch)

        monkeypatch.setattr(loop, "loss_on", listening)
        train(Config(**vars(TINY) | changes), tmp_path / "-".join(map(str, changes.values())))
        return batches

    first = seen(scheme="pre")
    assert len(first) == 6 + 2 * 2, "six steps, two validations of two batches"
    assert len(set(first)) == 6 + 2, "validation comes back to the same windows"
    assert seen(scheme="none") == seen(scheme="b2t", depth=1, norm="rmsnorm", lr=1e-2) == first
    other = seen(seed=1)
    assert [a == b for a, b in zip(first, other, strict=True)].count(True) == 4, "another seed, the same validation"


def test_validation_is_the_mean_over_its_fixed_windows() -> None:
    corpus, net = standard_library(), build(TINY)
    windows = list(corpus.validation_batches(TINY.validation_batches, TINY.batch, TINY.context))
    rows = [(x[i : i + 1], y[i : i + 1]) for x, y in windows for i in range(len(x))]
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(net(x)[0], y[0]) for x, y in rows]
    assert validate(net, corpus, TINY) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


def test_loss_that_is_not_finite_stops_the_run_and_is_recorded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.lab import loop as module

    real, calls = module.loss_on, iter(range(100))

    def poisoned(net: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return real(net, batch) * (math.nan if next(calls) == 3 else 1.0)

    monkeypatch.setattr(module, "loss_on", poisoned)
    result = train(Config(**vars(TINY) | {"validate_every": 6}), run)
    assert result.note == "stopped: the loss is not finite at step 3"
    stored = load_run(run)
    assert stored.status == "finished"
    assert [event.step for event in stored.events("stopped")] == [3]
    assert len(stored.readings("loss")) == 4


def test_clipping_bounds_the_update_and_zero_leaves_it(tmp_path: Path) -> None:
    losses = {}
    for clip in (0.0, 1e9, 1e-3):
        train(Config(**vars(TINY) | {"clip": clip}), tmp_path / str(clip))
        losses[clip] = load_run(tmp_path / str(clip)).readings("loss").values[:, 0].tolist()
    assert losses[0.0] == losses[1e9]
    assert losses[0.0] != losses[1e-3]


def test_finished_run_is_not_overwritten(run: Path) -> None:
    train(TINY, run)
    before = (run / "config.json").read_text()
    with pytest.raises(InputError, match="already holds a run"):
        train(Config(**vars(TINY) | {"lr": 1.0}), run)
    assert (run / "config.json").read_text() == before


def test_text_too_short_for_the_context_leaves_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abc" * 20)
    with pytest.raises(InputError, match=r"too short for context=16"):
        train(Config(**vars(TINY) | {"data": (str(tmp_path / "t.txt"),)}), run)
    assert not run.exists()


def test_result_is_plain() -> None:
    assert json.loads(json.dumps(vars(Result(1, 2.0, 3.0)))) == {
        "steps": 1,
        "val_loss": 2.0,
        "seconds": 3.0,
        "note": "",
    }


@pytest.mark.slow
def test_learns_a_period_of_text_well_below_its_unigram_entropy(run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abcdefgh" * 400)
    config = Config(
        **vars(TINY) | {"steps": 120, "lr": 1e-2, "data": (str(tmp_path / "t.txt"),), "validate_every": 120}
    )
    corpus = text(*config.data)
    assert corpus.unigram_entropy == pytest.approx(math.log(8), abs=1e-3)
    assert train(config, run, corpus).val_loss < 0.1

"""Remedies on initialization: the finding is gone afterwards, and the run learns what it did not."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge import check, fix
from streamgauge.errors import InputError

CASES = Path(__file__).parents[1] / "cases" / "failing_runs"
VOCAB, WIDTH = 32, 32


class Block(nn.Module):
    """x + attn(ln1(x)), then x + mlp(ln2(x)), as written by hand with torch's own parts."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        out: Tensor = x + self.mlp(self.ln2(x))
        return out


class LM(nn.Module):
    def __init__(self, depth: int, std: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(12, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2 and name[:3] not in ("tok", "pos") and std is not None:
                nn.init.normal_(p, std=std)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tok(input_ids) + self.pos.weight[: input_ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.ln_f(x))
        return logits


IDS = torch.randint(VOCAB, (4, 12), generator=torch.Generator().manual_seed(1))


def names(model: nn.Module) -> set[str]:
    findings = check(model, inputs=(IDS,)).findings
    return {f.name for root in findings for f in (root, *root.consequences)}


def growth(model: nn.Module) -> float:
    rms = check(model, inputs=(IDS,)).readings["stream_rms"].first
    return float(rms[-1] / rms[0])


def test_branches_of_a_deep_stack_are_scaled_once() -> None:
    model = LM(13, std=0.3)
    assert "unscaled-residual-init" in names(model)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    changes = fix.apply(model, "unscaled-residual-init", inputs=(IDS,))
    assert len(changes) == 26
    assert "blocks.0.attn.out_proj: multiplied by 1/sqrt(26) = 0.196" in changes
    assert "blocks.12.mlp.2: multiplied by 1/sqrt(26) = 0.196" in changes
    for name, p in model.named_parameters():
        factor = 26**-0.5 if "out_proj" in name or "mlp.2" in name else 1.0
        torch.testing.assert_close(p, before[name] * factor)
    assert "unscaled-residual-init" not in names(model)
    assert growth(model) < 3
    assert model.training
    assert fix.apply(model, "unscaled-residual-init", inputs=(IDS,)) == []


def test_a_transformers_model_keeps_its_matrices_the_other_way_round() -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=32, n_layer=13, n_head=2, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    for block in model.transformer.h:
        for layer in (block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj):
            nn.init.normal_(layer.weight, std=0.3)
    for table in (model.transformer.wte, model.transformer.wpe):
        nn.init.normal_(table.weight)
    changes = fix.apply(model, "unscaled-residual-init")
    assert len(changes) == 26
    assert changes[0].startswith("transformer.h.0.attn.c_proj: multiplied")
    assert fix.apply(model, "unscaled-residual-init") == []


def test_a_branch_that_ends_in_no_projection_is_named() -> None:
    model = LM(13, std=0.3)
    for block in model.blocks:
        block.mlp.append(nn.Softsign())
        block.attn.out_proj.weight.data.mul_(2)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(InputError, match=r"sublayer 1 \(blocks.0\)"):
        fix.apply(model, "unscaled-residual-init", inputs=(IDS,))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_tied_embedding_gets_the_size_of_a_head() -> None:
    model = LM(2)
    model.head.weight = model.tok.weight
    assert "embedding-scale" in names(model)
    optimizer = torch.optim.AdamW(model.parameters())
    before = model.pos.weight.detach() * WIDTH**-0.5 / model.tok.weight.detach().square().mean().sqrt()
    assert [c.partition(":")[0] for c in fix.apply(model, "embedding-scale", optimizer)] == ["tok.weight", "pos.weight"]
    assert float(model.tok.weight.detach().square().mean().sqrt()) == pytest.approx(WIDTH**-0.5, rel=1e-4)
    torch.testing.assert_close(model.pos.weight.detach(), before)
    assert model.head.weight is model.tok.weight
    assert "embedding-scale" not in names(model)
    assert fix.apply(model, "embedding-scale") == []


def test_a_tiny_embedding_gets_the_size_that_its_norm_needs() -> None:
    model = LM(2)
    for table in (model.tok, model.pos):
        nn.init.normal_(table.weight, std=1e-4)
    assert "embedding-scale" in names(model)
    fix.apply(model, "embedding-scale", inputs=(IDS,))
    assert float(model.tok.weight.detach().square().mean().sqrt()) == pytest.approx(0.02, rel=1e-4)
    assert "embedding-scale" not in names(model)


def test_a_tiny_embedding_is_not_left_drowned_by_positions() -> None:
    model = LM(2)
    nn.init.normal_(model.tok.weight, std=1e-4)
    fix.apply(model, "embedding-scale", inputs=(IDS,))
    rms = [float(table.weight.detach().square().mean().sqrt()) for table in (model.tok, model.pos)]
    assert rms[0] == pytest.approx(rms[1])


def test_large_matrices_get_a_gain_of_one() -> None:
    model = LM(2, std=1.0)
    assert "large-init" in names(model)
    changes = fix.apply(model, "large-init")
    assert len(changes) == 9
    for linear in (m for m in model.modules() if isinstance(m, nn.Linear)):
        gain = float(linear.weight.detach().square().mean().sqrt()) * math.sqrt(linear.in_features)
        assert gain == pytest.approx(1, rel=1e-4)
    assert "large-init" not in names(model)
    assert fix.apply(model, "large-init") == []


def test_one_of_two_zero_factors_is_drawn() -> None:
    model = LM(2)
    for block in model.blocks:
        for matrix in (block.mlp[0].weight, block.mlp[2].weight, block.attn.in_proj_weight, block.attn.out_proj.weight):
            nn.init.zeros_(matrix)
    assert "dead-parameters" in names(model)
    changes = fix.apply(model, "dead-parameters", inputs=(IDS,))
    assert [c.partition(":")[0] for c in changes] == [
        f"blocks.{i}.{name}" for name in ("attn.in_proj_weight", "mlp.0.weight") for i in range(2)
    ]
    assert not model.blocks[0].mlp[2].weight.any()
    assert "dead-parameters" not in names(model)
    assert fix.apply(model, "dead-parameters", inputs=(IDS,)) == []


def test_a_zero_head_is_a_start_and_left_alone() -> None:
    model = LM(2)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.blocks[0].mlp[2].weight)
    assert fix.apply(model, "dead-parameters", inputs=(IDS,)) == []


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(InputError, match="meta device"):
        fix.apply(model, "large-init")


def trained(case: str, steps: int, treat: str = "") -> float:
    """The mean of the last ten losses of a failing run, repaired before its first step where `treat` says so."""
    module = runpy.run_path(str(CASES / f"{case}.py"))
    model, optimizer, loss_fn, batches = module["build"]()
    if treat:
        assert fix.apply(model, treat, optimizer, inputs=(next(batches)[:, :-1],))
    losses: list[Any] = []
    for _ in range(steps):
        loss = loss_fn(next(batches))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "treat", "steps"),
    [("20_double_zero_init", "dead-parameters", 100), ("10_tied_embedding_std1", "embedding-scale", 60)],
)
def test_a_run_that_fails_learns_after_its_remedy(case: str, treat: str, steps: int) -> None:
    assert trained(case, steps, treat) < trained(case, steps) - 1

"""Scripts of transformers' Trainer, Lightning and Accelerate, as they are written for those, in their own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli import main

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randint(0, 16, (400, 9)))
class Layers(nn.TransformerEncoder):
    def __init__(self):
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        super().__init__(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
    def forward(self, x):
        return super().forward(x, nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True)
"""
SCRIPTS = {
    "trainer": """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=16, n_positions=16))
args = TrainingArguments("out", report_to=[], use_cpu=True, per_device_train_batch_size=4, num_train_epochs=5,
    save_steps=5, gradient_accumulation_steps=2, warmup_steps=20, learning_rate=1e-3, max_grad_norm=0.7,
    disable_tqdm=True)
rows = [{"input_ids": ids, "labels": ids} for ids in data.tensors[0]]
Trainer(model=model, args=args, train_dataset=rows).train()
""",
    "lightning": """
import lightning
class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.tok, self.layers, self.head = nn.Embedding(16, 16), Layers(), nn.Linear(16, 16)
    def training_step(self, batch, index):
        ids, = batch
        logits = self.head(self.layers(self.tok(ids[:, :-1])))
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 20))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", gradient_clip_val=0.7, accumulate_grad_batches=2,
    logger=False, enable_progress_bar=False, default_root_dir="out")
trainer.fit(Lit(), torch.utils.data.DataLoader(data, batch_size=4))
""",
    "accelerate": """
from accelerate import Accelerator
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.layers, self.head = nn.Embedding(16, 16), Layers(), nn.Linear(16, 16)
    def forward(self, ids):
        return self.head(self.layers(self.tok(ids)))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 20))
loader = torch.utils.data.DataLoader(data, batch_size=4)
net, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
for epoch in range(5):
    for step, (ids,) in enumerate(loader):
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 0.7)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if step == 10:
            accelerator.save_state("out")
""",
}
NAMES = {"trainer": "GPT2LMHeadModel", "lightning": "Lit", "accelerate": "Net"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_of_a_framework(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(HEAD + SCRIPTS[kind])
    monkeypatch.chdir(tmp_path)
    code = main(["check", "train.py", "--format", "json"])
    answer: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert code == 0
    assert [f["name"] for f in answer["findings"] if f["severity"] != "info"] == []
    assert any(note.startswith(f"judged: {NAMES[kind]}, ") for note in answer["notes"])
    assert [join["placement"] for join in answer["wiring"]["joins"]] == ["pre"] * 4
    facts = answer["facts"]
    assert facts["handling"] == {"clip": 0.7, "accumulate": 2, "autocast": "float32", "loss_scale": None}
    assert facts["schedule"]["name"] == "LambdaLR"
    assert facts["schedule"]["steps_per_tick"] == 1.0
    assert facts["setup"]["groups"][0]["peak_lr"] == pytest.approx(1e-3)
    assert facts["causal_lm"] is True
    assert answer["rehearsal"]["steps"] >= 20
    assert answer["readings"]["loss"]["values"][0][0] == pytest.approx(2.77, abs=0.5), "ln 16, not twice or half of it"
    assert answer["readings"]["stream_rms"]["steps"][:2] == [0, 4]
    assert not list(tmp_path.rglob("*.safetensors")) + list(tmp_path.rglob("*.pt")) + list(tmp_path.rglob("*.ckpt"))

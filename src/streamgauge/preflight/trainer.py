"""Everything a check needs, taken from a trainer object."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.preflight.phases import Options


@dataclass(frozen=True)
class Job:
    """One training: model, loss, batches, optimizer, how it is trained, and what to call it.

    objects   what else its steps change: put back attribute by attribute
    """

    model: nn.Module
    loss_fn: Callable[[Any], Tensor]
    batches: Iterable[Any]
    optimizer: Optimizer
    options: Options
    target: str
    objects: tuple[Any, ...] = ()


def is_trainer(thing: Any) -> bool:
    """Does it look like a transformers Trainer: a model, a loss and a data loader of its own?"""
    return all(hasattr(thing, name) for name in ("model", "compute_loss", "get_train_dataloader", "args"))


@contextlib.contextmanager
def job_of(trainer: Any) -> Iterator[Job]:
    """The job of a transformers `Trainer`; inside, its optimizer and scheduler exist, afterwards they are as before.

    Its own `compute_loss` and collator are used, no callback fires and nothing is written. Clipping, accumulation,
    precision, warm-up and the number of steps come from its arguments; the model is in training mode, as it will be.
    """
    kept = dict(vars(trainer))
    model, args = trainer.model, trainer.args
    if not isinstance(model, nn.Module):
        raise InputError("the Trainer has no model yet (model_init?); pass Trainer(model=...)")
    if trainer.train_dataset is None:
        raise InputError("the Trainer has no train_dataset; check needs its batches")
    modes = [(module, module.training) for module in model.modules()]
    accumulate = max(1, int(args.gradient_accumulation_steps))
    try:
        loader = trainer.get_train_dataloader()
        steps = _steps(args, loader, accumulate)
        if trainer.optimizer is None:
            trainer.create_optimizer()
        if trainer.lr_scheduler is None:
            trainer.create_scheduler(num_training_steps=steps, optimizer=trainer.optimizer)
        model.train()

        def loss_fn(batch: Any) -> Tensor:
            with trainer.compute_loss_context_manager():
                loss: Tensor = trainer.compute_loss(model, trainer._prepare_inputs(dict(batch)))
            return loss.mean()

        options = Options(
            steps=steps,
            clip=args.max_grad_norm or None,
            accumulate=accumulate,
            schedule=trainer.lr_scheduler,
            precision=torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None,
        )
        name = f"Trainer of {type(model).__name__}"
        yield Job(model, loss_fn, loader, trainer.optimizer, options, name, (trainer, trainer.state, trainer.control))
    finally:
        for module, mode in modes:
            module.training = mode
        vars(trainer).clear()
        vars(trainer).update(kept)


def _steps(args: Any, loader: Any, accumulate: int) -> int:
    if args.max_steps > 0:
        return int(args.max_steps)
    try:
        per_epoch = max(1, math.ceil(len(loader) / accumulate))
    except TypeError:
        raise InputError("the Trainer's data has no length; give TrainingArguments(max_steps=...)") from None
    return max(1, math.ceil(per_epoch * float(args.num_train_epochs)))

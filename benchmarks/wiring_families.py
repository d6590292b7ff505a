"""Read the wiring of every transformers family that builds from a small config, and write docs/wiring.md.

    python benchmarks/wiring_families.py [--only llama,bert] [--out docs/wiring.md]

Each config has its defaults but for the number of layers, the model stands on the meta device (or on small real
tensors where the meta device cannot run it), and the inputs are guessed. A family that does not build, or that does
not run on guessed inputs, is listed with the reason.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from streamgauge.errors import InputError
from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

TASKS = {
    "causal LM": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked LM": "MODEL_FOR_MASKED_LM_MAPPING",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "vision": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "audio": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "CTC": "MODEL_FOR_CTC_MAPPING",
}
LAYERS = [
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "encoder_num_hidden_layers",
    "decoder_num_hidden_layers",
]
SECONDS, LARGEST = 60, 400_000_000


class TooSlowError(BaseException):
    """A family took longer than its share."""


def small(config: Any) -> Any:
    """The config with two layers where that is a plain number."""
    for part in vars(config).values():
        if hasattr(part, "model_type") and hasattr(part, "to_dict"):
            small(part)
    for name in LAYERS:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 2:
            try:
                setattr(config, name, 2)
            except Exception:
                continue
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list):
        config.layer_types = kinds[: getattr(config, "num_hidden_layers", 2)]
    return config


def builds(kind: Any, make: Any) -> Iterator[torch.nn.Module]:
    """The model with few layers on the meta device, as it is there, and with few layers on real tensors."""
    failed: Exception | None = None
    built, size = False, 0
    for device, change in (("meta", small), ("meta", lambda config: config), ("cpu", small)):
        if device == "cpu" and size > LARGEST:
            break
        try:
            with torch.device(device):
                model = kind(change(make())).eval()
        except Exception as error:
            failed = failed or error
            continue
        built, size = True, size or sum(p.numel() for p in model.parameters())
        yield model
    if not built and failed is not None:
        raise failed


def describe(wiring: Wiring) -> list[str]:
    placed = ", ".join(f"{n} {p}" for p, n in wiring.placements.items()) or "none"
    kinds = ", ".join(f"{n} {k}" for k, n in Counter(j.kind for j in wiring.joins).items())
    norms = ", ".join(sorted({j.norm for j in wiring.joins if j.norm})) or "none"
    eps = ", ".join(f"{e:g}" for e in sorted({j.eps for j in wiring.joins if j.eps is not None}))
    scales = sorted(
        {
            str(round(s, 4) if isinstance(s, float) else s)
            for j in wiring.joins
            for s in (j.branch_scale, j.skip_scale)
            if s
        }
    )
    if any(j.per_channel for j in wiring.joins):
        scales.append("per channel")
    bare = f"; {len(wiring.unjoined)} unjoined" if wiring.unjoined else ""
    return [placed + bare, kinds, norms, eps, ", ".join(scales), "yes" if wiring.final_norm else "no"]


def family(task: str, mapping: Any, key: str) -> tuple[str, list[str], str]:
    """One row of the table, or the reason why there is none."""
    config_kind = CONFIG_MAPPING[key]
    try:
        kind = mapping[config_kind]
    except Exception as error:
        return "skipped", [], f"not importable: {one_line(error)}"
    kind = kind[0] if isinstance(kind, list | tuple) else kind
    failed: InputError | None = None
    try:
        for model in builds(kind, config_kind):
            try:
                wiring = read_wiring(model)
            except InputError as error:
                failed = failed or error
                continue
            return "read", [kind.__name__, *describe(wiring)], "; ".join(wiring.unplaced)
    except TooSlowError:
        raise
    except Exception as error:
        if failed is None:
            return "skipped", [], f"does not build from a default config: {one_line(error)}"
    return "unread", [], one_line(failed) if failed else ""


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:230].replace("|", "/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="model types, comma-separated")
    parser.add_argument("--tasks", default="", help="tasks, comma-separated")
    parser.add_argument("--out", type=Path, help="where to write the table")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    warnings.simplefilter("ignore")

    armed = [False]

    def stop(*_: Any) -> None:
        if armed[0]:
            raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    rows: dict[str, list[tuple[str, list[str], str]]] = {}
    missing: list[tuple[str, str, str, str]] = []
    crashed = 0
    done: set[str] = set()
    for task, name in TASKS.items():
        if options.tasks and task not in options.tasks.split(","):
            continue
        mapping = getattr(modeling_auto, name)
        for key in sorted(mapping._model_mapping):
            if key in done or (only and key not in only):
                continue
            start = time.time()
            armed[0] = True
            signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)  # again, where a destructor swallowed it
            try:
                state, cells, remark = family(task, mapping, key)
            except TooSlowError:
                armed[0] = False
                state, cells, remark = "skipped", [], f"took more than {SECONDS} s"
            except Exception as error:
                state, cells, remark = "crashed", [], one_line(error)
                crashed += 1
            armed[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if state == "read":
                done.add(key)
                rows.setdefault(task, []).append((key, cells, remark))
            else:
                missing.append((key, task, state, remark))
            print(f"{time.time() - start:5.1f}s {task:10} {key:24} {state:8} {' | '.join(cells)} {remark}", flush=True)
    missing = [m for m in missing if m[0] not in done]
    if options.out:
        options.out.write_text(page(rows, missing), encoding="utf-8")
    print(f"read {sum(map(len, rows.values()))}, unread {sum(m[2] == 'unread' for m in missing)}, crashed {crashed}")
    return 1 if crashed else 0


def page(rows: dict[str, list[tuple[str, list[str], str]]], missing: list[tuple[str, str, str, str]]) -> str:
    import transformers

    columns = ("family", "class", "joins", "branches", "norm", "eps", "scales", "final norm", "remarks")
    head = f"| {' | '.join(columns)} |\n|{' - |' * len(columns)}\n"
    parts = [
        "# Wirings read from transformers\n",
        f"Written by `benchmarks/wiring_families.py` with transformers {transformers.__version__} and torch "
        f"{torch.__version__.split('+')[0]}: default configs with two layers where the config allows it, on the meta "
        "device, inputs guessed. What was read, not what the papers say; the words are defined in "
        "`streamgauge.wiring`.\n",
    ]
    for task, found in rows.items():
        parts.append(f"## {task}\n\n{head}" + "".join(f"| {k} | {' | '.join(c)} | {r} |\n" for k, c, r in found))
    if missing:
        parts.append(
            "## Not read\n\n| family | task | why |\n| - | - | - |\n"
            + "".join(f"| {k} | {t} | {r} |\n" for k, t, _, r in missing)
        )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())

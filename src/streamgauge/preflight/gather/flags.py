"""Settings that speak of where the norms stand: found by name, to be held against the graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from streamgauge.vocabulary import Flag

SPEAKS = re.compile(
    r"(^|_)(pre|post)_?(layer_?)?(norm|ln)($|_|alize)"  # pre_norm, post_ln, use_pre_layernorm, pre_normalize
    r"|norm(alize)?_?(first|before|after|position|placement|order|mode)"  # norm_first, encoder_normalize_before
    r"|layer_?norm_?(first|before|after|position|placement|order)"  # do_layer_norm_before, layernorm_positioning
    r"|residual_connection_post_layernorm"
    r"|norm_where|where_norm|(^|_)is_pre_?(norm|ln)",
    re.IGNORECASE,
)
TELLS = re.compile(r"(^|[^a-z])(pre|post|before|after|first|last|sandwich|peri|parallel)", re.IGNORECASE)
HOLDERS = ("config", "cfg", "args", "hparams", "opts", "options", "conf")


def flags(model: nn.Module) -> tuple[Flag, ...]:
    """Attributes of modules, and fields of their configs, that say where norms stand: `normalize_before=True`.

    Names only find them; whether they are obeyed is read off the graph. A value is True or False, or a text that
    says a placement ("pre", "post_ln"). A config that several modules share is listed at the outermost one.
    """
    found: list[Flag] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        values = vars(module)
        found += _speaking(path, values)
        for name in HOLDERS:
            config = values.get(name)
            if config is None or id(config) in seen:
                continue
            seen.add(id(config))
            found += _speaking(f"{path}.{name}" if path else name, _fields(config))
    return tuple(found)


def _fields(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    fields: Mapping[str, Any] = getattr(config, "__dict__", {})
    return fields


def _speaking(path: str, values: Mapping[str, Any]) -> list[Flag]:
    found = []
    for name, value in values.items():
        if not isinstance(name, str) or name.startswith("__") or not SPEAKS.search(name):
            continue
        if isinstance(value, bool) or (isinstance(value, str) and TELLS.search(value)):
            found.append(Flag(path, name, value))
    return found

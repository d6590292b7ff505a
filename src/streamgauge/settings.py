"""Settings of the project that is checked: `[tool.streamgauge]` in its pyproject.toml.

[tool.streamgauge]
select = ["W", "I"]
ignore = ["decay-on-gains"]

[tool.streamgauge.thresholds.deep-post-norm]
deep = 24
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.errors import InputError, closest
from streamgauge.rules import FAMILIES, Rule, find_rule

KEYS = ("select", "ignore", "thresholds")
FILE = "pyproject.toml"


@dataclass(frozen=True)
class Settings:
    """select, ignore: codes, names or family letters of rules; thresholds: rule -> {setting: value}."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def load_settings(start: str | Path = ".") -> Settings:
    """The settings of the nearest pyproject.toml that has a table [tool.streamgauge], in `start` or a folder above it.

    InputError, one line with the file and the key, for broken TOML, an unknown key, rule or threshold, a wrong type.
    """
    folder = Path(start).resolve()
    for place in (folder, *folder.parents):
        file = place / FILE
        if not file.is_file():
            continue
        table = _table(file)
        if table is not None:
            return _checked(table, file)
    return Settings()


def _table(file: Path) -> Mapping[str, Any] | None:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: broken TOML: {error}") from None
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    tool = document.get("tool")
    table = tool.get("streamgauge") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise InputError(f"{file}: tool.streamgauge is {table!r}: write a table, [tool.streamgauge]")
    return table


def _checked(table: Mapping[str, Any], file: Path) -> Settings:
    for key in table:
        if key not in KEYS:
            raise InputError(f"{file}: unknown key tool.streamgauge.{key}; {closest(key, KEYS)}")
    return Settings(_names(table, "select", file), _names(table, "ignore", file), _thresholds(table, file))


def _names(table: Mapping[str, Any], key: str, file: Path) -> tuple[str, ...]:
    where = f"{file}: tool.streamgauge.{key}"
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f'{where} is {names!r}: give a list of codes, names or family letters, ["W", "dead-parameters"]'
        )
    for name in names:
        if name.strip().upper() not in FAMILIES:
            _rule(name, where)
    return tuple(names)


def _thresholds(table: Mapping[str, Any], file: Path) -> Mapping[str, Mapping[str, float]]:
    where = f"{file}: tool.streamgauge.thresholds"
    given = table.get("thresholds", {})
    if not isinstance(given, dict):
        raise InputError(f"{where} is {given!r}: write a table for each rule, [tool.streamgauge.thresholds.RULE]")
    chosen: dict[str, Mapping[str, float]] = {}
    for name, values in given.items():
        rule = _rule(name, where)
        if not isinstance(values, dict):
            raise InputError(f"{where}.{name} is {values!r}: write a table of settings, {name} = {{setting = value}}")
        for key, value in values.items():
            if key not in rule.thresholds:
                hint = closest(key, rule.thresholds) if rule.thresholds else "this rule has none"
                raise InputError(f"{where}.{name}: unknown threshold {key!r}; {hint}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{where}.{name}.{key} is {value!r}: give a number")
        if rule.name in chosen:
            raise InputError(f"{where}.{name}: the rule {rule.name} is set twice, by its code and its name; keep one")
        chosen[rule.name] = dict(values)
    return chosen


def _rule(name: str, where: str) -> Rule:
    try:
        return find_rule(name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None

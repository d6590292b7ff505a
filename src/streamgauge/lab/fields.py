"""Settings from outside (files, flags) into dataclass fields, with errors that name the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from streamgauge.errors import InputError, closest

SHOWN = 80  # characters of a wrong value


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Put the name of a file in front of an InputError raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass, in order."""
    return tuple(field.name for field in fields(kind))


def known(values: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """The values as they are; InputError with the closest match for a key that is not allowed."""
    allowed = tuple(allowed)
    for key in values:
        if key not in allowed:
            raise InputError(f"unknown field {key!r}; {closest(key, allowed)}")
    return dict(values)


def checked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the types that the fields of `kind` declare, without guessing: "4" is no number.

    A list is read as a tuple, and a single value as a tuple of one where a tuple is declared.
    """
    return {name: _checked(kind, name, values[name]) for name in names(kind)}


def _checked(kind: type[Any], name: str, value: Any) -> Any:
    adapter, plural = _adapters(kind)[name]
    if plural and isinstance(value, str | int | float):
        value = (value,)
    try:
        return adapter.validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        given = repr(value)
        given = given if len(given) <= SHOWN else f"{given[:SHOWN]}..."
        raise InputError(f"{name}: {message[0].lower()}{message[1:]}, not {given}") from None


_ADAPTERS: dict[type[Any], dict[str, tuple[TypeAdapter[Any], bool]]] = {}


def _adapters(kind: type[Any]) -> dict[str, tuple[TypeAdapter[Any], bool]]:
    """Field -> (validator, whether it is a tuple), built once per class."""
    if kind not in _ADAPTERS:
        hints = get_type_hints(kind, include_extras=True)
        _ADAPTERS[kind] = {name: (TypeAdapter(hint), "tuple[" in str(hint)) for name, hint in hints.items()}
    return _ADAPTERS[kind]

"""What every word can do: go to JSON and come back without loss."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from streamgauge.errors import InputError

JSON = ConfigDict(ser_json_inf_nan="strings", extra="forbid")


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Built once per class: building one costs milliseconds."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


class Word:
    """Mixin: JSON there and back for a frozen dataclass of plain values."""

    def to_json(self) -> str:
        return _adapter(type(self)).dump_json(self).decode()

    def to_dict(self) -> dict[str, Any]:
        return _adapter(type(self)).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return _adapter(cls).validate_json(text)  # type: ignore[no-any-return]
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the top level"
            raise InputError(f"not a {cls.__name__} in JSON: {first['msg']} at {where}") from None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return _adapter(cls).validate_python(data)  # type: ignore[no-any-return]

"""What a comparison varies, and the runs that follow from it."""

from __future__ import annotations

import itertools
import math
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from streamgauge.errors import InputError
from streamgauge.lab.config import Config
from streamgauge.lab.fields import checked, known, names, naming
from streamgauge.lab.files import MEBI, content

AXES = {"schemes": "scheme", "norms": "norm", "inits": "init", "depths": "depth", "lrs": "lr", "seeds": "seed"}
MOST_ARMS = 10_000


@dataclass(frozen=True)
class Comparison:
    """arms = schemes x norms x inits x depths x lrs x seeds, everything else as in `base`.

    An empty axis takes its value from `base`, and an axis of one value gives it to `base`. Construction
    checks every arm and raises InputError that names the field. `of` and `from_toml` take the same settings flat, the
    axes in the plural beside the fields of `Config`:

        schemes = ["pre", "post"]
        lrs = [3e-4, 1e-3]
        depth = 12
    """

    base: Config = field(default_factory=Config)
    schemes: tuple[str, ...] = ()
    norms: tuple[str, ...] = ()
    inits: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()
    lrs: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value in checked(type(self), vars(self)).items():
            object.__setattr__(self, name, value)
        if (many := math.prod(len(getattr(self, axis)) or 1 for axis in AXES)) > MOST_ARMS:
            raise InputError(f"{many} arms are more than {MOST_ARMS}; name fewer values of an axis")
        for axis in AXES:
            values = getattr(self, axis)
            if repeated := [value for value in values if values.count(value) > 1]:
                raise InputError(f"{axis}: {repeated[0]!r} stands twice; name each value once")
            if len(values) == 1:  # one form for one meaning, so that a comparison is known again
                object.__setattr__(self, "base", replace(self.base, **{AXES[axis]: values[0]}))
                object.__setattr__(self, axis, ())
        self.arms()

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """From flat settings; those in `more` that are not None win (flags over a file)."""
        flat = dict(settings or {})
        for key, value in more.items():
            if value is not None:
                flat.pop(AXES.get(key, ""), None)
                flat[key] = value
        flat = known(flat, (*AXES, *names(Config)))
        for axis, single in AXES.items():
            if axis in flat and isinstance(flat[axis], list | tuple) and not flat[axis]:
                raise InputError(f"{axis}: an empty list; name at least one value, or leave {axis} out")
            if axis in flat and single in flat:
                raise InputError(f"{single}: given beside {axis}; keep one of the two")
        axes = {key: value for key, value in flat.items() if key in AXES}
        return cls(Config(**{key: value for key, value in flat.items() if key not in AXES}), **axes)

    @classmethod
    def from_toml(cls, path: Path | str, **more: Any) -> Self:
        """From a TOML file; InputError names the file, the field and the remedy."""
        path = Path(path)
        try:
            settings = tomllib.loads(content(path, 16 * MEBI, "a TOML file").decode())
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}; give a TOML file") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not TOML: {error}") from None
        with naming(path):
            return cls.of(settings, **more)

    def arms(self) -> dict[str, Config]:
        """Name -> run. The name holds what varies: `pre`, or `pre-depth12-lr0.001-seed0`."""
        axes = [(single, getattr(self, axis) or (getattr(self.base, single),)) for axis, single in AXES.items()]
        varied = [single for single, values in axes if len(values) > 1]
        runs = {}
        for values in itertools.product(*(values for _, values in axes)):
            arm = dict(zip((single for single, _ in axes), values, strict=True))
            label = [str(arm[n]) if n in ("scheme", "norm", "init") else f"{n}{arm[n]}" for n in varied]
            runs["-".join(label) or arm["scheme"]] = replace(self.base, **arm)
        return runs

    def to_dict(self) -> dict[str, Any]:
        """Flat and plain, as `of` reads it."""
        axes = {axis: list(getattr(self, axis)) for axis in AXES if getattr(self, axis)}
        taken = {AXES[axis] for axis in axes}
        base = {f.name: getattr(self.base, f.name) for f in fields(self.base) if f.name not in taken}
        return axes | {key: _plain(value) for key, value in base.items()}

    def command(self, out: Path | str) -> str:
        """The command line that remakes this comparison: one flag per axis and per field that is not the default."""
        words = ["streamgauge", "compare"]
        plural = {single: axis for axis, single in AXES.items()}
        for key, value in self.to_dict().items():
            if key in AXES or value != _plain(getattr(Config, key)):
                values = value if isinstance(value, list) else [value]
                words += [f"--{plural.get(key, key).replace('_', '-')}", ",".join(map(str, values))]
        return shlex.join([*words, "--out", str(out)])


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

"""comparison.json: what a comparison's folder says about itself, written so that a kill cannot tear it."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from streamgauge.errors import InputError
from streamgauge.gauge.about import versions
from streamgauge.gauge.process import alive, this_process
from streamgauge.lab.alone import alone
from streamgauge.lab.comparison import Comparison
from streamgauge.lab.fields import checked, known, names
from streamgauge.lab.files import MEBI, content

FORMAT = 1
REMEDY = "choose another folder"
LARGEST = 64 * MEBI
RECORD = "comparison.json"
Status = Literal["waiting", "running", "finished", "failed", "interrupted"]
Plain = str | int | float | None
LONGEST_NAME = 255  # bytes, of a file name on common systems
_PID = TypeAdapter(Annotated[int, Field(ge=1, lt=2**31)])


@dataclass(frozen=True)
class Arm:
    """Where one arm stands. note: why it failed, or why it stopped early; seconds: CPU time of its training."""

    status: Status = "waiting"
    note: str = ""
    seconds: float | None = None


@dataclass
class Record:
    """A comparison's folder: `spec` flat, the corpus, command, time (ISO 8601) and versions, and each arm's status.

    process   who trains the arms at the moment; empty when nobody does
    """

    folder: Path
    spec: dict[str, Plain | list[Plain]]
    corpus: dict[str, Plain]
    command: str
    made_at: str
    versions: dict[str, str]
    arms: dict[str, Arm] = field(default_factory=dict)
    process: dict[str, Plain] = field(default_factory=dict)

    def run(self, arm: str) -> Path:
        return self.folder / "arms" / arm

    def busy(self) -> bool:
        """Whether another process is training the arms at this moment."""
        if not self.process or self.process["pid"] == os.getpid():
            return False
        return alive(self.process, (self.folder / RECORD).stat().st_mtime)

    def mark(self, arm: str, status: Status, note: str = "", seconds: float | None = None) -> None:
        """Set an arm's status, on disk too."""
        self.arms[arm] = Arm(status, note, seconds)
        self.save()

    def release(self) -> None:
        """Nobody trains the arms any more."""
        self.process = {}
        self.save()

    def save(self) -> None:
        stored = {"format": FORMAT} | {k: v for k, v in vars(self).items() if k not in ("folder", "arms")}
        stored["arms"] = {name: asdict(arm) for name, arm in self.arms.items()}
        new = self.folder / f".{RECORD}.new"
        with new.open("w") as file:
            json.dump(stored, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / RECORD)

    @classmethod
    def load(cls, folder: Path | str) -> Record:
        """Read a comparison's folder; InputError where there is none."""
        folder = Path(folder)
        file = folder / RECORD
        try:
            stored = json.loads(content(file, LARGEST, "a folder that `streamgauge compare` wrote"))
            if stored.pop("format") != FORMAT:
                raise ValueError("of another version of streamgauge")
            return _read(folder, stored)
        except FileNotFoundError:
            raise InputError(f"{folder}: no {RECORD} here; give a folder that `streamgauge compare` wrote") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"{file}: cannot be read ({why}); delete it, or choose another folder") from None


def _read(folder: Path, stored: dict[str, Any]) -> Record:
    """The record, in the types that it declares; ValueError names the field that is not so."""
    arms = {}
    for name, arm in stored.pop("arms").items():
        if not _names_a_folder(name):
            raise ValueError(f"arms: {name[:40]!r} cannot be the name of an arm")
        arms[name] = Arm(**checked(Arm, asdict(Arm()) | known(arm, names(Arm))))
    values = known(stored, [name for name in names(Record) if name not in ("folder", "arms")])
    record = Record(folder, **values, arms=arms)
    checked(Record, vars(record))
    entropy = record.corpus.get("unigram_entropy")
    if entropy is not None and (isinstance(entropy, str) or not math.isfinite(entropy)):
        raise ValueError("corpus: unigram_entropy is no number")
    if record.process:
        try:
            _PID.validate_python(record.process.get("pid"), strict=True)
        except ValidationError:
            raise ValueError("process: pid is no process number") from None
    return record


def _names_a_folder(name: str) -> bool:
    """Whether `name` is one folder and nothing outside it, on any file system."""
    try:
        short = 0 < len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False
    return short and name.isprintable() and name not in (".", "..") and not {"/", "\\"}.intersection(name)


def opened(out: Path | str, spec: Comparison, corpus: Mapping[str, Any], command: str, resume: bool) -> Record:
    """The record of `out`: a new one, or the one of the same comparison that stands there, to go on with.

    Raises InputError when `out` holds anything else; nothing in it is touched then.
    """
    folder = Path(out)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    arms = {name: Arm() for name in spec.arms()}
    new = Record(folder, spec.to_dict(), dict(corpus), command, now, versions(), arms, this_process())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            if (folder / RECORD).exists():
                new = _resumed(Record.load(folder), new, resume)
            elif any(folder.iterdir()):
                raise InputError(f"{folder}: not empty and no comparison; {REMEDY}")
            new.save()
    except OSError as error:
        raise InputError(f"{folder}: {(error.strerror or str(error)).lower()}; {REMEDY}") from None
    return new


def _resumed(old: Record, new: Record, resume: bool) -> Record:
    folder = old.folder
    if old.busy():
        raise InputError(f"{folder}: process {old.process['pid']} is at work on it; wait for it, or {REMEDY}")
    if not resume:
        raise InputError(f"{folder}: holds a comparison already; resume it, or {REMEDY}")
    if differing := [key for key in new.spec.keys() | old.spec.keys() if new.spec.get(key) != old.spec.get(key)]:
        raise InputError(f"{folder}: holds a comparison with other {', '.join(sorted(differing))}; {REMEDY}")
    if new.corpus != old.corpus:
        raise InputError(f"{folder}: holds a comparison on {old.corpus.get('corpus')}, other data; {REMEDY}")
    done = {name: arm for name, arm in old.arms.items() if arm.status == "finished" and old.run(name).is_dir()}
    return replace(old, arms=new.arms | done, process=new.process)


def emptied(run: Path) -> Path:
    """A run folder with nothing in it: what a killed arm left is taken away."""
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    return run

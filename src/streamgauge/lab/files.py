"""Files that a user names, read whole: only regular ones, and only up to a stated size."""

from __future__ import annotations

from pathlib import Path

from streamgauge.errors import InputError

MEBI = 2**20


def content(path: Path, most: int, what: str) -> bytes:
    """The bytes of a file. InputError for a pipe or a device, which may never end, and beyond `most` bytes.

    OSError where it is missing or unreadable, as `open` says it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: a pipe or a device, not a file; give {what}")
    with path.open("rb") as file:
        read = file.read(most + 1)
    if len(read) > most:
        raise InputError(f"{path}: larger than {most / MEBI:.6g} MiB; give {what} below that")
    return read

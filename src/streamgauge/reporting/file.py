"""Where a report may be written: never over anything but a report."""

from __future__ import annotations

from pathlib import Path

from streamgauge.errors import InputError

SUFFIXES = (".html", ".htm")
HEAD = b"<!doctype html>"


def check_page(file: Path) -> None:
    """InputError where `file` is no HTML file by its name, is no regular file, or holds something else."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; give the name of the HTML file to write")
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"{file}: a report is an HTML file; give a name that ends in .html")
    if not file.exists():
        return
    if not file.is_file():
        raise InputError(f"{file}: a pipe or a device, not a file; give another name")
    try:
        with file.open("rb") as page:
            head = page.read(len(HEAD))
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}; give another name") from None
    if head.lower() != HEAD and head:
        raise InputError(f"{file}: holds something else than a report; give another name")

"""Text as bytes: Python's own standard library, or the user's files, split into train and validation."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from streamgauge.errors import InputError
from streamgauge.lab.fields import naming
from streamgauge.lab.files import MEBI, content

VOCAB = 256
STDLIB = "stdlib"
VALIDATION_SHARE = 0.08
LARGEST = 1024 * MEBI  # bytes of all files together; they are held in memory three times

SHIPPED_APART = frozenset({"test", "idlelib", "tkinter", "turtledemo", "turtle", "lib2to3", "ensurepip", "distutils"})
GENERATED = frozenset({"encodings", "pydoc_data"})
FOLDERS = frozenset({"test", "tests", "site-packages", "dist-packages", "__pycache__"})


@dataclass(frozen=True)
class Corpus:
    """Bytes to predict: H = -sum_b p_b ln p_b is what a model reaches that knows frequencies only.

    train, validation   uint8 [bytes]
    sha256              over the names and the contents of all files, in order
    unigram_entropy     H of the validation bytes, in nats; unigram_entropy_train that of the training bytes
    """

    train: Tensor
    validation: Tensor
    sha256: str
    description: str
    unigram_entropy: float
    unigram_entropy_train: float

    def batch(self, seed: int, step: int, batch: int, context: int) -> tuple[Tensor, Tensor]:
        """Inputs and next-byte targets, int64 [batch, context]: a function of (seed, step), so equal for all arms."""
        starts = np.random.default_rng([seed, step]).integers(0, len(self.train) - context, size=batch)
        return _windows(self.train, starts.tolist(), context)

    def validation_batches(self, count: int, batch: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same `count` batches at every call and for every seed: windows spread evenly over the bytes."""
        starts = np.linspace(0, len(self.validation) - context - 1, count * batch).round().astype(int)
        for i in range(count):
            yield _windows(self.validation, starts[i * batch : (i + 1) * batch].tolist(), context)

    def check(self, context: int) -> None:
        """InputError when either split is too short for one window of `context` bytes and its target."""
        for name, part in (("training", self.train), ("validation", self.validation)):
            if len(part) <= context:
                raise InputError(
                    f"data: {self.description} leaves {len(part)} {name} bytes, too short for context={context}; "
                    "give a longer text or a smaller context"
                )

    def facts(self) -> dict[str, str | int | float]:
        """What stands in a run's record about its data."""
        return {
            "corpus": self.description,
            "corpus_sha256": self.sha256,
            "corpus_train_bytes": len(self.train),
            "corpus_validation_bytes": len(self.validation),
            "unigram_entropy": self.unigram_entropy,
            "unigram_entropy_train": self.unigram_entropy_train,
            "vocab": VOCAB,
        }


def load(data: tuple[str, ...] = (STDLIB,)) -> Corpus:
    """The corpus that a run's `data` names: "stdlib", or the paths of one or more text files."""
    return standard_library() if data == (STDLIB,) else text(*data)


@cache
def standard_library() -> Corpus:
    """The *.py files of the running Python's standard library, sorted by path; about 8 % of the files validate.

    Only modules that `sys.stdlib_module_names` lists count, so nothing installed beside them does. Left out are
    tests, what some distributions of Python ship apart (the text shall not depend on them), and generated files:
    the near-equal tables of `encodings` would stand on both sides of the split, the 0.7 MB of `pydoc_data` on one.
    A file validates when the SHA-256 of its path falls into the lowest 8 % of the range.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = [(path.relative_to(root).as_posix(), path) for path in root.rglob("*.py")]
    named = [(name, _read(path).replace(b"\r\n", b"\n")) for name, path in sorted(files) if _wanted(name)]
    if not named:
        raise InputError(f"data: no source of the standard library under {root}; give text files instead")
    train = b"".join(data for name, data in named if not validates(name))
    validation = b"".join(data for name, data in named if validates(name))
    return _corpus(named, train, validation, f"standard library of Python {platform.python_version()}")


def text(*paths: str) -> Corpus:
    """Text files as they are, byte by byte; the last 8 % of each file validate.

    Raises InputError for a file that is missing, unreadable, empty or no regular file, and beyond 1 GiB in all.
    """
    if not paths:
        raise InputError(f"data: no file given; name text files, or {STDLIB!r}")
    named, left = [], LARGEST
    for path in paths:
        text = _read(Path(path), left)
        if not text.strip():
            raise InputError(f"data: {path} is empty; give a file with text in it")
        named.append((Path(path).name, text))
        left -= len(text)
    cuts = [len(text) - round(VALIDATION_SHARE * len(text)) for _, text in named]
    train = b"".join(text[:cut] for (_, text), cut in zip(named, cuts, strict=True))
    validation = b"".join(text[cut:] for (_, text), cut in zip(named, cuts, strict=True))
    return _corpus(named, train, validation, ", ".join(name for name, _ in named))


def unigram_entropy(text: bytes) -> float:
    """H = -sum_b p_b ln p_b over the bytes b that occur, in nats."""
    counts = np.bincount(np.frombuffer(text, np.uint8), minlength=VOCAB)
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def validates(name: str) -> bool:
    """Whether this file of the standard library stands in the validation split."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) < VALIDATION_SHARE * 2**64


def _wanted(name: str) -> bool:
    top, *rest = name.removesuffix(".py").split("/")
    return top in sys.stdlib_module_names - SHIPPED_APART - GENERATED and not FOLDERS.intersection(rest)


def _read(path: Path, most: int = LARGEST) -> bytes:
    try:
        with naming("data"):
            return content(path, most, "text files")
    except OSError as error:
        raise InputError(
            f"data: cannot read {path}: {(error.strerror or str(error)).lower()}; give a text file"
        ) from None


def _corpus(named: list[tuple[str, bytes]], train: bytes, validation: bytes, description: str) -> Corpus:
    digest = hashlib.sha256()
    for name, text in named:
        for part in (name.encode(errors="surrogateescape"), text):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
    if not train or not validation:
        raise InputError(f"data: {description} is too short to split; give a longer text")
    return Corpus(
        torch.frombuffer(bytearray(train), dtype=torch.uint8),
        torch.frombuffer(bytearray(validation), dtype=torch.uint8),
        digest.hexdigest(),
        description,
        unigram_entropy(validation),
        unigram_entropy(train),
    )


def _windows(part: Tensor, starts: list[int], context: int) -> tuple[Tensor, Tensor]:
    rows = torch.stack([part[start : start + context + 1] for start in starts]).long()
    return rows[:, :-1], rows[:, 1:]

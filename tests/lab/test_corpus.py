from __future__ import annotations

import argparse
import ast
import dataclasses
import email.message
import hashlib
import json.decoder
import logging
import math
import os
import subprocess
import sys
import sysconfig
import typing
from collections import Counter
from pathlib import Path

import pytest
import torch

from streamgauge.errors import InputError
from streamgauge.lab import corpus
from streamgauge.lab.corpus import load, standard_library, text, unigram_entropy, validates


def test_entropy_of_known_distributions() -> None:
    assert unigram_entropy(b"aaaa") == 0.0
    assert unigram_entropy(b"abcd" * 7) == pytest.approx(math.log(4))
    assert unigram_entropy(b"aab") == pytest.approx(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))


def test_entropy_is_the_loss_of_the_best_constant_predictor(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello hello world " * 300)
    c = text(str(tmp_path / "a.txt"))
    targets = c.validation.long()
    frequencies = torch.bincount(targets, minlength=256) / len(targets)
    loss = torch.nn.functional.cross_entropy(frequencies.log().expand(len(targets), -1), targets)
    assert c.unigram_entropy == pytest.approx(float(loss), rel=1e-5)


def test_standard_library_is_whole_files_split_by_path() -> None:
    c = standard_library()
    share = len(c.validation) / (len(c.validation) + len(c.train))
    assert 0.04 < share < 0.12
    assert 1e6 < len(c.train) < 2e7
    train, validation = c.train.numpy().tobytes(), c.validation.numpy().tobytes()
    for module in (os, ast, argparse, dataclasses, json.decoder, email.message, logging, typing):
        path = Path(module.__file__)
        name = path.relative_to(sysconfig.get_path("stdlib")).as_posix()
        holder, other = (validation, train) if validates(name) else (train, validation)
        assert path.read_bytes() in holder, name
        assert path.read_bytes() not in other, name


def test_standard_library_leaves_out_tests_and_installed_packages() -> None:
    for name in ("test/test_os.py", "site-packages/torch/__init__.py", "unittest/test/x.py", "sitecustomize.py"):
        assert not corpus._wanted(name), name
    for name in ("os.py", "json/decoder.py", "unittest/mock.py"):
        assert corpus._wanted(name), name


def test_hash_is_that_of_names_and_contents(tmp_path: Path) -> None:
    for name, content in (("a.txt", b"x" * 100), ("b.txt", b"y" * 100)):
        (tmp_path / name).write_bytes(content)
    parts = [b"a.txt", b"x" * 100, b"b.txt", b"y" * 100]
    expected = hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).hexdigest()
    assert text(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")).sha256 == expected
    (tmp_path / "b.txt").write_bytes(b"y" * 99 + b"z")
    assert text(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")).sha256 != expected


@pytest.mark.slow
def test_standard_library_is_the_same_in_another_process_and_locale() -> None:
    code = "from streamgauge.lab.corpus import standard_library as s; print(s().sha256)"
    env = os.environ | {"PYTHONHASHSEED": "7", "LC_ALL": "C"}
    out = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, check=True)
    assert out.stdout.strip() == standard_library().sha256


def test_last_part_of_each_text_file_validates(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a" * 92 + b"A" * 8)
    (tmp_path / "b.txt").write_bytes(b"b" * 920 + b"B" * 80)
    c = text(str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    assert Counter(map(chr, c.train.tolist())) == {"a": 92, "b": 920}
    assert Counter(map(chr, c.validation.tolist())) == {"A": 8, "B": 80}


def test_batches_depend_on_seed_and_step_alone() -> None:
    c = standard_library()
    torch.manual_seed(1)
    x, y = c.batch(seed=3, step=5, batch=4, context=32)
    torch.manual_seed(2)
    again, _ = c.batch(seed=3, step=5, batch=4, context=32)
    assert torch.equal(x, again)
    assert torch.equal(x[:, 1:], y[:, :-1]), "the target is the next byte"
    assert x.dtype == y.dtype == torch.int64
    assert x.shape == y.shape == (4, 32)
    assert not torch.equal(x, c.batch(seed=3, step=6, batch=4, context=32)[0])
    assert not torch.equal(x, c.batch(seed=4, step=5, batch=4, context=32)[0])


def test_windows_reach_both_ends_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    c = text(str(tmp_path / "a.txt"))  # 92 + 8 bytes
    seen = {int(b) for step in range(200) for part in c.batch(0, step, 4, 8) for b in part.flatten()}
    assert seen == set(range(92))
    (x, y), *rest = list(c.validation_batches(2, 2, 4))
    assert int(x[0, 0]) == 92
    assert int(rest[-1][1][-1, -1]) == 99
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_shortest_text_that_fits_has_one_window(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    c = text(str(tmp_path / "a.txt"))
    c.check(7)
    assert len(list(c.validation_batches(3, 2, 7))) == 3
    with pytest.raises(InputError, match=r"a\.txt leaves 8 validation bytes, too short for context=8"):
        c.check(8)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"  \n ", "is empty"), (b"abc", "too short to split")],
)
def test_useless_files_are_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        load((str(tmp_path / "t.txt"),))
    assert "t.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.txt: no such file"):
        load((str(tmp_path / "none.txt"),))
    with pytest.raises(InputError, match="is a directory"):
        load((str(tmp_path),))
    with pytest.raises(InputError, match="no file given"):
        load(())

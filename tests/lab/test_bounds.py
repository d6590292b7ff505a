"""Settings and files that would hang or exhaust the machine are refused in one line, at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import InputError
from streamgauge.lab import Comparison, Config, arms, compare, corpus, text
from streamgauge.lab.room import check_room


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("depth", 1_000_000),
        ("width", 2**40),
        ("heads", 2**40),
        ("context", 10**12),
        ("batch", 10**12),
        ("steps", 10**18),
        ("every", 10**18),
        ("validate_every", 10**18),
        ("validation_batches", 10**12),
        ("warmup", 10**18),
        ("seed", 2**63),
        ("seed", 10**40),
    ],
)
def test_every_size_has_an_upper_bound(field: str, value: int) -> None:
    with pytest.raises(InputError, match=f"{field}: input should be less than") as caught:
        Config(**{field: value})
    assert "\n" not in str(caught.value)


def test_the_largest_seed_works() -> None:
    assert Config(seed=2**63 - 1).seed == 2**63 - 1


def test_arms_are_counted_before_they_are_made() -> None:
    with pytest.raises(InputError, match="1000000 arms are more than 10000"):
        Comparison.of(depths=list(range(1, 1001)), seeds=list(range(1000)))


@pytest.mark.parametrize("axis", ["schemes", "norms", "inits", "depths", "lrs", "seeds"])
def test_an_empty_axis_is_an_error(axis: str) -> None:
    with pytest.raises(InputError, match=f"{axis}: an empty list"):
        Comparison.of({axis: []})


@pytest.mark.parametrize("settings", [{"depth": 10_000, "width": 65_536}, {"batch": 2**20, "context": 2**20}])
def test_a_model_larger_than_the_memory_is_refused_before_it_is_built(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="GiB"):
        check_room(Config(**settings))


def test_the_smallest_memory_of_a_run_is_no_more_than_it_takes() -> None:
    check_room(Config(depth=48, width=256))


@pytest.mark.parametrize("error", [RuntimeError("can't allocate memory:\nbuy more"), MemoryError()])
def test_what_cannot_be_allocated_is_one_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(config: Any) -> Any:
        raise error

    monkeypatch.setattr(arms, "build", build)
    with pytest.raises(InputError, match="depth=4, width=64 cannot be built") as caught:
        compare(Comparison.of(), tmp_path / "c")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_pipes_and_devices_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(InputError, match=r"data: .*a pipe or a device"):
            text(path)
        with pytest.raises(InputError, match="a pipe or a device"):
            Comparison.from_toml(path)
        with pytest.raises(InputError, match="a pipe or a device"):
            Config.from_json(Path(path))


def test_the_sizes_of_files_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "LARGEST", 100)
    for name in "ab":
        (tmp_path / name).write_text("x" * 60)
    text(str(tmp_path / "a"))
    with pytest.raises(InputError, match=r"b: larger than .* MiB"):
        text(str(tmp_path / "a"), str(tmp_path / "b"))


@pytest.mark.parametrize("content", ["[]", "3", "[" * 100_000])
def test_a_config_that_is_no_object_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match="not a run's config") as caught:
        Config.from_json(tmp_path / "config.json")
    assert "\n" not in str(caught.value)

"""`--shard I/N`, by which `make test-slow` runs a part of the tests at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


FILES = [path.relative_to(Path(__file__).parents[1]).as_posix() for path in Path(__file__).parent.rglob("test_*.py")]


@pytest.fixture(name="shards")
def conftest(request: pytest.FixtureRequest) -> Any:
    """The module of the option."""
    return request.config.pluginmanager.getplugin(str(Path(__file__).with_name("conftest.py")))


def test_each_file_is_in_one_shard_with_all_its_tests(shards: Any) -> None:
    for file in FILES:
        homes = [index for index in range(1, 7) if shards.is_in_shard(f"{file}::test_a", index, 6)]
        assert len(homes) == 1
        assert shards.is_in_shard(f"{file}::test_b[x::y]", homes[0], 6)


def test_a_shard_is_read_from_two_numbers(shards: Any) -> None:
    assert shards.shard_of("2/6") == (2, 6)


@pytest.mark.parametrize("text", ["0/6", "7/6", "6", "1/", "-1/2", "a/b", ""])
def test_a_shard_that_is_not_there_is_an_error_that_shows_one_that_is(shards: Any, text: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"such as --shard 2/4"):
        shards.shard_of(text)

"""What all tests share."""

import gc
import os
import zlib
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keep what the test files import out of garbage collection.

    With torch and transformers loaded, a full collection takes 0.4 s of CPU; accelerate starts one in each training.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """`os.fsync` returns at once: no test cuts the power, and each checkpoint waits for it twenty times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="I/N", help="run part I of N of the selected tests, by files")


@pytest.hookimpl(trylast=True)  # after -m and -k have deselected theirs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    index, number = shard_of(config.getoption("--shard"))
    others = [item for item in items if not is_in_shard(item.nodeid, index, number)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if is_in_shard(item.nodeid, index, number)]


def is_in_shard(nodeid: str, index: int, number: int) -> bool:
    """Whether a test is in shard `index` of `number`: by a hash of its file, whose fixtures are then made once."""
    return zlib.crc32(nodeid.partition("::")[0].encode()) % number == index - 1


def shard_of(text: str) -> tuple[int, int]:
    """I and N of `I/N`."""
    index, _, number = text.partition("/")
    if not (index.isdecimal() and number.isdecimal() and 1 <= int(index) <= int(number)):
        raise pytest.UsageError(f"--shard is {text!r}; expected I/N with 1 <= I <= N, such as --shard 2/4.")
    return int(index), int(number)

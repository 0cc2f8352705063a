"""Work on every process: it is done on each, and where it fails on one it raises on all, none of which waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pettingllms_trl.processes.on_all import entered_on_all, on_all
from two_processes import FORKS, in_two_processes


def test_alone_work_is_done_and_its_failure_is_its_own() -> None:
    assert on_all(lambda: 3) == [3]

    def fail() -> None:
        raise KeyError("no board")

    with pytest.raises(KeyError, match="no board"):
        on_all(fail)


@FORKS
def test_all_have_the_results_of_all(tmp_path: Path) -> None:
    assert in_two_processes(lambda process: on_all(lambda: process * 2), tmp_path) == [[0, 2], [0, 2]]


@FORKS
def test_where_work_fails_on_one_it_raises_on_all(tmp_path: Path) -> None:
    def fails_on_1(process: int) -> None:
        on_all(lambda: 1 / (1 - process))

    first, second = in_two_processes(fails_on_1, tmp_path)
    assert isinstance(second, ZeroDivisionError)
    assert str(first).startswith("process 1 of 2 failed: ZeroDivisionError: ")


@pytest.mark.parametrize("where", ["entering", "leaving"])
@FORKS
def test_where_a_context_fails_on_one_it_raises_on_all(where: str, tmp_path: Path) -> None:
    reached: list[str] = []

    @contextmanager
    def context(process: int) -> Iterator[str]:
        if (where, process) == ("entering", 0):
            raise RuntimeError("it does not wake")
        yield "awake"
        if (where, process) == ("leaving", 0):
            raise RuntimeError("it does not sleep")

    def enter(process: int) -> list[str]:
        try:
            with entered_on_all(context(process)) as state:
                reached.append(state)
        except RuntimeError as error:
            return [*reached, str(error)]
        return reached

    own = {"entering": ["it does not wake"], "leaving": ["awake", "it does not sleep"]}[where]
    of_other = [*own[:-1], f"process 0 of 2 failed: RuntimeError: {own[-1]}. What it said is in its log."]
    assert in_two_processes(enter, tmp_path) == [own, of_other]


def test_a_context_is_left_with_what_its_block_raised() -> None:
    seen: list[str] = []

    @contextmanager
    def context() -> Iterator[None]:
        try:
            yield
        except KeyError:
            seen.append("KeyError")
            raise

    with pytest.raises(KeyError), entered_on_all(context()):
        raise KeyError("no board")
    assert seen == ["KeyError"]


@FORKS
def test_a_result_that_cannot_be_sent_on_one_raises_on_all(tmp_path: Path) -> None:
    def made_on_1(process: int) -> None:
        on_all(lambda: (lambda: 3) if process else 3)

    first, second = in_two_processes(made_on_1, tmp_path)
    assert "Can't pickle" in str(second)
    assert "process 1 of 2 failed: " in str(first)


@FORKS
def test_where_a_context_cannot_be_entered_on_one_the_other_leaves_it(tmp_path: Path) -> None:
    left: list[str] = []

    @contextmanager
    def context(process: int) -> Iterator[None]:
        if process == 0:
            raise RuntimeError("it does not wake")
        try:
            yield
        finally:
            left.append("left")

    def enter(process: int) -> list[str]:
        own = context(process)  # kept, so that nothing but leaving it ends it
        try:
            with entered_on_all(own):
                pass
        except RuntimeError:
            return list(left)
        return ["entered"]

    assert in_two_processes(enter, tmp_path) == [[], ["left"]]

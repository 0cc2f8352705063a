"""The check of states: what keeps too little fails, what keeps too much is warned of, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.testing import Result, check
from planted_states import PLANTED, of_function, rounds


def found(make: Callable[[], Any], seeds: int = 4) -> Result:
    (result,) = check(make, seeds=range(seeds), only=["states"])
    return result


@pytest.mark.parametrize(("name", "make", "kind"), PLANTED, ids=[name for name, _, _ in PLANTED])
def test_a_state_that_keeps_too_little_or_too_much_is_found(name: str, make: Callable[..., Any], kind: str) -> None:
    assert found(partial(make, True)).status == "passed"
    result = found(partial(make, False))
    assert (result.status, f"the state keeps too {kind}" in result.detail.replace("The", "the")) == (
        "failed" if kind == "little" else "warning",
        True,
    )


def test_both_histories_are_said_and_what_differs() -> None:
    detail = found(partial(of_function, rounds, False)).detail
    first, *more = detail.splitlines()
    assert first.startswith("the state keeps too little: after '")
    assert "state_hash() is the same, and after [" in first
    assert more[0].startswith("seed 0, replies so far: [")


def test_histories_are_not_checked() -> None:
    make = partial(pettingllms_envs.make, "conversation", roles=["solver"], grader="exact")
    assert found(make).status == "skipped"

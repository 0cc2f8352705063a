"""Rollouts are those that were recorded, to the last field, whatever threads, processes and failures there are."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl.rollout import Rollout, merge
from plays import play
from random_teams import KINDS, Failures
from recorded import digest, known_cases, played, random_case


DIGESTS = json.loads((Path(__file__).parents[1] / "data" / "rollouts.json").read_text("utf-8"))
NUM_RANDOM = 200


def test_rollouts_of_known_environments_are_those_recorded() -> None:
    found = {name: digest(played(play, case, seed=i)) for i, (name, case) in enumerate(known_cases())}
    assert found == DIGESTS["known"]


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=pytest.mark.slow if first >= 20 else ()) for first in range(0, NUM_RANDOM, 20)]
)
def test_rollouts_of_random_environments_are_those_recorded(first: int) -> None:
    numbers = range(first, first + 20)
    assert [digest(played(play, random_case(n), seed=n)) for n in numbers] == DIGESTS["random"][first : first + 20]


@pytest.mark.parametrize("num_threads", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_threads_change_no_episode(num_threads: int) -> None:
    for number in range(0, NUM_RANDOM, 8):
        expected = played(play, random_case(number), seed=number)
        _expect_episodes_of(expected, played(play, random_case(number), seed=number, num_threads=num_threads), number)


def test_two_processes_play_what_one_does() -> None:
    for number in range(0, NUM_RANDOM, 8):
        halves = (range(6), range(6, 12))
        parts = [played(play, random_case(number), seed=number, only=half) for half in halves]
        assert all(isinstance(part, Rollout) for part in parts)
        _expect_episodes_of(played(play, random_case(number), seed=number), merge(parts, num_rows=12), number)


def _expect_episodes_of(expected: Rollout, found: Rollout, number: int) -> None:
    """With several episodes of an instance, which of them drops it depends on which fails first."""
    case = random_case(number)
    if not expected.dropped or (case["sampling"] == "tree" and not case["num_continuations"]):
        assert (found.episodes, dict(found.dropped)) == (expected.episodes, dict(expected.dropped))


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_hangs_fails_as_one_that_raises(kind: Any) -> None:
    def case(seconds: float) -> dict[str, Any]:
        make_env = partial(kind, 3, Failures(0.02, always=False, seconds=seconds))
        return {"make_env": make_env, "num_candidates": 3, "num_rows": 8}

    expected = played(play, case(0.0), seed=1)
    assert isinstance(expected, Rollout)
    assert expected.retried > 0
    found = played(play, case(1.2), seed=1, num_threads=4, env_timeout=0.6)
    assert isinstance(found, Rollout)
    assert (found.episodes, found.retried, found.timed_out) == (expected.episodes, expected.retried, expected.retried)

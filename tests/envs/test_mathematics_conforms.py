"""The math environments pass the conformance suite in every workflow, with programs run in the sandbox."""

import importlib
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from optional_checks import skipped_checks
from pettingllms_envs.registry import find
from pettingllms_envs.testing import CHECKS, check


NAMES = ("aime", "math", "olympiad_bench")
WORKFLOWS: dict[str, dict[str, Any]] = {
    "tool_reasoner": {"workflow": "tool_reasoner"},
    "single": {"workflow": "single"},
    "single with tools": {"workflow": "single", "tools": True},
    "ensemble": {"workflow": "ensemble", "num_solvers": 2, "num_turns": 2},
    "debate": {"workflow": "debate", "num_turns": 2},
    "self_verification": {"workflow": "self_verification"},
}
ROUND_CHECKS = ("snapshots", "learning signal", "potential", "channel")
"""Checks of `ensemble` by default; its base class has the other two of that kind, too."""
BLIND_TEAM = tuple(f"```python\nprint({n})\n```\n\\boxed{{{n}}}" for n in ("2", "3", "10", "'1/2'"))
FLOOR = 0.15  # of 20 problems a blind answer may hit 3


ROW_CHECKS = ("oracle", "rewards", "options", "no solution shown")
"""Quick checks whose outcome depends on the problems; most others see the workflow, which the environments share."""


@pytest.mark.parametrize(
    ("name", "workflow", "seeds", "only"),
    [
        pytest.param("aime", "tool_reasoner", range(2), CHECKS, id="aime-tool_reasoner", marks=pytest.mark.slow),
        pytest.param("aime", "ensemble", range(2), ROUND_CHECKS, id="aime-ensemble"),
        *(pytest.param(name, "tool_reasoner", range(4), ROW_CHECKS, id=f"{name}-rows") for name in NAMES[1:]),
        *(
            pytest.param(name, workflow, range(20), CHECKS, marks=pytest.mark.slow, id=f"{name}-{workflow}-20")
            for name in NAMES
            for workflow in WORKFLOWS
        ),
    ],
)
def test_an_environment_passes_the_checks(name: str, workflow: str, seeds: range, only: Collection[str]) -> None:
    settings = WORKFLOWS[workflow]
    parallel_env = importlib.import_module(find(name).module).parallel_env
    report = check(
        partial(pettingllms_envs.make, name, **settings),
        make_parallel=partial(parallel_env, **settings),
        seeds=seeds,
        blind=BLIND_TEAM,
        floor=FLOOR,
        only=only,
    )
    assert report.ok, str(report)
    skipped = sorted(result.name for result in report if result.status == "skipped")
    does_not_apply = skipped_checks(pettingllms_envs.make(name, **settings))
    assert skipped == [each for each in does_not_apply if each in only], str(report)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        pytest.param(name, split, marks=() if (split == "validation") == (name == "math") else pytest.mark.slow)
        for name in NAMES
        for split in ("validation", "test")
    ],
)
def test_the_oracle_succeeds_and_blind_replies_do_not_in_the_other_splits(name: str, split: str) -> None:
    report = check(
        partial(pettingllms_envs.make, name, workflow="single"),
        options=[{"split": split}],
        only=["oracle", "floors", "rewards", "no solution shown"],
        blind=BLIND_TEAM,
        floor=FLOOR,
    )
    assert report.ok, str(report)

"""Every environment of coding, in each of its workflows, passes the conformance suite on problems of our own."""

import importlib
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from optional_checks import skipped_checks
from pettingllms_envs.registry import find
from pettingllms_envs.testing import CHECKS, check, replies


NAMES = ("apps", "code_contests", "live_code_bench")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"workflow": "coder_tester"},
    {"workflow": "coder_tester", "order": ("tester", "coder")},
    {"workflow": "single"},
    {"workflow": "single", "tools": True},
    {"workflow": "self_refine"},
)


# Half a second a test, for one of CodeContests' wrong programs in each problem is one that takes too long.
QUICK = {"cpu": 0.5, "train_tests": 6}


# Blind replies in 20 episodes each, which is 2,000 programs: with all the others in the slow tests.
BUT_FLOORS = [name for name in CHECKS if name != "floors"]


@pytest.mark.parametrize("settings", [pytest.param(SETTINGS[0], marks=pytest.mark.slow), SETTINGS[2]], ids=str)
def test_apps_passes_the_checks(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "LONGEST", 2**16)  # sixteen times as long in the slow tests
    passes("apps", range(1), only=BUT_FLOORS, **settings, **QUICK)


@pytest.mark.parametrize("name", [pytest.param(NAMES[1], marks=pytest.mark.slow), *NAMES[2:]])
def test_the_oracle_is_best_and_its_program_is_not_shown(name: str) -> None:
    make = partial(pettingllms_envs.make, name, **QUICK)
    report = check(make, seeds=range(4), only=["oracle", "rewards", "snapshots", "no solution shown"])
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_environment_passes_every_check(name: str, settings: dict[str, Any]) -> None:
    passes(name, range(20), **settings)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("name", NAMES)
def test_an_environment_passes_in_the_other_splits(name: str, split: str) -> None:
    make = partial(pettingllms_envs.make, name)
    report = check(make, options=[{"split": split}], only=["oracle", "floors", "rewards", "no solution shown"])
    assert report.ok, str(report)


def passes(name: str, seeds: range, only: Collection[str] = tuple(CHECKS), **settings: Any) -> None:
    parallel_env = importlib.import_module(find(name).module).parallel_env
    make = partial(pettingllms_envs.make, name, **settings)
    report = check(make, make_parallel=partial(parallel_env, **settings), seeds=seeds, only=only)
    assert report.ok, str(report)
    skipped = sorted(result.name for result in report if result.status == "skipped")
    assert skipped == [each for each in skipped_checks(make()) if each in only], str(report)

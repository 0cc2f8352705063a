"""Two processes with a vLLM engine each train as one: the same tokens and weights, sampled as the trainer would.

`pytest -s` prints a row of the figures for each layout and kind of sharding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launches import KINDS, accelerated, launched, report, two
from vllm_teams import ROUNDING, check_same, num_equal, off_by, team


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

LAYOUTS = {
    "L1": team("shared", about={"evaluate": True, "play": True}),
    "L2": team("lora", about={"play_first": True}),
    "L3": team("full"),
    "mixture": team("mixture"),
}
OTHERS = {
    "a frozen partner": team("partner"),
    "a partner behind an API": team("api"),
    "a curriculum": team("lora", about={"curriculum": True, "seeds": [1, 2, 3, 4, 5, 7, 8, 9]}),
    "filters, other rows for what they drop": team("lora", about={"filters": True}, max_resamples=2),
    "rows from a common counter": team("lora", max_envs=1),
    "an instance is dropped": team("lora", about={"env": "fails", "seeds": [1, 2, 3]}),
}
BROKEN = {
    "the process in the seed": team("lora", about={"control": "the process in the seed"}),
    "an adapter stays behind": team("lora", about={"control": "an adapter stays behind"}, canary=None),
}


@pytest.fixture(scope="module")
def one(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one")
    launched(out, {**LAYOUTS, **OTHERS}, base_path)
    return out


@pytest.fixture(scope="module")
def ddp(base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ddp")
    launched(out, {**LAYOUTS, **OTHERS, **BROKEN}, base_path, *two())
    return out


@pytest.fixture(scope="module", params=KINDS)
def sharded(request: Any, base_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sharded") / request.param
    out.mkdir()
    launched(out, LAYOUTS, base_path, *accelerated(request.param, out))
    return out


@pytest.mark.parametrize("name", [*LAYOUTS, *OTHERS])
def test_two_processes_train_as_one(name: str, one: Path, ddp: Path) -> None:
    check_same(report(one, name), report(ddp, name), f"{name}, DDP")


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_processes_that_share_weights_or_optimizer_train_as_one(name: str, one: Path, sharded: Path) -> None:
    other = report(sharded, name)
    assert other["is_sharded"] or other["kind"] == "DEEPSPEED"
    check_same(report(one, name), other, f"{name}, {sharded.name}")


def test_two_processes_evaluate_and_play_as_one(one: Path, ddp: Path) -> None:
    mine, theirs = report(one, "L1"), report(ddp, "L1")
    rewards = {name: value for name, value in mine["log"][-1].items() if "reward" in name}
    assert rewards.keys() >= {"eval_reward"}
    assert {name: theirs["log"][-1][name] for name in rewards} == pytest.approx(rewards, abs=1e-6)
    assert theirs["episodes"] == [[0, 1, 2], [0, 1, 2]]


def test_with_the_process_in_the_seed_tokens_would_differ(one: Path, ddp: Path) -> None:
    equal, decisions = num_equal(report(one, "L2"), report(ddp, "the process in the seed"))
    assert 0 < equal < decisions  # those that process 0 plays in the first generation are as they were


def test_an_adapter_that_stays_behind_on_one_process_is_seen_in_the_log_probabilities(ddp: Path) -> None:
    first, *rest = off_by(report(ddp, "an adapter stays behind"))
    assert first <= ROUNDING  # both have the adapters that they began with
    assert max(rest) > 100 * ROUNDING


def test_the_canary_finds_an_adapter_that_stays_behind_on_one_process_and_stops_both(
    base_path: str, tmp_path: Path
) -> None:
    about = {"control": "an adapter stays behind", "fails": True, "compare_every": 1}
    launched(tmp_path, {"late": team("lora", about=about)}, base_path, *two())
    first, second = ((tmp_path / f"late.{process}.error").read_text() for process in range(2))
    assert second.startswith("StaleWeights: step 1: the engine does not sample from the weights that the trainer")
    assert first.startswith(f"RuntimeError: process 1 of 2 failed: {second[:80]}")

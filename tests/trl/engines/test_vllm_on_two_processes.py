"""Two processes with a vLLM engine each train as one: the same tokens and weights, sampled as the trainer would.

`pytest -s` prints a row of the figures for each layout and kind of sharding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launches import KINDS, accelerated, difference, launched, report, spec, two


pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

MOST = 1e-6
"""Largest difference of a weight after three steps."""
ROUNDING = 2e-5
"""Largest difference between log-probabilities of the trainer and of its engine, in nats."""

VLLM = {"use_vllm": True, "vllm_max_model_length": 256, "max_completion_length": 12}
# A tenth of a learning rate at which tokens sampled from last step's weights are off by 1e-2 nats; no clipping, for
# DeepSpeed and FSDP2 add up the norm in another order.
GENTLE = {**VLLM, "learning_rate": 0.05, "max_grad_norm": 0.0}


def team(layout: str, *, about: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return spec(layout, about=about, **{**GENTLE, **options})


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
    out = tmp_path_factory.mktemp(request.param)
    launched(out, LAYOUTS, base_path, *accelerated(request.param, out))
    return out


def num_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int]:
    """Decisions of which prompt and all candidates have equal token ids, and all of them."""
    pairs = [
        (mine[place], theirs.get(place))
        for mine, theirs in zip(one["sampled"], other["sampled"], strict=True)
        for place in mine
    ]
    return sum(theirs is not None and ids_of(mine) == ids_of(theirs) for mine, theirs in pairs), len(pairs)


def ids_of(sampled: Any) -> Any:
    prompt_ids, candidates = sampled
    return prompt_ids, [ids for ids, _ in candidates]


def off_by(one: Mapping[str, Any]) -> list[float]:
    """The largest difference between log-probabilities of trainer and engine, of each step that was logged."""
    return [
        value
        for log in one["log"]
        for name, value in log.items()
        if name.endswith("sampling/sampling_logp_difference/max")
    ]


def check_same(one: dict[str, Any], other: dict[str, Any], name: str) -> None:
    (equal, decisions), weights, logprobs = num_equal(one, other), difference(one, other), off_by(other)
    print(f"\n| {name:45} | {equal} / {decisions} | {weights:.1e} | {max(logprobs):.1e} |")
    assert equal == decisions > 0
    assert other["table"] == one["table"]
    for mine, theirs in zip(one["log"], other["log"], strict=True):
        names = [key for key in mine if key.startswith(("reward", "eval_reward", "agent/"))]
        assert {key: theirs[key] for key in names} == pytest.approx({key: mine[key] for key in names}, abs=1e-6)
    assert weights <= MOST
    assert len(logprobs) >= len(one["sampled"])
    assert max(logprobs) <= ROUNDING


@pytest.mark.parametrize("name", [*LAYOUTS, *OTHERS])
def test_two_processes_train_as_one(name: str, one: Path, ddp: Path) -> None:
    check_same(report(one, name), report(ddp, name), f"{name}, DDP")


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_processes_that_share_weights_or_optimizer_train_as_one(name: str, one: Path, sharded: Path) -> None:
    other = report(sharded, name)
    assert other["is_sharded"] or other["kind"] == "DEEPSPEED"
    check_same(report(one, name), other, f"{name}, {sharded.name.rstrip('0123456789')}")


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
    about = {"control": "an adapter stays behind", "fails": True}
    launched(tmp_path, {"late": team("lora", about=about, canary_steps=1)}, base_path, *two())
    first, second = ((tmp_path / f"late.{process}.error").read_text() for process in range(2))
    assert second.startswith("StaleWeights: step 1: vLLM does not sample from the weights that the trainer holds")
    assert first.startswith(f"RuntimeError: process 1 of 2 failed: {second[:80]}")

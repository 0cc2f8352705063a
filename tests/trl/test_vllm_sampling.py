"""What is asked of vLLM: the configuration's parameters, a role's own, and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.vllm_sampling import Sampling, SamplingOverrides, check_length


AGENTS = ["planner_0", "planner_1", "drafter_0"]


def config(path: Path, **options: Any) -> MultiAgentGRPOConfig:
    return MultiAgentGRPOConfig(str(path), use_cpu=True, bf16=False, **options)


def test_what_shapes_the_distribution_is_said_outright(tmp_path: Path) -> None:
    args = config(tmp_path, temperature=0.7, top_k=5, max_completion_length=9, generation_kwargs={"min_tokens": 2})
    asked = Sampling(args, AGENTS, stop_token_ids=[1, 2]).of("drafter_0", 0, 4)
    del asked["seed"]
    assert asked == {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": 5,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 9,
        "stop": [],
        "stop_token_ids": [1, 2],
        "logprobs": 0,
        "min_tokens": 2,
        "n": 4,
    }


def test_a_role_differs_in_what_it_overrides_and_an_agent_from_its_role(tmp_path: Path) -> None:
    overrides = {
        "planner": SamplingOverrides(temperature=0.3, max_completion_length=7, stop=("\n\n",)),
        "planner_1": SamplingOverrides(top_p=0.9),
    }
    sampling = Sampling(config(tmp_path, max_completion_length=9), AGENTS, overrides)
    told = ("temperature", "top_p", "max_tokens", "stop")
    assert {agent: tuple(sampling.of(agent, 0, 1)[name] for name in told) for agent in AGENTS} == {
        "planner_0": (0.3, 1.0, 7, ["\n\n"]),
        "planner_1": (1.0, 0.9, 9, []),
        "drafter_0": (1.0, 1.0, 9, []),
    }


def test_seeds_repeat_with_the_rollouts_name_and_never_within_it(tmp_path: Path) -> None:
    sampling = Sampling(config(tmp_path), AGENTS)

    def seeds(rollout: str) -> list[int]:
        sampling.begin(rollout)
        return [sampling.of("planner_0", ticket, 8)["seed"] for ticket in (0, 1, 0, 1, 2, 10)]

    first, other, again = seeds("0/3"), seeds("0/4"), seeds("0/3")
    assert first == again
    # vLLM adds the candidate's index, so eight numbers from each seed on are taken.
    taken = [seed + k for seed in first + other for k in range(8)]
    assert len({*taken}) == len(taken) == 96
    assert all(0 <= seed < 2**63 for seed in taken)


@pytest.mark.parametrize(
    ("options", "overrides", "message"),
    [
        ({}, {"planer": SamplingOverrides()}, "overridden for 'planer', but the environment has .* mean 'planner'"),
        ({"generation_kwargs": {"seed": 1, "n": 2}}, {}, "generation_kwargs has n, seed, which the trainer sets"),
        ({"vllm_structured_outputs_regex": "a+"}, {}, "vllm_structured_outputs_regex='a.' is not supported"),
    ],
)
def test_options_that_cannot_be_met_are_refused(
    options: dict[str, Any], overrides: dict[str, SamplingOverrides], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(config(tmp_path, **options), AGENTS, overrides)


def test_a_prompt_must_leave_room_for_one_token() -> None:
    check_length(range(511), "planner_0", 512)
    with pytest.raises(ValueError, match="agent 'planner_0' has 512 tokens, and vLLM was started for 512, the comp"):
        check_length(range(512), "planner_0", 512)

"""What is asked of vLLM: the configuration's parameters, a role's own, and seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.observations import Limits
from pettingllms_trl import MultiAgentGRPOConfig
from pettingllms_trl.engines.kinds import PromptCodec
from pettingllms_trl.engines.vllm.params import VllmParams
from pettingllms_trl.records import Prompt, Request
from pettingllms_trl.role_sampling import SamplingOverrides


TONGUE = PromptCodec(
    tokenize=lambda prompt: [ord(letter) for letter in prompt.messages[-1]["content"]],
    decode=lambda ids: "".join(map(chr, ids)),
    stop_token_ids=[1, 2],
)
AGENTS = dict.fromkeys(["planner_0", "planner_1", "drafter_0"], TONGUE)


def config(path: Path, **options: Any) -> MultiAgentGRPOConfig:
    return MultiAgentGRPOConfig(str(path), use_cpu=True, bf16=False, **options)


def test_what_shapes_the_distribution_is_said_outright(tmp_path: Path) -> None:
    args = config(tmp_path, temperature=0.7, top_k=5, max_completion_length=9, generation_kwargs={"min_tokens": 2})
    asked = VllmParams.of_config(args, AGENTS).of("drafter_0", 0, 4)
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


def test_an_agent_differs_in_what_it_overrides_now(tmp_path: Path) -> None:
    now = {
        "planner_0": SamplingOverrides(temperature=0.3, max_completion_length=7, stop=("\n\n",)),
        "planner_1": SamplingOverrides(top_p=0.9, enable_thinking=True),
        "drafter_0": SamplingOverrides(),
    }
    codecs = {agent: replace(TONGUE, overrides=partial(now.get, agent)) for agent in AGENTS}
    sampling = VllmParams.of_config(config(tmp_path, max_completion_length=9), codecs)
    told = ("temperature", "top_p", "max_tokens", "stop")
    assert {agent: tuple(sampling.of(agent, 0, 1)[name] for name in told) for agent in AGENTS} == {
        "planner_0": (0.3, 1.0, 7, ["\n\n"]),
        "planner_1": (1.0, 0.9, 9, []),
        "drafter_0": (1.0, 1.0, 9, []),
    }
    assert "enable_thinking" not in sampling.of("planner_1", 0, 1)
    now["drafter_0"] = SamplingOverrides(temperature=0.2)
    assert sampling.of("drafter_0", 0, 1)["temperature"] == 0.2


def test_seeds_repeat_with_the_rollouts_name_and_never_within_it(tmp_path: Path) -> None:
    sampling = VllmParams.of_config(config(tmp_path), AGENTS)

    def seeds(rollout: str) -> list[int]:
        sampling.begin(rollout)
        return [sampling.of("planner_0", ticket, 8)["seed"] for ticket in (0, 1, 0, 1, 2, 10)]

    first, other, again = seeds("0/3"), seeds("0/4"), seeds("0/3")
    assert first == again
    # vLLM adds the candidate's index, so eight numbers from each seed on are taken.
    taken = [seed + k for seed in first + other for k in range(8)]
    assert len({*taken}) == len(taken) == 96
    assert all(0 <= seed < 2**63 for seed in taken)


def test_a_request_is_read_and_its_answer_written_in_the_agents_own_tongue(tmp_path: Path) -> None:
    other = PromptCodec(
        tokenize=lambda prompt: [7, 8],
        decode=lambda ids: f"{list(ids)}, and so on",
        overrides=lambda: SamplingOverrides(stop=(", and",)),
    )
    sampling = VllmParams.of_config(config(tmp_path), {**AGENTS, "drafter_0": other})
    planner = sampling.ask(3, Request("planner_0", Prompt([{"role": "user", "content": "ab"}]), 2), 512)
    drafter = sampling.ask(4, Request("drafter_0", Prompt([{"role": "user", "content": "ab"}]), 2), 512)
    assert (planner.ticket, planner.prompt.ids, planner.parameters["stop_token_ids"]) == (3, (97, 98), [1, 2])
    assert (drafter.ticket, drafter.prompt.ids, drafter.parameters["stop_token_ids"]) == (4, (7, 8), [])
    assert sampling.completion(planner, [97, 98], [-1.0, -2.0]).text == "ab"
    completion = sampling.completion(drafter, [5, 6], [-1.0, -2.0])
    assert (completion.ids, completion.text, completion.logprobs) == ((5, 6), "[5, 6]", (-1.0, -2.0))


def test_one_stop_word_of_the_configuration_is_a_word_and_not_its_letters(tmp_path: Path) -> None:
    sampling = VllmParams.of_config(config(tmp_path, generation_kwargs={"stop": "</answer>"}), AGENTS)
    limits = Limits(stop=("END",))
    asked = sampling.ask(0, Request("drafter_0", Prompt([{"role": "user", "content": "ab"}]), 1, limits=limits), 1024)
    assert asked.parameters["stop"] == ["</answer>", "END"]
    assert sampling.completion(asked, [ord(letter) for letter in "a swan</answer>s"], None).text == "a swan"


@pytest.mark.parametrize(("most", "expected"), [(None, 512), (3, 3), (9999, 512)])
def test_an_observations_limits_shorten_a_request_and_add_stop_words(
    tmp_path: Path, most: int | None, expected: int
) -> None:
    args = config(tmp_path, max_completion_length=512)
    ended = replace(AGENTS["drafter_0"], overrides=lambda: SamplingOverrides(stop=(", and",)))
    sampling = VllmParams.of_config(args, {**AGENTS, "drafter_0": ended})
    limits = Limits(most, ("98",))
    asked = sampling.ask(4, Request("drafter_0", Prompt([{"role": "user", "content": "ab"}]), 2, limits=limits), 1024)
    assert (asked.parameters["max_tokens"], asked.parameters["stop"]) == (expected, [", and", "98"])
    assert sampling.ask(5, Request("drafter_0", asked.prompt, 2), 1024).parameters["stop"] == [", and"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generation_kwargs": {"seed": 1, "n": 2}}, "generation_kwargs has n, seed, which the trainer sets"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex='a.' is not supported"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        VllmParams.of_config(config(tmp_path, **options), AGENTS)

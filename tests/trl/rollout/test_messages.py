"""Whether the credit of the trainer teaches the sender of a message, of which only its reader can make use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_trl.credit import at_grpo, counterfactual
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Decision, Request, Sampled
from plays import play


SETTINGS = {"readings": 2, "values": 1000, "digits": 3}
WRONG = ("Say: 1", "Say: 2", "Say: 3")


def reply(prompt: str) -> str:
    """The note, the message or the answer of an agent that does its work."""
    if reading := re.search(r"Your reading 1 of 1: (\d+)", prompt):
        return f"Notes: {reading[1]}"
    if told := re.search(r"tells you: (\d+)", prompt):
        return f"Answer: {told[1]}"
    return f"Say: {re.findall(r'Your notes: ([0-9]+)', prompt)[0]}"


def sample(requests: Sequence[Request]) -> list[Sampled]:
    """Right replies, but of the candidates of a message all except the first are wrong."""
    found = []
    for request in requests:
        right = reply(request.prompt.messages[-1]["content"])
        others = WRONG if right.startswith("Say") else (right,) * 3
        replies = (right, *others)[: request.num_candidates]
        found.append(
            Sampled(replace(request.prompt, ids=(1,)), tuple(Completion(ids=(2,), text=each) for each in replies))
        )
    return found


def message(communication_reward: bool, num_continuations: int) -> tuple[list[Decision], int]:
    """The decisions of an episode, and the index of the one on the message."""
    make = partial(pettingllms_envs.make, "note_taking", **SETTINGS, communication_reward=communication_reward)
    rollout = play(
        [{"seed": 1}],
        make_env=make,
        engine=BatchedEngine(sample),
        sampling="tree",
        num_candidates=4,
        num_continuations=num_continuations,
        seed="messages",
    )
    (episode,) = rollout.episodes
    texts = [decision.candidates[0].completion.text for decision in episode.decisions]
    return list(episode.decisions), next(number for number, text in enumerate(texts) if text.startswith("Say"))


@pytest.mark.parametrize(
    ("communication_reward", "credit", "num_continuations", "is_credited"),
    [(True, at_grpo, 0, True), (False, at_grpo, 0, False), (False, counterfactual, 1, True)],
    ids=["paid, at_grpo", "unpaid, at_grpo", "unpaid, counterfactual"],
)
def test_the_right_message_has_an_advantage_if_it_is_paid_or_the_credit_looks_ahead(
    communication_reward: bool, credit: object, num_continuations: int, is_credited: bool
) -> None:
    decisions, at = message(communication_reward, num_continuations)
    right, *wrong = credit(decisions)[at]  # type: ignore[operator]
    if is_credited:
        assert right > 0 > max(wrong)
    else:
        assert (right, *wrong) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(("choose", "num_right"), [("reward", 6), ("value", 32)])
def test_an_unpaid_message_is_chosen_by_what_came_of_it_or_else_at_random(choose: Any, num_right: int) -> None:
    # One of four messages is right, and the step of none is paid: at random it is chosen in 8 of 32 episodes on
    # average, and with these seeds in 6.
    rollout = play(
        [{"seed": seed} for seed in range(32)],
        make_env=partial(pettingllms_envs.make, "note_taking", **SETTINGS, communication_reward=False),
        engine=BatchedEngine(sample),
        sampling="tree",
        num_candidates=4,
        num_continuations=1,
        choose=choose,
        seed="messages",
    )
    assert sum(episode.outcome["success"] for episode in rollout.episodes) == num_right

"""Metrics of episodes: how much of a prompt a policy has read or written before, and groups, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decisions import candidate, decision_of
from pettingllms_trl.records import Decision, Episode, Prompt
from pettingllms_trl.trainer.collector import Played
from pettingllms_trl.trainer.episode_metrics import EpisodeMetrics, prefix_shares, with_absent_parts


SHARED = {"writer_0": "base", "critic_0": "base"}
OWN = {"writer_0": "writer", "critic_0": "critic"}


def decision(agent: str, prompt: tuple[int, ...], *replies: tuple[int, ...]) -> Decision:
    """A decision whose last reply is played on."""
    candidates = [candidate(ids=ids) for ids in replies]
    return decision_of(agent, candidates, prompt=Prompt([], prompt), chosen=len(replies) - 1)


EPISODE = (
    decision("writer_0", (1, 2, 3), (9, 9), (4, 5)),
    decision("critic_0", (1, 2, 8, 8), (6,)),  # 1 2 of the writer's
    decision("writer_0", (1, 2, 3, 4, 5, 7, 7, 7), (3,)),  # all that it read and wrote, 5 of 8
    decision("critic_0", (1, 2, 8, 7, 8), (6,)),  # rewritten in its fourth token
    decision("critic_0", (1, 2, 8), (6,)),  # an earlier prompt is longer
)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (SHARED, [("critic_0", 2 / 4), ("writer_0", 5 / 8), ("critic_0", 3 / 5), ("critic_0", 1.0)]),
        (OWN, [("writer_0", 5 / 8), ("critic_0", 3 / 5), ("critic_0", 1.0)]),
        ({"writer_0": "writer"}, [("writer_0", 5 / 8)]),
    ],
)
def test_the_share_of_a_prompt_with_which_an_earlier_decision_of_its_policy_began(
    policies: dict[str, str], expected: list[tuple[str, float]]
) -> None:
    assert list(prefix_shares(EPISODE, policies)) == expected


def test_prompts_without_token_ids_have_no_share() -> None:
    assert list(prefix_shares([decision("writer_0", (), ())] * 2, OWN)) == []


def test_the_log_has_the_mean_over_the_prompts_of_an_agent() -> None:
    episode = Episode(instance=0, episode=0, decisions=EPISODE, returns={"writer_0": 0.0}, outcome={})
    metrics = EpisodeMetrics([], policies=OWN)
    metrics.add(Played(episodes=[episode, episode], counts={}, scores={}))
    logged = metrics.of_evaluation()
    assert logged["agent/writer_0/prefix_share"] == [5 / 8, 5 / 8]
    assert logged["agent/critic_0/prefix_share"] == [3 / 5, 1.0, 3 / 5, 1.0]


def test_where_decisions_have_one_candidate_an_instances_episodes_are_a_group() -> None:
    returns = ((0, 0.1 + 0.2), (0, 0.3), (1, 0.0), (1, 1.0))  # those of 0 differ by rounding
    episodes = [
        Episode(
            instance=instance,
            episode=number % 2,
            decisions=[replace(decision("writer_0", (1,), (2,)), instance=instance, episode_return=value)] * 2,
            returns={"writer_0": value},
            outcome={},
        )
        for number, (instance, value) in enumerate(returns)
    ]
    metrics = EpisodeMetrics([], groups_of=["writer_0"])
    metrics.add(Played(episodes=episodes, counts={}, scores={}))
    assert metrics.of_generation()["agent/writer_0/frac_reward_zero_std"] == [1 / 2]


def test_a_part_counts_as_zero_in_generations_without_it() -> None:
    logged = {"agent/a_0/reward": [0.5, 0.5], "agent/a_0/rewards/steps": [0.5, 0.5], "rewards/judge/mean": [1.0]}
    new = {"agent/a_0/reward": [1.0], "agent/a_0/rewards/success": [0.75], "loss": [1.0]}
    assert with_absent_parts(new, logged) == {
        **new,
        "agent/a_0/rewards/steps": [0.0],
        "agent/a_0/rewards/success": [0.0, 0.0, 0.75],
    }
    # Where the agent has not acted, there is nothing to be the mean of.
    assert with_absent_parts({"loss": [1.0]}, logged) == {"loss": [1.0], "agent/a_0/rewards/steps": []}


def test_the_log_has_how_the_candidates_of_an_agent_were_read() -> None:
    read = ["strictly", "strictly", "leniently", "unreadable: it is empty"]
    asked = decision("writer_0", (1,), (2,), (3,), (4,), (5,))
    candidates = tuple(replace(each, reading=form) for each, form in zip(asked.candidates, read, strict=True))
    of_third_party = decision("critic_0", (1,), (2,))
    episode = Episode(
        instance=0,
        episode=0,
        decisions=[replace(asked, candidates=candidates), of_third_party],
        returns={"writer_0": 0.0, "critic_0": 0.0},
        outcome={},
    )
    metrics = EpisodeMetrics([])
    metrics.add(Played(episodes=[episode], counts={}, scores={}))
    logged = metrics.of_generation()
    assert {name: value for name, value in logged.items() if "read" in name} == {
        "agent/writer_0/frac_read_strictly": [0.5],
        "agent/writer_0/frac_read_leniently": [0.25],
        "agent/writer_0/frac_unreadable": [0.25],
    }

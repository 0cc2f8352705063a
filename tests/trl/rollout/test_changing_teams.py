"""Rollouts with teams whose agents appear, leave, and act in an order that the play decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from council import Council
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_trl.engines.batched import BatchedEngine
from pettingllms_trl.records import Completion, Episode, Request, Sampled
from plays import play


SCRIPT = ("join member_2", "ask member_0", "leave member_2", "ask chair", "ask chair", "end")


def council() -> TextEnv:
    return TextEnv(Council(PlanPath(size=4)), name="council_v0")


def sample(requests: Sequence[Request]) -> list[Sampled]:
    """Replies of the script: an observation says how many there were."""
    found = []
    for request in requests:
        reply = SCRIPT[int(request.prompt.messages[-1]["content"].split()[2])]
        completions = [Completion(ids=tuple(reply.encode()), text=reply) for _ in range(request.num_candidates)]
        found.append(Sampled(replace(request.prompt, ids=tuple(request.agent.encode())), tuple(completions)))
    return found


@pytest.mark.parametrize("sampling", ["tree", "parallel"])
def test_agents_that_join_and_leave_decide_while_they_are_there(sampling: str) -> None:
    engine = BatchedEngine(sample)
    rollout = play([{"seed": 1}], make_env=council, engine=engine, sampling=sampling, num_candidates=2, seed="s")
    for episode in rollout.episodes:
        _expect_the_script(episode)
    assert len(rollout.episodes) == (1 if sampling == "tree" else 2)


def _expect_the_script(episode: Episode) -> None:
    assert [(decision.agent, decision.turn) for decision in episode.decisions] == [
        ("chair_0", 0),
        ("chair_0", 1),
        ("member_0", 0),  # leaves; its dead step is no decision
        ("member_2", 0),
        ("chair_0", 2),
        ("chair_0", 3),
    ]
    # Each reply pays everybody who is there 1, and its agent 10. `member_2` joined with the first reply, unpaid.
    assert episode.returns == {"chair_0": 6 + 4 * 10, "member_0": 3 + 10, "member_2": 5 + 10}  # no `member_1`

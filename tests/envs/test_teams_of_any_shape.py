"""Several agents of a role, agents that appear and leave, and turns that are counted for each agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pettingzoo.test import api_test, seed_test

from council import Council, Said
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role, Transition
from pettingllms_envs.environments.plan_path.rules import PlanPath


def council() -> TextEnv:
    return TextEnv(Council(PlanPath(size=4)), name="council_v0")


def played(*replies: str | None) -> TextEnv:
    env = council()
    env.reset(seed=0)
    for reply in replies:
        env.step(reply)
    return env


def test_a_role_with_a_count_has_that_many_agents_and_a_lone_one_is_called_by_its_role() -> None:
    assert council().possible_agents == ["chair_0", "member_0", "member_1", "member_2"]
    assert Role("member", "", count=3).members == ("member_0", "member_1", "member_2")
    assert Role("chair", "").members == ("chair",)
    env = played("ask member_0")
    assert env.agent_selection == "member_0"
    assert env.last()[0] == {"system": "You are member_0.", "text": "member_0 reads 1 replies"}
    assert env.observe("chair_0") == {"system": "You are chair.", "text": "chair reads 1 replies"}


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_a_count_that_is_no_number_of_agents_raises(count: object) -> None:
    with pytest.raises(ValueError, match="expected a whole number of at least 1"):
        Role("member", "", count=count)  # type: ignore[arg-type]


def test_the_team_depends_on_the_instance_and_grows() -> None:
    env = played()
    assert env.agents == ["chair_0", "member_0"]
    env.step("join member_2")
    assert env.agents == ["chair_0", "member_0", "member_2"]
    assert env.rewards == {"chair_0": 11.0, "member_0": 1.0, "member_2": 0.0}  # it joined after the step
    assert [env.infos[agent]["rewards"] for agent in env.agents] == [{"reply": 1.0, "own": 10.0}, {"reply": 1.0}, {}]
    env.step("ask member_2")
    assert env.rewards == {"chair_0": 11.0, "member_0": 1.0, "member_2": 1.0}


def test_an_agent_that_leaves_is_terminated_takes_its_dead_step_and_the_others_play_on() -> None:
    env = played("ask member_0", "leave chair")
    assert env.agent_selection == "member_0"  # its dead step comes first
    assert env.terminations == {"chair_0": False, "member_0": True}
    assert env.last()[2:4] == (True, False)
    assert env.rewards == {"chair_0": 1.0, "member_0": 11.0}
    with pytest.raises(ValueError, match="expected None, got str"):
        env.step("one more word")
    env.step(None)
    assert (env.agents, env.agent_selection) == (["chair_0"], "chair_0")
    env.step("end")
    assert env.terminations == {"chair_0": True}


def test_an_agent_that_left_cannot_come_back() -> None:
    env = played("ask member_0", "leave chair", None)
    with pytest.raises(ValueError, match=r"has \['member_0'\] present again; expected other agents"):
        env.step("join member_0")


def test_the_turn_of_an_agent_counts_its_own_replies_where_the_play_decides_who_acts() -> None:
    env = played("ask member_0", "ask chair", "ask chair", "ask member_0")
    assert {agent: info["turn"] for agent, info in env.infos.items()} == {"chair_0": 4, "member_0": 2}
    env.step("end")
    assert {agent: info["turn"] for agent, info in env.infos.items()} == {"chair_0": 3, "member_0": 2}


def test_a_snapshot_holds_who_is_there_and_who_left() -> None:
    env = played("join member_1", "ask member_0", "leave chair")
    saved, whole = env.snapshot(), env.state_hash()
    env.step(None)
    env.step("ask member_1")
    assert env.state_hash() != whole
    env.restore(saved)
    assert (env.agents, env.agent_selection, env.state_hash()) == (
        ["chair_0", "member_0", "member_1"],
        "member_0",
        whole,
    )


@pytest.mark.filterwarnings("ignore")
def test_it_passes_pettingzoos_tests() -> None:
    api_test(council(), num_cycles=20)
    seed_test(council, num_cycles=20)


def test_an_unknown_or_absent_agent_raises() -> None:
    with pytest.raises(ValueError, match=r"has present \['bishop'\]; expected names among chair, member_0"):
        played("join bishop")
    with pytest.raises(ValueError, match="lets 'member_1' act, who is not present"):
        played("ask member_1")


@dataclass(frozen=True, slots=True)
class Successors(Council):
    """Starts with the chair alone; who joins, acts next, and is paid for it."""

    def start(self, task_state: Any) -> Said:
        return Said(task_state, 1, "chair", ("chair",))

    def step(self, state: Said, reply: str) -> Transition[Said]:
        after, parts, terminated, truncated = Council.step(self, state, reply)
        verb, _, name = reply.partition(" ")
        if verb == "pay":
            parts = {name: {"own": 1.0}}
        return after._replace(actor=name) if verb == "join" else after, parts, terminated, truncated


def test_an_agent_that_joins_a_lone_one_may_act_next() -> None:
    env = TextEnv(Successors(PlanPath(size=4)), name="council_v0")
    env.reset(seed=0)
    env.step("join member_1")
    assert (env.agents, env.agent_selection) == (["chair_0", "member_1"], "member_1")


def test_a_reward_for_an_absent_agent_raises() -> None:
    env = TextEnv(Successors(PlanPath(size=4)), name="council_v0")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"pays \['member_1'\]; expected 'team', or agents that take part: chair\."):
        env.step("pay member_1")


@dataclass(frozen=True, slots=True)
class TwoChairs(Council):
    """Two roles of one name."""

    roles: ClassVar[tuple[Role, ...]] = (Role("chair", ""), Role("chair", ""))


def test_two_roles_of_one_name_raise_and_the_message_names_the_count() -> None:
    with pytest.raises(ValueError, match=r"Role\('chair', \.\.\., count=2\)"):
        TextEnv(TwoChairs(PlanPath(size=4)))

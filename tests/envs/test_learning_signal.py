"""The conformance suite's check of the learning signal: it fails an environment in which a role cannot be taught."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Role, Transition
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.spaces import ChatText
from pettingllms_envs.teams.proposal import PLANNER, DraftPlan
from pettingllms_envs.testing import Result, check
from third_party import PlainEnv


Pay = Mapping[str, float]


class Advice(PlainEnv):
    """An adviser says a letter, then a player does; `pay` says who gets what. The right letter is "a"."""

    def __init__(self, pay: Any, *, has_oracle: bool = True, declared: Any = None) -> None:
        self.metadata = {"name": "advice_v0", **({} if declared is None else {"delayed_roles": declared})}
        self.pay = pay
        self.has_oracle = has_oracle
        self.possible_agents = ["adviser_0", "player_0"]
        self.space = ChatText(replies=["b", "c"])

    @property
    def oracle(self) -> Any:
        if not self.has_oracle:
            raise AttributeError("oracle")
        return lambda: "a"

    def observe(self, agent: str) -> str:
        return "Say a letter."

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.begin()
        self.said: list[str] = []
        self.end_step({}, over=False)

    def step(self, action: str | None) -> None:
        if action is None:
            self._was_dead_step(action)
            return
        self.said.append(action)
        self.end_step(self.pay(self.agent_selection, self.said), over=len(self.said) == 2)
        self.agent_selection = "player_0"

    def end_step(self, paid: Pay, *, over: bool) -> None:
        unreadable = {agent: {"format": -0.2} if paid.get(agent) == -0.2 else {} for agent in self.agents}
        self.rewards = {agent: paid.get(agent, 0.0) for agent in self.agents}
        self.infos = {agent: {"rewards": unreadable[agent]} for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, over)
        self.truncations = dict.fromkeys(self.agents, False)


def at_once(agent: str, said: list[str]) -> Pay:
    """Each is paid for its own letter at its own step."""
    return {agent: float(said[-1] == "a")}


def at_the_end(agent: str, said: list[str]) -> Pay:
    """Both are paid at the player's step, each for its own letter."""
    return {} if agent == "adviser_0" else {"adviser_0": float(said[0] == "a"), "player_0": float(said[1] == "a")}


def by_the_player(agent: str, said: list[str]) -> Pay:
    """Both are paid at the player's step, for the player's letter."""
    return {} if agent == "adviser_0" else dict.fromkeys(("adviser_0", "player_0"), float(said[1] == "a"))


def for_format(agent: str, said: list[str]) -> Pay:
    """The adviser is only charged where it says more than a letter."""
    return {agent: -0.2 if len(said[-1]) != 1 else float(agent == "player_0" and said[-1] == "a")}


def never(agent: str, said: list[str]) -> Pay:
    return {}


def signal(make: Any, **settings: Any) -> Result:
    return check(make, **{"seeds": range(3), **settings}, only=["learning signal"])["learning signal"]


@pytest.mark.parametrize(
    ("pay", "settings", "status", "words"),
    [
        (at_once, {}, "passed", "the reward of its own step changes with the reply of adviser_0, player_0"),
        (at_once, {"has_oracle": False}, "skipped", "it has no oracle(), and no reply tried changed any"),
        (at_the_end, {}, "failed", "no reply of adviser_0 changed the reward of its own step, in 3 decisions with"),
        (at_the_end, {}, "failed", "readable replies together; what it is paid at later steps does change. AT-GRPO"),
        (by_the_player, {}, "failed", "neither did what it is paid at later steps, while the other agents replied"),
        (for_format, {}, "failed", "no reply of adviser_0 changed the reward of its own step"),
        (never, {}, "failed", "no reply of adviser_0 changed the reward of its own step"),
        (
            at_the_end,
            {"declared": ["adviser"]},
            "passed",
            "the reward of its own step changes with the reply of player_0; paid later, as declared: adviser_0",
        ),
        (at_the_end, {"declared": ["adviser_0"]}, "passed", "paid later, as declared: adviser_0"),
        (at_the_end, {"declared": ["player"]}, "failed", "no reply of adviser_0 changed the reward of its own step"),
        (
            at_once,
            {"declared": ["advisor"]},
            "failed",
            "['advisor']; expected a list with some of the roles",
        ),
        (at_once, {"declared": "adviser"}, "failed", "has 'adviser'; expected a list with some of the roles"),
    ],
)
def test_a_role_whose_own_step_pays_alike_for_every_reply_fails_unless_it_is_declared_to_be_paid_later(
    pay: Any, settings: dict[str, Any], status: str, words: str
) -> None:
    result = signal(lambda: Advice(pay, **settings))
    assert (result.status, words in result.detail) == (status, True), result


def test_a_failure_names_the_remedies_and_a_play_that_leads_to_the_decision() -> None:
    first, second = signal(lambda: Advice(at_the_end)).detail.splitlines()
    for remedy in ("metadata['delayed_roles']", "'return_to_go'", "credit='counterfactual'", "sampling='parallel'"):
        assert remedy in first
    assert second == "seed 0, replies so far: []"


def test_given_replies_that_matter_an_environment_without_an_oracle_is_judged_too() -> None:
    assert signal(lambda: Advice(at_once, has_oracle=False), blind=["a"]).status == "passed"
    assert signal(lambda: Advice(at_the_end, has_oracle=False), blind=["a"]).status == "failed"


@dataclass(frozen=True, slots=True)
class SilentDrafter(DraftPlan):
    """Nobody is paid at the drafter's step."""

    def step(self, state: Any, reply: str) -> Transition[Any]:
        after, parts, terminated, truncated = DraftPlan.step(self, state, reply)
        return after, parts if self.actor(state) == "planner" else {}, terminated, truncated


@dataclass(frozen=True, slots=True)
class DelayedDrafter(SilentDrafter):
    roles: ClassVar[tuple[Role, ...]] = (Role("drafter", "You draft.", delayed=True), PLANNER)


def test_a_workflow_declares_by_its_role_what_the_environment_says_in_its_metadata() -> None:
    assert signal(lambda: TextEnv(SilentDrafter(PlanPath(size=5)))).status == "failed"
    assert TextEnv(DelayedDrafter(PlanPath(size=5))).metadata["delayed_roles"] == ["drafter"]
    assert signal(lambda: TextEnv(DelayedDrafter(PlanPath(size=5)))).status == "passed"
    assert pettingllms_envs.make("plan_path").metadata["delayed_roles"] == []

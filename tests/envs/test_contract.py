"""The contract is enough for a third-party game: one frozen class, and both workflows and the adapter play it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import Transition, Unreadable
from pettingllms_envs.episodes.observing import task_of
from pettingllms_envs.teams.functions import FunctionState
from pettingllms_envs.teams.proposal import DraftPlan
from pettingllms_envs.teams.single import Single


@dataclass(frozen=True, slots=True)
class Count:
    """Where the count is, and where it should get to from 0."""

    now: int
    target: int


@dataclass(frozen=True, slots=True)
class CountTask:
    """Reach the target by adding whole numbers."""

    name: ClassVar[str] = "count"
    version: ClassVar[int] = 3
    instance_fields: ClassVar[Mapping[str, tuple[object, ...]]] = {"target": ()}
    blind_replies: ClassVar[tuple[str, ...]] = ("1",)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {"value": (-math.inf, 1.0)}

    def generate(self, seed: int, target: int = 5) -> Count:
        return Count(0, target)

    def parse(self, reply: str) -> int | Unreadable:
        return int(reply) if reply.isascii() and reply.isdigit() else Unreadable("it is not a number")

    def apply(self, state: Count, move: int) -> Count:
        return Count(state.now + move, state.target)

    def solved(self, state: Count) -> bool:
        return state.now == state.target

    def value(self, state: Count) -> float:
        return 1 - abs(state.target - state.now) / state.target

    def costs(self, before: Count, move: int, after: Count) -> Mapping[str, float]:
        return {}

    def rules(self) -> str:
        return "Add up to the target."

    def reply_format(self) -> str:
        return "Reply with a number."

    def show(self, state: Count) -> str:
        return f"{state.now} of {state.target}."

    def describe(self, before: Count, move: int, after: Count, *, proposed: bool = False) -> str:
        return f"{move}. It {'would make' if proposed else 'made'} {after.now}."

    def oracle(self, state: Count) -> int:
        return state.target - state.now

    def write(self, move: int) -> str:
        return str(move)

    def outcome(self, state: Count) -> Mapping[str, bool | int | float]:
        return {"success": self.solved(state)}


def test_another_game_is_drafted_planned_and_paid() -> None:
    env = TextEnv(DraftPlan(CountTask(), num_turns=2))
    env.reset(options={"target": 10})
    env.step("4")
    assert env.observe("planner_0") == {
        "system": "Add up to the target.\nYou are the planner. You see the drafter's proposal and decide."
        " Your moves are played.\nReply with a number.",
        "text": "Turn 1 of 2.\n0 of 10.\nThe drafter proposes: 4. It would make 4.",
    }
    assert env.rewards == pytest.approx({"drafter_0": 0.4, "planner_0": 0})
    env.step("5")
    assert env.rewards == pytest.approx({"drafter_0": 0.5 + 0.1, "planner_0": 0.5})
    env.step("five")
    env.step("5")
    assert env.rewards == pytest.approx({"drafter_0": 1.5 + 1.5, "planner_0": 1.5})
    assert env.terminations == {"drafter_0": True, "planner_0": True}
    assert (str(env), env.metadata["reset_options"]) == ("count_v3", {"target": ()})


def test_a_snapshot_of_another_game_is_refused() -> None:
    env, other = TextEnv(Single(CountTask())), TextEnv(DraftPlan(CountTask()))
    env.reset()
    other.reset()
    with pytest.raises(
        ValueError, match=r"the snapshot is of count_v3 with \(Single\(.*; expected count_v3 with \(DraftP"
    ):
        other.restore(env.snapshot())


class OneTry(Single):
    """A workflow that ends with the first reply, whatever it leads to."""

    def step(self, state: FunctionState, reply: str) -> Transition[FunctionState]:
        after, parts, _, _ = super().step(state, reply)
        return after, parts, True, False


@pytest.mark.parametrize(("reply", "standing", "success"), [("5", "solved", True), ("4", "settled", False)])
def test_a_workflow_may_end_an_episode_by_a_rule_of_its_own(reply: str, standing: str, success: bool) -> None:
    env = TextEnv(OneTry(CountTask()), render_mode="ansi")
    env.reset()
    assert env.standing() == ""
    env.step(reply)
    assert (env.terminations, env.truncations) == ({"planner_0": True}, {"planner_0": False})
    assert env.infos["planner_0"]["outcome"] == {"success": success}
    assert env.standing() == standing
    assert str(env.render()).startswith(f"Turn {env.infos['planner_0']['turn']} of 4, {standing}.")


@pytest.mark.parametrize("name", ["archives", "benches", "note_taking", "search", "service", "silos", "two_arms"])
def test_the_word_that_begins_a_reply_is_of_ascii_letters(name: str) -> None:
    task = task_of(pettingllms_envs.make(name))
    for reply in ("ſay: 1", "anſwer: 1", "ſearch: 1", "noteſ: 1", "aſk: 1", "pıck 1"):  # equal to ASCII but for case
        assert isinstance(task.parse(reply), Unreadable), reply

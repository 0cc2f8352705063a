"""Replaying: the same to the byte, or the first place where it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from echo_env import Echo
from pettingllms_envs.agents.base import AgentFailed, Oracle, Random, Request, Scripted
from pettingllms_envs.episodes.episode import Instance, RunLimits, episode
from pettingllms_envs.episodes.files import digest, write_line
from pettingllms_envs.episodes.replay import Difference, changed, replay, same_bytes


def row_of(name: str = "plan_path", *, planner: Any = None, seed: int = 3, **settings: Any) -> dict[str, Any]:
    env = pettingllms_envs.make(name, **settings)
    agents = dict.fromkeys(env.possible_agents, Random()) | ({"planner_0": planner} if planner else {})
    return episode(env, Instance(0, seed, {"split": "test"}), 0, agents, RunLimits())


@pytest.mark.parametrize("name", ["plan_path", "sokoban", "sudoku"])
@pytest.mark.parametrize("workflow", ["draft_plan", "single"])
@pytest.mark.parametrize("planner", [Random(), Oracle()])
def test_an_episode_comes_out_the_same_byte_for_byte(name: str, workflow: str, planner: Any) -> None:
    row = row_of(name, workflow=workflow, planner=planner)
    read = json.loads(write_line(row))
    replayed = replay(pettingllms_envs.make(name, workflow=workflow), read)
    assert replayed.first is None
    assert replayed.off_prompt == 0
    assert same_bytes(read, replayed.row)


def test_a_strangers_episode_is_replayed_too() -> None:
    agent = Scripted(lambda asked: "yes" if asked.seed % 2 else "no")
    row = episode(Echo(), Instance(0, 5), 0, {"a_0": agent, "b_0": agent}, RunLimits())
    assert same_bytes(row, replay(Echo(), row).row)
    changed_row = json.loads(write_line(row))
    changed_row["steps"][2]["reply"] = "yes" if row["steps"][2]["reply"] == "no" else "no"
    first = replay(Echo(), changed_row).first
    assert first is not None
    assert (first.step, first.agent) == (2, "a_0")
    assert first.what.startswith("rewards['a_0']: expected ")


@pytest.mark.parametrize(
    ("change", "step", "what"),
    [
        (lambda row: row["steps"][2].update(reply="Moves: U"), 2, "rewards['drafter_0']: expected "),
        (
            lambda row: row["steps"][3]["prompt"].update(text="Go on."),
            3,
            "prompt['text'] from character 0: expected 'Go",
        ),
        (lambda row: row["steps"][4].update(state="0" * 64), 4, "state from character 0: expected '000"),
        (
            lambda row: row["steps"][4]["rewards"].update(drafter_0=9.0),
            4,
            "rewards['drafter_0']: expected 9.0, got -0.2",
        ),
        (lambda row: row["steps"][1].update(turn=7), 1, "turn: expected 7, got 1"),
        (
            lambda row: row["steps"][1].update(agent="drafter_0"),
            1,
            "expected the reply of drafter_0, but planner_0 is to",
        ),
        (
            lambda row: row["steps"].append(row["steps"][7]),
            8,
            "expected the reply of planner_0, but the episode is over",
        ),
        (lambda row: row["steps"].pop(), None, "end from character 0: expected 'truncated', got 'cut'"),
        (lambda row: row.update(success=True), None, "success: expected True, got False"),
        (lambda row: row["outcome"].update(regret=0.5), None, "outcome['regret']: expected 0.5, got 1.0"),
        (lambda row: row["instance"].update(seed=4), 0, "prompt['text'] from character "),
    ],
)
def test_the_first_difference_is_told(change: Any, step: int | None, what: str) -> None:
    row = row_of(planner=Scripted(lambda asked: "Hm."), seed=3)
    for each in row["steps"]:
        each["reply"] = "Hm."
    row = replay(pettingllms_envs.make("plan_path"), row).row
    assert len(row["steps"]) == 8
    row = json.loads(write_line(row))
    change(row)
    replayed = replay(pettingllms_envs.make("plan_path"), row)
    assert replayed.first is not None
    assert replayed.first.step == step
    assert replayed.first.what.startswith(what)
    assert not same_bytes(row, replayed.row)


def test_a_difference_says_where() -> None:
    assert str(Difference(12, 1, 3, "planner_0", "turn: expected 7, got 1")) == (
        "instance 12, sample 1, step 3 (planner_0): turn: expected 7, got 1"
    )
    assert str(Difference(12, 1, None, None, "end")) == "instance 12, sample 1, after the last step: end"


def test_an_error_row_is_replayed_as_far_as_it_goes() -> None:
    def word(asked: Request) -> str:
        if asked.step == 3:
            raise AgentFailed("unreachable", "nobody there")
        return "Moves: U"

    row = row_of(planner=Scripted(word))
    assert row["error"] is not None
    assert same_bytes(row, replay(pettingllms_envs.make("plan_path"), row).row)


def test_another_grader_is_told_from_the_record_and_scores_anew() -> None:
    row = row_of(planner=Oracle())
    assert row["returns"]["planner_0"] > 1
    replayed = replay(pettingllms_envs.make("plan_path", alpha=0.5), row)
    assert replayed.first is not None
    assert replayed.first.what.startswith("state from character 0")  # the environment's settings are in its hash
    assert replayed.off_prompt == 0
    # The team's 2 count half: 1 less.
    assert replayed.row["returns"]["planner_0"] == pytest.approx(row["returns"]["planner_0"] - 1)
    assert replayed.row["steps"][0]["reply"] == row["steps"][0]["reply"]


def test_an_environment_that_now_raises_is_told() -> None:
    agent = Scripted(lambda asked: "no")
    row = episode(Echo(), Instance(0, 5), 0, {"a_0": agent, "b_0": agent}, RunLimits())
    first = replay(Echo(raises="no"), row).first
    assert first is not None
    assert first.what == "the environment raised RuntimeError: no such word"


def test_gained_and_lost_are_counted() -> None:
    before = [{"success": value} for value in (True, True, False, None)]
    after = [{"success": value} for value in (False, True, True, True)]
    assert changed(before, after) == {"gained": 1, "lost": 1}


def test_rollouts_of_a_training_run_are_replayed_though_they_know_less(tmp_path: Path) -> None:
    row = row_of(planner=Oracle())
    row["training"] = {"step": 3}
    row |= {"outcome": None, "turns": None, "state": None, "success": None}
    for step in row["steps"]:
        step["candidates"] = [{"reply": step["reply"], "reward": 1.0, "chosen": True}]
        step["rewards"] = {step["agent"]: step["rewards"][step["agent"]]}
    replayed = replay(pettingllms_envs.make("plan_path"), row)
    assert replayed.first is None
    changed = json.loads(json.dumps(row))
    changed["steps"][0]["rewards"]["drafter_0"] += 1
    first = replay(pettingllms_envs.make("plan_path"), changed).first
    assert first is not None
    assert first.step == 0
    assert replayed.row["steps"][0]["candidates"] == row["steps"][0]["candidates"]


def test_the_turns_of_a_training_are_compared_decision_by_decision() -> None:
    row = row_of(planner=Oracle())
    row |= {"training": {"step": 3}, "outcome": None, "state": None, "success": None, "turns": 99}
    # A training counts the turns that it has played, and the environment may have begun another.
    assert replay(pettingllms_envs.make("plan_path"), row).first is None
    row["steps"][0]["turn"] += 1
    first = replay(pettingllms_envs.make("plan_path"), row).first
    assert first is not None
    assert (first.step, first.what[:4]) == (0, "turn")


def described() -> Any:
    return pettingllms_envs.make("plan_path", workflow="describer_solver", num_turns=2)


def test_states_of_another_form_are_not_compared_and_all_else_is() -> None:
    row = row_of(workflow="describer_solver", num_turns=2)
    assert row["state_form"] == 3
    before = {name: value for name, value in row.items() if name != "state_form"}  # as an earlier version wrote it
    before["steps"] = [{**step, "state": "0" * 64} for step in row["steps"]]
    before["state"] = "0" * 64
    before["digest"] = digest(before)
    replayed = replay(described(), before)
    assert (replayed.first, replayed.has_states, same_bytes(before, replayed.row)) == (None, False, True)
    as_now = {**before, "state_form": 3}
    replayed = replay(described(), as_now)
    assert replayed.has_states
    assert replayed.first is not None
    assert replayed.first.what.startswith("state from character 0: expected '000")
    other = {
        **before,
        "steps": [*before["steps"][:-1], {**before["steps"][-1], "rewards": {"describer_0": 9.0, "solver_0": 9.0}}],
    }
    replayed = replay(described(), other)
    assert replayed.first is not None
    assert replayed.first.what.startswith("rewards")


def test_states_that_were_histories_are_not_compared_with_others() -> None:
    row = row_of(workflow="describer_solver", num_turns=2)
    assert not replay(described(), {**row, "states": "history"}).has_states
    env = pettingllms_envs.conversation(["solver"], grader="exact")()
    asked = Instance(0, 0, {"prompt": "?", "answer": "0"})
    of_rows = episode(env, asked, 0, {"solver_0": Scripted(lambda asked: "0")}, RunLimits())
    assert (of_rows["states"], "state_form" in of_rows) == ("history", False)
    earlier = {name: value for name, value in of_rows.items() if name != "states"}  # which said nothing of histories
    assert replay(env, earlier).has_states

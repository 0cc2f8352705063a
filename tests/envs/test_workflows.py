"""Who sees what, and how replies are paid, played through the environment."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import TEAM, Role, scalars, system_prompt
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.plan_path_v0 import raw_env
from pettingllms_envs.teams.base import TurnWorkflow


Maker = Callable[..., TextEnv]
JUNK = ("", "I give up.", "Moves: 3 left", "\ud800", "Moves:")


def random_reply(rng: random.Random) -> str:
    return rng.choice(JUNK) if rng.random() < 0.2 else "Moves: " + " ".join(rng.choices("UDLR", k=rng.randint(1, 9)))


def play(env: TextEnv, replies: Callable[[], str]) -> dict[str, dict[str, float]]:
    """To the end of the episode; per agent its reward parts added up, and `"total"`, all it was paid."""
    paid: dict[str, dict[str, float]] = {agent: {"total": 0.0} for agent in env.agents}
    while not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
        env.step(replies())
        for agent in env.agents:
            paid[agent]["total"] += env.rewards[agent]
            for name, value in env.infos[agent]["rewards"].items():
                paid[agent][name] = paid[agent].get(name, 0.0) + value
    return paid


def oracle_reply(env: TextEnv) -> str:
    task = env.workflow.task
    return task.write(task.oracle(env.snapshot().play.task))


BOARD = (
    "@ . . .\n. # # .\n. . # .\n# . . G\nYou are at row 0, column 0. The goal is at row 3, column 3: 3 down, 3 right."
)
MOVED = (
    ". . @ .\n. # # .\n. . # .\n# . . G\nYou are at row 0, column 2. The goal is at row 3, column 3: 3 down, 1 right."
)


def test_each_prompt_of_two_turns_is_the_one_written_here(by_hand: Maker) -> None:
    env = by_hand()
    seen = []
    for reply in ("Moves: R D", "Moves: R R", "no idea", "Moves: L R, D"):
        seen.append((env.agent_selection, env.observe(env.agent_selection)["text"]))
        env.step(reply)
    seen.append((env.agent_selection, env.observe(env.agent_selection)["text"]))
    assert seen == [
        ("drafter_0", f"Turn 1 of 4.\n{BOARD}\nFree moves here: D R"),
        (
            "planner_0",
            f"Turn 1 of 4.\n{BOARD}\nFree moves here: D R\n"
            "The drafter proposes: R D. It would be blocked after 1 move, at row 0, column 1.",
        ),
        (
            "drafter_0",
            f"Turn 2 of 4.\n{MOVED}\nFree moves here: L R\n"
            "Last turn the planner played: R R. It ended at row 0, column 2.",
        ),
        (
            "planner_0",
            f"Turn 2 of 4.\n{MOVED}\nFree moves here: L R\n"
            "Last turn the planner played: R R. It ended at row 0, column 2.\n"
            "The drafter's reply was unreadable: its last line does not begin with 'Moves:'.",
        ),
        (
            "drafter_0",
            f"Turn 3 of 4.\n{MOVED}\nFree moves here: L R\n"
            "Last turn the planner played: L R D. It was blocked after 2 moves, at row 0, column 2.",
        ),
    ]


def test_the_system_prompt_has_the_rules_the_job_and_the_reply_format(by_hand: Maker) -> None:
    env = by_hand()
    task = env.workflow.task
    for agent, job in (("drafter_0", "You are the drafter."), ("planner_0", "You are the planner.")):
        rules, role, answer = env.observe(agent)["system"].split("\n")
        assert (rules, answer) == (task.rules(), task.reply_format())
        assert role.startswith(job)


def test_a_single_planner_reads_what_came_of_its_last_reply(by_hand: Maker) -> None:
    env = by_hand("single")
    env.step("Moves: R R")
    env.step("Moves: up")
    assert env.agents == ["planner_0"]
    assert env.observe("planner_0")["text"] == (
        f"Turn 3 of 4.\n{MOVED}\nFree moves here: L R\nLast turn the planner's reply was unreadable: its last line has"
        " something other than U, D, L and R after 'Moves:'. Nothing was played."
    )


def test_the_planner_sees_the_draft_only_once_it_is_made_and_the_drafter_never_sees_its_own_again(
    by_hand: Maker,
) -> None:
    env = by_hand()
    assert "proposes" not in env.observe("planner_0")["text"]
    env.step("Moves: R")
    assert "The drafter proposes: R. It would end at row 0, column 1." in env.observe("planner_0")["text"]
    assert "proposes" not in env.observe("drafter_0")["text"]
    env.step("Moves: D")
    assert "proposes" not in env.observe("planner_0")["text"]


def test_a_draft_moves_nothing(by_hand: Maker) -> None:
    env = by_hand()
    env.step("Moves: R R R D D D")
    assert "You are at row 0, column 0." in env.observe("planner_0")["text"]
    assert not any(env.terminations.values())
    env.step("pass")
    assert env.infos["planner_0"]["outcome"]["moves"] == 0


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0])
def test_the_rewards_of_a_turn_are_those_worked_out_by_hand(by_hand: Maker, alpha: float) -> None:
    env = by_hand(alpha=alpha)
    env.step("Moves: R D")  # one step nearer of six, then a wall
    draft = {"draft": 1 / 6, "steps": -0.01, "bump": -0.1}
    assert env.infos["drafter_0"]["rewards"] == pytest.approx(draft)
    assert env.infos["planner_0"]["rewards"] == {}
    assert env.rewards == pytest.approx({"drafter_0": 1 / 6 - 0.11, "planner_0": 0.0})
    env.step("Moves: R R")  # two steps nearer: one more than the draft was paid for, whose costs are given back
    settle = 1 / 6 + 0.11
    assert env.infos["drafter_0"]["rewards"] == pytest.approx({"progress": 2 / 6, "settle": settle})
    assert env.infos["planner_0"]["rewards"] == pytest.approx({"progress": 2 / 6, "steps": -0.02})
    assert env.rewards == pytest.approx({"drafter_0": alpha / 3 + settle, "planner_0": alpha / 3 - 0.02})
    env.step("Right.")
    assert env.rewards == pytest.approx({"drafter_0": -0.2, "planner_0": 0.0})
    env.step("Moves: R D D D")  # four steps, and solved
    assert env.infos["drafter_0"]["rewards"] == pytest.approx({"progress": 4 / 6, "success": 1, "settle": 5 / 3})
    assert env.rewards["planner_0"] == pytest.approx(alpha * 5 / 3 - 0.04)
    assert env.terminations == {"drafter_0": True, "planner_0": True}
    assert env.truncations == {"drafter_0": False, "planner_0": False}


def test_unreadable_replies_cost_their_writer_a_fifth_and_end_in_a_truncation(by_hand: Maker) -> None:
    env = by_hand(num_turns=2)
    for expected in ((-0.2, 0.0), (0.0, -0.2), (-0.2, 0.0), (0.0, -0.2)):
        assert not any(env.truncations.values())
        env.step("...")
        assert tuple(env.rewards.values()) == expected
    assert env.truncations == {"drafter_0": True, "planner_0": True}
    assert not any(env.terminations.values())


def test_a_scalar_is_alpha_times_team_plus_the_roles_own() -> None:
    parts = {TEAM: {"a": 1.0, "b": 2.0}, "drafter": {"c": 4.0}, "planner": {"d": 8.0}}
    assert scalars(parts, ["drafter", "planner"], alpha=0.5) == (1.5 + 4.0, 1.5 + 8.0)
    assert scalars(parts, ["planner", "drafter"], alpha=2.0) == (6.0 + 8.0, 6.0 + 4.0)


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
def test_over_an_episode_progress_and_what_the_drafter_is_paid_telescope(workflow: str) -> None:
    env = raw_env(size=6, workflow=workflow)
    for seed in range(100):
        rng = random.Random(seed)
        env.reset(seed=seed)
        paid = play(env, lambda rng=rng: random_reply(rng))
        outcome = env.infos[env.agents[0]]["outcome"]
        gained = 1 - outcome["distance"] / outcome["optimal"]
        for parts in paid.values():
            assert parts.get("progress", 0) == pytest.approx(gained)
        if workflow == "draft_plan":
            settled = sum(paid["drafter_0"].get(part, 0) for part in ("draft", "steps", "bump", "settle"))
            assert settled == pytest.approx(gained + outcome["success"])


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
def test_no_play_out_scores_the_shortest_path(workflow: str) -> None:
    env = raw_env(size=6, workflow=workflow, num_turns=8)
    for seed in range(60):
        env.reset(seed=seed)
        best = play(env, lambda: oracle_reply(env))
        optimal = env.infos["planner_0"]["outcome"]["optimal"]
        assert best["planner_0"]["total"] == pytest.approx(2 - 0.01 * optimal)
        for round_trip in ("U D", "L R", "R L", "D U"):
            env.reset(seed=seed)
            paid = play(env, lambda trip=round_trip: f"Moves: {trip}")
            assert paid["planner_0"]["total"] < 0
            gained = sum(paid["planner_0"].get(part, 0.0) for part in ("progress", "success"))
            assert paid.get("drafter_0", {"total": 2 * gained})["total"] == pytest.approx(2 * gained)
        for i in range(5):
            rng = random.Random(f"{seed} {i}")
            env.reset(seed=seed)
            paid = play(env, lambda rng=rng: random_reply(rng))
            assert paid["planner_0"]["total"] <= best["planner_0"]["total"] + 1e-9
            assert paid.get("drafter_0", {"total": 0})["total"] <= 4 + 1e-9


def test_repeating_a_good_draft_that_is_never_played_pays_nothing(by_hand: Maker) -> None:
    env = by_hand()
    replies = iter(["Moves: R R R", "Moves: U"] * 4)
    paid = play(env, lambda: next(replies))["drafter_0"]
    assert paid["draft"] == pytest.approx(4 * 3 / 6)
    assert paid["total"] == pytest.approx(0)


def test_beside_a_planner_that_solves_it_every_readable_draft_ends_at_the_same_sum_of_rewards(by_hand: Maker) -> None:
    """V rises by 2 for the team, and the drafter's own parts add up to the same 2; an unreadable draft costs 0.2."""
    for draft, total in (("Moves: R R R D D D", 4.0), ("Moves: R", 4.0), ("Moves: L L", 4.0), ("", 3.8)):
        env = by_hand()
        replies = iter([draft, "Moves: R R R D D D"])
        assert play(env, lambda replies=replies: next(replies))["drafter_0"]["total"] == pytest.approx(total)


def test_the_better_of_two_drafts_is_paid_more_at_its_own_step(by_hand: Maker) -> None:
    own = []
    for draft in ("Moves: R R R D D D", "Moves: R R R", "Moves: R", "Moves: R L", "Moves: L", "I pass."):
        env = by_hand()
        env.step(draft)
        own.append(env.rewards["drafter_0"])
    assert own == pytest.approx([2 - 0.06, 0.5 - 0.03, 1 / 6 - 0.01, -0.02, -0.1, -0.2])


PAID_AT_THE_END = [  # what both roles are paid for each reply, in two turns; the goal is at R R R D D D
    (("Moves: R R R D D D", "Moves: R", "", "Moves: R R D D D"), [(0, 0), (0, 0), (-0.2, 0), (2, 2)]),
    (("Moves: R", "none", "Moves: D", "Moves: R R R U"), [(0, 0), (0, -0.2), (0, 0), (0.5, 0.5)]),
]


@pytest.mark.parametrize(("replies", "expected"), PAID_AT_THE_END)
def test_without_rewards_for_steps_both_roles_are_paid_at_the_end_of_the_episode_alone(
    replies: tuple[str, ...], expected: list[tuple[float, float]], by_hand: Maker
) -> None:
    env = by_hand(step_rewards=False, num_turns=2)
    assert env.metadata["delayed_roles"] == ["drafter", "planner"]
    paid = []
    for reply in replies:
        env.step(reply)
        paid.append(tuple(env.rewards.values()))
    assert paid == expected
    with pytest.raises(ValueError, match="step_rewards is 'no'; expected one of True, False"):
        raw_env(step_rewards="no")


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
def test_the_oracle_succeeds_in_one_turn_from_300_seeds(workflow: str) -> None:
    env = raw_env(workflow=workflow)
    for seed in range(300):
        env.reset(seed=seed, options={"split": "validation"})
        for _ in env.possible_agents:
            env.step(oracle_reply(env))
        assert all(env.terminations.values())
        info = env.infos["planner_0"]
        assert info["turn"] == 1
        assert info["outcome"]["success"] is True
        assert info["outcome"]["regret"] == 0


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
def test_the_position_shown_is_the_position_played_from(workflow: str) -> None:
    env = raw_env(size=6, workflow=workflow, min_distance=5)
    steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
    for seed in range(50):
        rng = random.Random(seed)
        env.reset(seed=seed)
        expected = None
        while not any(env.truncations.values()) and not any(env.terminations.values()):
            text = env.observe(env.agent_selection)["text"]
            row, column = map(int, re.search(r"You are at row (\d+), column (\d+)\.", text).groups())
            assert text.split("\n")[1 + row].split()[column] == "@"
            assert expected in (None, (row, column))
            letter = rng.choice(re.search(r"Free moves here: (.*)", text)[1].split())
            if env.agent_selection == "planner_0":
                expected = (row + steps[letter][0], column + steps[letter][1])
            env.step(f"Moves: {letter}")


@pytest.mark.parametrize("workflow", ["single", "draft_plan"])
def test_no_shortest_path_is_written_in_an_observation(workflow: str) -> None:
    env = raw_env(workflow=workflow, min_distance=5)
    task = env.workflow.task
    for seed in range(100):
        env.reset(seed=seed)
        for reply in ("Moves: 0", "Moves: U"):
            state = env.snapshot().play.task
            paths = {task.oracle(state), *(task.oracle(state, random.Random(i)) for i in range(10))}
            for agent in env.agents:
                letters = re.sub(r"[^UDLR]", "", re.sub(r"\bU, D, L\b.*", "", "".join(env.observe(agent).values())))
                for path in paths:
                    assert "".join(path) not in letters
            env.step(reply)


def test_a_role_with_a_reply_format_of_its_own_is_told_that_one_and_a_role_that_moves_the_tasks() -> None:
    class Scouting(TurnWorkflow[Any, Any]):
        name = "scouting"
        roles = (Role("scout", "You scout.", reply_format="Reply with a word."), Role("player", "You move."))

    task = PlanPath(size=4)
    workflow = Scouting(task)
    fate = "Your reply is shown to those who act after you, up to 500 characters."
    assert workflow.system("scout") == f"{task.rules()}\nYou scout.\nReply with a word.\n{fate}"
    assert workflow.system("player") == f"{task.rules()}\nYou move.\n{task.reply_format()}"
    assert system_prompt(task, Role("critic", "You find mistakes.", reply_format="")) == (
        f"{task.rules()}\nYou find mistakes."
    )

"""Two arms: which skills are possible, exact distances, the proof that both are needed, prompts, pay, and MuJoCo."""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pettingllms_envs
from pettingllms_envs.core import SPLITS, Unreadable
from pettingllms_envs.environments.two_arms import physics
from pettingllms_envs.environments.two_arms.rules import CENTRED, LEVELS, TwoArms, TwoArmsState
from pettingllms_envs.environments.two_arms.table import LOST, Places, Skill, Skills, Table
from pettingllms_envs.environments.two_arms.teams import WORKFLOWS
from pettingllms_envs.testing import check


TABLE, TASK = Table(8), TwoArms(columns=8)  # the left arm reaches 0 to 4, the right arm 3 to 7; 8 and 9: in a gripper
TEAM, CUT, FULL, ALONE = WORKFLOWS
MUJOCO = TwoArms(columns=8, simulator="mujoco")
WAIT = Skill()


def skills(words: str) -> Skills:
    move = TASK.parse(words)
    assert isinstance(move, tuple)
    assert not isinstance(move, Skill)
    return move


@pytest.mark.parametrize(
    ("places", "words", "after", "left", "right"),
    [
        ((1, 6), "Left: pick 0. Right: pick 1.", (8, 9), "", ""),
        ((8, 9), "Left: place 3. Right: place 4.", (3, 4), "", ""),
        ((8, 9), "Left: place 4. Right: place 3.", (4, 9), "", "the arms would cross"),
        ((8, 9), "Left: place 3. Right: place 3.", (3, 9), "", "the left arm works there"),
        ((3, 6), "Left: pick 0. Right: pick 0.", (8, 6), "", "the left arm works there"),
        ((9, 6), "Left: pick 0. Right: place 5.", (5, 6), "a gripper holds that cube already", ""),
        ((8, 3), "Left: place 4. Right: pick 0.", (4, 3), "", "a gripper holds that cube already"),
        ((3, 9), "Left: pick 0. Right: place 3.", (8, 9), "", "the column is taken"),  # before the tick
        ((6, 1), "Left: pick 0. Right: wait.", (6, 1), "it is out of its reach", ""),
        ((8, 1), "Left: place 5. Right: wait.", (8, 1), "it is out of its reach", ""),
        ((8, 1), "Left: pick 1. Right: place 5.", (8, 1), "its gripper is full", "its gripper is empty"),
        ((8, 1), "Left: place 8. Right: pick 2.", (8, 1), "there is no such column", "there is no such cube"),
        ((8, 1), "Left: place -1. Right: pick 999999.", (8, 1), "there is no such column", "there is no such cube"),
        ((LOST, 1), "Left: pick 0. Right: wait.", (LOST, 1), "that cube has slipped and cannot be picked up", ""),
    ],
)
def test_a_skill_that_fails_says_why_and_the_other_arms_is_played(
    places: Places, words: str, after: Places, left: str, right: str
) -> None:
    assert TABLE.after(places, skills(words)) == after
    assert TABLE.failures(places, skills(words)) == (left, right)


@pytest.mark.parametrize("goals", [(6, 2), (3, 4)])
def test_distances_are_those_of_a_search_by_the_rules(goals: Places) -> None:
    """Independent of the table of placements: every move is tried, from every placement, until nothing changes."""
    every = [(a, b) for a, b in itertools.product(range(10), repeat=2) if a != b]
    for index, keep in enumerate((lambda move: WAIT in move, lambda move: True)):
        nexts = {each: {TABLE.after(each, move) for move in TABLE.possible(each) if keep(move)} for each in every}
        found = {goals: 0}
        while len(found) < len(every):
            found |= {
                e: 1 + min(found[n] for n in nexts[e] & found.keys())
                for e in every
                if e not in found and nexts[e] & found.keys()
            }
        assert {each: TABLE.distances(each, goals)[index] for each in every} == found


def test_one_arm_alone_never_succeeds_and_turns_take_more_than_an_episode() -> None:
    """Exhaustively: every instance of two cubes on eight columns, everything that an arm can do."""
    pairs, num = list(itertools.permutations(range(8), 2)), 0
    reached = {(arm, starts): _reached(starts, arm) for arm in range(2) for starts in pairs}
    for starts, goals in itertools.product(pairs, repeat=2):
        proof = TABLE.proof(starts, goals)
        if proof.needs_both:
            num += 1
            assert goals not in reached[0, starts] | reached[1, starts]
            assert proof.fewest + TASK.spare < proof.one_at_a_time
    assert num == 1602  # of 56 * 56
    assert TASK.lone_bound() == 0


def _reached(starts: Places, arm: int) -> set[Places]:
    seen, new = {starts}, [starts]
    while new:
        places = new.pop()
        after = {TABLE.after(places, move) for move in TABLE.possible(places) if move[1 - arm] == WAIT}
        new += after - seen
        seen |= after
    return seen


@pytest.mark.parametrize("level", range(1, len(LEVELS) + 1))
def test_an_instance_is_of_its_level_needs_both_arms_and_is_solved_in_the_fewest_ticks(level: int) -> None:
    task, wanted, forms = TwoArms(), LEVELS[level - 1], dict[str, set[bytes]]()
    for split, seed in itertools.product(SPLITS, range(2)):
        state = task.generate(seed, split, level)
        proof = task.table.proof(state.starts, state.goals)
        assert proof.needs_both
        assert len(state.starts) == wanted.cubes
        assert wanted.least <= proof.fewest <= wanted.most
        while not task.is_over(state):
            state = task.apply(state, task.oracle(state))
        assert task.solved(state)
        assert (state.ticks, state.failed) == (proof.fewest, 0)
        forms.setdefault(split, set()).add(task.table.form(state.starts, state.goals))
    assert not set.intersection(*forms.values())
    assert TABLE.form((0, 6), (7, 1)) == TABLE.form((1, 7), (6, 0))  # mirrored, with the cubes' numbers exchanged


# The cubes change sides: after a pick and a place of each arm they stand so that the arms would cross, so in one tick
# one arm acts alone: five ticks, and one to spare.
START = TASK.start((1, 6), (7, 0))


def test_an_arm_sees_its_reach_and_the_message_and_never_the_goals() -> None:
    team = TEAM(TASK)
    state = team.start(START)
    assert team.observe(state, "planner") == (
        "Ticks left: 6.\nCubes: 0 in column 1, 1 in column 6.\nGoals: 0 in column 7, 1 in column 0."
    )
    state, *_ = team.step(state, "Left: pick 0. Right: wait.")
    assert team.observe(state, "left") == (
        "Ticks left: 6.\nCubes in your reach: 0 in column 1.\nYour gripper is empty.\n"
        "The planner wrote:\n> Left: pick 0. Right: wait."
    )
    rights = set()
    for reply in ("pick 0", "wait", "pick 7", "I refuse."):
        after, *_ = team.step(state, reply)
        rights.add(team.observe(after, "right"))
    assert rights == {
        "Ticks left: 6.\nCubes in your reach: 1 in column 6.\nYour gripper is empty.\n"
        "The planner wrote:\n> Left: pick 0. Right: wait."
    }
    short = TEAM(TASK, num_turns=3)
    assert "Ticks left: 3." in str(short.observe(short.start(START), "planner"))
    cut = CUT(TASK)
    silent, *_ = cut.step(cut.start(START), "Left: pick 0. Right: wait.")
    assert "wrote" not in cut.observe(silent, "left")
    others = {cut.observe(cut.step(cut.start(TASK.start((1, 6), goals)), "")[0], "left") for goals in ((7, 0), (5, 1))}
    assert len(others) == 1  # what it is shown does not depend on the goals


def play(team: Any, state: TwoArmsState, *replies: str) -> list[dict[str, dict[str, float]]]:
    moment, paid = team.start(state), []
    for reply in replies:
        moment, parts, *_ = team.step(moment, reply)
        paid.append(
            {scope: {name: round(value, 6) for name, value in each.items() if value} for scope, each in parts.items()}
        )
    return paid


def test_each_arm_is_paid_on_its_own_step_and_an_unreadable_reply_is_its_authors() -> None:
    replies = ("Left: pick 0. Right: pick 1.", "I refuse.", "pick 1")  # of 8 skills one is played
    planner, left, right = play(TEAM(TASK), START, *replies)
    assert planner == {"planner": {"draft": 0.25}}
    assert left == {"left": {"format": -0.2}, "team": {}}
    assert right == {"team": {"progress": 0.125}, "planner": {"settle": -0.125}}
    _, left, right = play(TEAM(TASK), START, "Both of you pick.", "pick 0", "pick 0")
    assert left == {"team": {"progress": 0.125}}
    assert right == {"team": {}, "right": {"failed": -0.05}, "planner": {"settle": 0.125}}
    unpaid = TEAM(dataclasses.replace(TASK, communication_reward=False))
    assert [role.delayed for role in unpaid.roles] == [True, False, False]
    assert play(unpaid, START, *replies)[0] == {}


@pytest.mark.parametrize("arm", ["left", "right"])
def test_an_arm_alone_plays_and_never_succeeds(arm: str) -> None:
    team = ALONE(TASK, arm=arm)
    moment, is_over, replies = team.start(START), False, []
    while not is_over:
        replies.append(team.oracle(moment))
        moment, _, terminated, is_over = team.step(moment, replies[-1])
        assert not terminated
    assert replies[0] == ("pick 0" if arm == "left" else "pick 1")
    assert (moment.task.ticks, TASK.solved(moment.task)) == (6, False)


def test_to_and_fro_and_repeated_messages_earn_nothing() -> None:
    spare = TwoArms(columns=8, spare=20)
    message = "Left: pick 0. Right: pick 1."
    to_and_fro = [*(message, "pick 0", "pick 1"), *(message, "place 1", "place 6")] * 5
    total: dict[str, float] = {}
    for parts in play(TEAM(spare), spare.start((1, 6), (7, 0)), *to_and_fro):
        for scope, named in parts.items():
            total[scope] = total.get(scope, 0.0) + sum(named.values())
    assert total == pytest.approx({"planner": 0, "team": 0})


@pytest.mark.parametrize(
    "reply",
    [
        *("", "pick", "pick 0 1", "pick ٣", "pick 1e999", "place nan", "place 0x5", "pick 1234567", "wait 3"),
        *("pıck 0", "Left: pick 0.", "pick 0; place 4", "pick 0\nand so on"),
        *("pick 0" * 100_000, "9" * 10**6, "\0pick 0"),
    ],
)
def test_other_replies_are_unreadable(reply: str) -> None:
    assert isinstance(TASK.read(reply, of_both=False), Unreadable)


def test_a_skill_is_read_from_the_last_line() -> None:
    assert TASK.read("I think.\nPICK 0.", of_both=False) == Skill("pick", 0)
    assert TASK.parse("Left: place 4 Right: wait") == (Skill("place", 4), WAIT)
    assert TASK.read("pick 0", of_both=True) == Unreadable("its last line has the skill of one arm")
    assert TASK.read("Left: wait. Right: wait.", of_both=False) == Unreadable("its last line has two skills")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": 9}, "columns is 9; expected an even number"),
        ({"cubes": 5}, "cubes is 5; expected a whole number from 2 to 4"),
        ({"simulator": "bullet"}, "simulator is 'bullet'; expected one of 'twin', 'mujoco'"),
        ({"simulator_build": "4.0.1"}, "simulator_build of the twin is '4.0.1'"),
        ({"simulator": "mujoco", "simulator_build": "3.1.0"}, r"is MuJoCo \d.*; expected 3\.1\.0, with which"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoArms(**settings)


def test_the_board_is_drawn_from_above() -> None:
    rows = TASK.tiles(START._replace(places=(8, 6)))
    assert [[tile.text for tile in row] for row in rows] == [
        ["0", "", "", "", "", "", "", "R"],
        ["", "", "", "", "", "", "1", ""],
        ["1", "", "", "", "", "", "", "0"],
    ]
    assert len({tile.paper for tile in rows[1]}) == 2  # both arms reach two columns


def test_mujoco_does_what_the_twin_does_in_every_thread_to_the_last_bit() -> None:
    state, twin = MUJOCO.start((1, 6), (7, 0)), START
    states, moves = [state], []
    while not MUJOCO.is_over(state):
        moves.append(MUJOCO.oracle(state))
        state, twin = MUJOCO.apply(state, moves[-1]), TASK.apply(twin, moves[-1])
        states.append(state)
        assert (state.places, state.left) == (twin.places, twin.left)
    assert MUJOCO.solved(state)
    assert physics.distance(MUJOCO.table, state.simulator, state.goals) < CENTRED
    with ThreadPoolExecutor(2) as pool:  # from a snapshot, in the simulators of other threads
        again = pool.map(MUJOCO.apply, states[:-1], moves)
        assert list(again) == states[1:]


def test_a_simulation_that_diverges_is_an_error_and_no_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log of its own
    state = MUJOCO.start((1, 6), (7, 0))
    for at, value in ((20, np.nan), (30, 1e6), (150, np.nan), (150, 1e6)):  # a position, a speed, forces in a phase
        numbers = np.frombuffer(state.simulator).copy()
        numbers[at] = value
        with pytest.raises(physics.SimulationFailed, match=r"of the instance [0-9a-f]{12} diverged"):
            MUJOCO.apply(state._replace(simulator=numbers.tobytes()), (WAIT, WAIT))


def test_records_name_the_build_and_a_state_of_another_is_refused() -> None:
    env = pettingllms_envs.make("two_arms", simulator="mujoco", columns=8)
    build = env.metadata["settings"]["simulator_build"]
    assert build == physics.checked_build("")
    state = MUJOCO.start((1, 6), (7, 0))._replace(build="4.0.0-other")
    with pytest.raises(ValueError, match=rf"the simulator is MuJoCo {build}; expected 4\.0\.0-other"):
        MUJOCO.apply(state, (WAIT, WAIT))
    assert "simulator_build" not in pettingllms_envs.make("two_arms").metadata["settings"]


def test_without_mujoco_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.delitem(sys.modules, physics.__name__)
    pettingllms_envs.make("two_arms").reset(seed=0)
    with pytest.raises(ImportError, match=r"mujoco-core is not installed; .* pip install -e '\.\[robots\]'"):
        TwoArms(simulator="mujoco")


def test_the_environment_conforms() -> None:
    report = check(lambda: pettingllms_envs.make("two_arms", columns=8), seeds=range(2), only=["oracle"])
    assert not report.failed, report


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"workflow": "cut"},
        {"workflow": "full", "view": "both"},
        {"cubes": 3, "communication_reward": False},
    ],
    ids=str,
)
def test_every_form_conforms(settings: dict[str, Any]) -> None:
    report = check(lambda: pettingllms_envs.make("two_arms", **settings), seeds=range(20))
    assert not report.failed, report


@pytest.mark.slow
def test_mujoco_conforms() -> None:
    only = ["oracle", "snapshots", "branches", "determinism", "another process", "fuzzed replies", "learning signal"]
    report = check(lambda: pettingllms_envs.make("two_arms", simulator="mujoco"), seeds=range(3), only=only)
    assert not report.failed, report


@pytest.mark.slow
def test_a_replay_is_equal_to_the_last_bit_after_snapshots_at_random_moments() -> None:
    rng, tried = random.Random(0), 0
    while tried < 100:
        state = MUJOCO.generate(tried, level=1 + tried % 5)
        course: list[tuple[TwoArmsState, Skills]] = []
        while not MUJOCO.is_over(state):
            move = rng.choice([MUJOCO.oracle(state), *MUJOCO.table.possible(state.places)])
            course.append((state, move))
            state = MUJOCO.apply(state, move)
        for begin in rng.sample(range(len(course)), 4):
            again = course[begin][0]
            for _, move in course[begin:]:
                again = MUJOCO.apply(again, move)
            assert again == state
            tried += 1

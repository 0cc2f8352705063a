"""One agent sees the board and writes it, the other reads that and plays: what each is shown, what is paid."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs.boards import Tile
from pettingllms_envs.environments.kuhn_poker.rules import KuhnPoker
from pettingllms_envs.environments.plan_path.rules import PlanPath
from pettingllms_envs.environments.sudoku.rules import Sudoku
from pettingllms_envs.observations import Image
from pettingllms_envs.tasks.base import OpenTask
from pettingllms_envs.teams.describer_solver import DescriberSolver, best_constant, read_rows, share_right
from pettingllms_envs.testing import CHECKS, conforms


BOARD = "@ . .\n. # .\n. . G"
TASK = PlanPath(size=3)


def make(board: str | None = BOARD, **settings: Any) -> Any:
    env = pettingllms_envs.make("plan_path", workflow="describer_solver", size=3, **settings)
    env.reset(seed=0, options={"board": board} if board else None)
    return env


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("plan_path", "sokoban", "sudoku")]
)
def test_the_team_passes_every_check(name: str) -> None:
    but_floors = [each for each in CHECKS if each != "floors" or name != "plan_path"]  # these take longest
    conforms(partial(pettingllms_envs.make, name, workflow="describer_solver"), seeds=range(3), only=but_floors)


def test_the_describer_sees_the_picture_and_the_solver_its_words() -> None:
    env = make()
    picture, turn = env.observe("describer_0")["parts"]
    assert (type(picture), picture.alt, turn) == (Image, "the board", "Turn 1 of 4.")
    env.step("@ . .\n. # .")
    assert env.observe("solver_0")["text"] == "Turn 1 of 4.\nThe describer wrote:\n> @ . .\n> . # ."
    alone = make(delivers=False)
    alone.step("@ . .\n. # .")
    assert alone.observe("solver_0")["text"] == "Turn 1 of 4."


def test_what_the_solver_is_shown_depends_on_messages_and_on_nothing_else() -> None:
    replies = ["", "Moves: D", "@ . .\nG . .", "I do not know.", "Moves: R", "Moves: U", "a", "Moves: L L"]
    shown = []
    for seed in range(5):
        env = make(board=None)
        env.reset(seed=seed)
        texts = [env.observe("solver_0")]
        for reply in replies:
            if env.agents and not any({**env.terminations, **env.truncations}.values()):
                env.step(reply)
                texts.append(env.observe("solver_0"))
        shown.append(texts)
    shortest = min(map(len, shown)) - 1  # the last one of an episode that is solved early
    assert shortest >= 4
    assert all(texts[:shortest] == shown[0][:shortest] for texts in shown)
    assert "unreadable" in str(shown[0])


def paid(env: Any, message: str) -> float:
    """What the describer is paid for a message."""
    env.step(message)
    return float(env.rewards["describer_0"])


@pytest.mark.parametrize(
    ("message", "right"),
    [
        (BOARD, 9),
        ("The board:\n\n@..\n.#.\n..G\n", 9),
        ("@ | . | .\n. | # | .\n. | . | G", 9),
        (". . .\n. . .\n. . .", 6),
        ("@ . .\n. # .", 6),  # a row is missing
        ("@ . . .\n. #\n. . G", 8),  # a cell more is no matter, one that is missing is wrong
        ("G G G\n@ . .\n. # .\n. . G", 9),  # the last three rows are read
        ("@ . .\n. # .\n. . G goal", 6),  # the last line is no row
        ("", 0),
        ("I see a blue disc.", 0),
    ],
)
def test_a_description_is_paid_by_its_right_tiles_above_those_of_the_best_constant(message: str, right: int) -> None:
    assert paid(make(), message) == pytest.approx(right / 9 - best_constant(TASK).share)


class Letters(OpenTask[str]):
    """A row of two letters, the first of which is mostly an a."""

    name: ClassVar[str] = "letters"
    symbols: ClassVar[str] = "ab"
    legend: ClassVar[str] = "Letters are letters."

    def rows(self, state: str) -> list[str]:
        return [state]

    def tiles(self, state: str) -> list[list[Tile]]:
        return [[Tile(letter, "#ffffff") for letter in state]]

    def generate(self, seed: int, *args: Any, **fields: Any) -> str:
        return "ab" if seed % 4 else "bb"


def test_the_best_constant_answer_by_hand() -> None:
    # a in 3 of 4 instances and b in all: (3/4 + 1) / 2 of the tiles.
    assert best_constant(Letters()) == (("ab",), 0.875)


@pytest.mark.parametrize("task", [TASK, PlanPath(), Sudoku()], ids=["3x3", "10x10", "sudoku"])
def test_no_constant_answer_is_paid_on_average(task: Any) -> None:
    rng, best = random.Random(0), best_constant(task)
    boards = [task.rows(task.generate(seed)) for seed in range(100)]
    answers = [best.rows, *boards[:5]]
    answers += [["".join(rng.choice(task.symbols) for _ in row) for row in boards[0]] for _ in range(5)]
    means = [sum(share_right(board, answer) for board in boards) / 100 - best.share for answer in answers]
    assert means[0] == pytest.approx(0)
    assert max(means) <= 1e-12


def test_a_describer_is_paid_above_the_best_constant_of_the_level_in_play() -> None:
    # Of the 16 cells of level 5, 11 are empty in every puzzle, so that dots are the best constant: 11/16 are right.
    env, dots = pettingllms_envs.make("sudoku", workflow="describer_solver"), "....\n" * 4
    assert best_constant(env.workflow.task, 5) == (("....",) * 4, 11 / 16)
    env.reset(seed=3, options={"level": 5})
    start = env.snapshot()
    assert paid(env, dots) == pytest.approx(0)
    env.restore(start)
    assert paid(env, "") == pytest.approx(-11 / 16)  # also where the function is run again
    env.reset(seed=3)
    assert paid(env, "") == pytest.approx(-best_constant(env.workflow.task).share)


def test_the_pay_of_an_episode_is_the_score_of_the_last_description_of_a_new_board() -> None:
    env, base = make(), best_constant(TASK).share
    assert paid(env, ". . .\n. . .\n. . .") == pytest.approx(6 / 9 - base)
    env.step("no move")  # the board stays
    assert paid(env, BOARD) == 0.0  # so that describing it better is not paid
    env.step("Moves: R")
    assert paid(env, ". @ .\n. # .\n. . G") == pytest.approx(1 - 6 / 9)
    env.step("Moves: L")
    assert paid(env, "") == 0.0  # a board that was described in the first turn


def test_the_share_of_messages_with_a_move_is_reported() -> None:
    env = make()
    for message in (BOARD, "Go so:\nMoves: R R\nGood luck.", "Moves: D"):
        env.step(message)
        env.step("no move")
    outcome = env.infos["solver_0"]["outcome"]
    assert (outcome["messages"], outcome["frac_messages_with_move"]) == (3, pytest.approx(2 / 3))


def test_rows_of_sudoku_are_read_without_the_lines_between_boxes() -> None:
    text = "1 . | . 4\n. 2 | . .\n- - + - -\n. . | 3 .\n4 . | . 1"
    assert read_rows(text, Sudoku()) == ["1..4", ".2..", "..3.", "4..1"]


def test_a_seeing_agent_alone_and_a_solver_without_messages_stand_beside_the_team() -> None:
    forms = make().metadata["cooperation"]
    assert forms["full"]["player"] == "describer_0"
    lone = pettingllms_envs.make("plan_path", **forms["full"]["settings"])
    assert (lone.possible_agents, lone.view) == (["planner_0"], "image")
    assert pettingllms_envs.make("plan_path", **forms["cut"]["settings"]).workflow.delivers is False
    assert forms["alone"] == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DescriberSolver(KuhnPoker()),
            "the task 'kuhn_poker' has no symbols to describe a board with; expected symbols, legend and",
        ),
        (lambda: make(capacity=0), "the capacity of a channel is 0; expected a whole number of at least 1"),
        (lambda: make(num_turns=0), "num_turns is 0; expected a whole number of at least 1"),
    ],
)
def test_an_illegal_setting_is_an_error_in_words(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

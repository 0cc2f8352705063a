"""Environments of rows and a reward function, made in a call; rows from lists and data sets."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pettingllms_envs
from pettingllms_envs import testing
from pettingllms_envs.core import Role
from pettingllms_envs.features import HasOracle
from pettingllms_envs.tasks.rows import RowTask, graded_rows
from pettingllms_envs.teams.functions import Ask, Game, Questions


ROWS = [
    {"question": "Is 91 a prime?", "answer": "no", "split": "train"},
    {"question": "Is 97 a prime?", "answer": "yes", "split": "train"},
    {"question": "Is 51 a prime?", "answer": "no", "split": "test"},
]
JOBS = {"debater": "Argue for an answer.", "judge": "Decide: yes or no."}


def right(row: Mapping[str, Any], reply: str) -> float:
    return float(reply.strip().lower() == row["answer"])


@pettingllms_envs.function(ROWS, right, roles=JOBS)
def debate(game: Game) -> Questions:
    """A debater, and a judge who answers."""
    argument = yield Ask("debater", game.show())
    verdict = yield Ask("judge", game.show(game.quote("debater", argument)))
    game.play(verdict, "judge")


class Data:
    """What of a `datasets.Dataset` is used: it is iterated over."""

    def __iter__(self) -> Any:
        return iter(ROWS)


def test_an_episode_asks_in_the_functions_order_and_pays_the_team_by_the_reward_function() -> None:
    env = debate()
    env.reset(seed=0, options={"split": "test"})
    assert env.last()[0] == {"system": "Argue for an answer.", "text": "Is 51 a prime?"}
    env.step("It is 3 * 17.")
    assert env.last()[0]["text"] == "Is 51 a prime?\nThe debater wrote:\n> It is 3 * 17."
    env.step("No")
    assert env.rewards == {"debater_0": 2.0, "judge_0": 2.0}  # the answer's score and the success, for both
    assert env.terminations["judge_0"]
    assert env.metadata["delayed_roles"] == ["debater", "judge"]
    assert env.metadata["name"] == "debate_v0"


def test_it_keeps_the_contract_in_another_process_too() -> None:
    assert pickle.loads(pickle.dumps(debate)) is debate
    checks = (
        "determinism",
        "another process",
        "snapshots",
        "branches",
        "rewards",
        "learning signal",
        "forged prompts",
    )
    testing.conforms(debate, seeds=range(2), blind=["no"], floor=1.0, only=checks)


@pytest.mark.parametrize("kind", ["list", "data set", "file"])
def test_rows_come_from_a_list_a_data_set_or_a_file(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    rows: Any = {"list": ROWS, "data set": Data(), "file": str(file)}[kind]

    @pettingllms_envs.function(rows, right, roles=[Role("solver", "Answer.")], num_turns=2)
    def alone(game: Game) -> Questions:
        while game.turns_left:
            game.play((yield Ask("solver", game.show())), "solver")

    env = alone()
    shown = []
    for seed in range(2):
        env.reset(seed=seed)
        shown.append(env.last()[0]["text"])
    assert sorted(shown) == ["Turn 1 of 2.\nIs 91 a prime?", "Turn 1 of 2.\nIs 97 a prime?"]
    assert env.metadata["reset_options"] == {"split": ("train", "test"), "row": ()}
    assert env.metadata["delayed_roles"] == []


def test_a_row_task_takes_a_data_set_or_a_list() -> None:
    for given in (ROWS, Data()):

        @dataclass(frozen=True, slots=True)
        class Primes(RowTask):
            name: ClassVar[str] = "primes"
            rows: ClassVar[Any] = given

            def grade(self, row: Mapping[str, Any], reply: str) -> float:
                return right(row, reply)

        task = Primes()
        assert task.generate(0, split="test").row == ROWS[2]
        assert task.solved(task.apply(task.generate(0, split="test"), "no"))


class Neither(RowTask):
    name: ClassVar[str] = "neither"


class Both(RowTask):
    name: ClassVar[str] = "both"
    rows: ClassVar[Any] = ROWS
    file: ClassVar[Path] = Path("rows.jsonl")


@pytest.mark.parametrize(
    ("task", "message"),
    [(Neither, r"Neither has file=None and no rows; expected one"), (Both, r"Both has file=.* and also rows")],
)
def test_a_row_task_has_one_source_of_rows(task: type[RowTask], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task().generate(0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"rows has no rows; expected at least one with a 'question'"),
        ([{"prompt": "?"}], r"row 0 of rows has the question None; expected a text"),
        ([{"question": "?", "when": object()}], r"row 0 of rows cannot be kept .*expected what JSON has"),
        ({"train": ROWS}, r"row 0 of rows: train; expected an object"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_at_once(rows: Any, message: str) -> None:
    def script(game: Game) -> Questions:
        yield Ask("solver", game.show())

    with pytest.raises(ValueError, match=message):
        pettingllms_envs.function(rows, right, roles={"solver": "Answer."})(script)


def test_a_reward_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"reward is 1\.0; expected a function: def reward\(row, reply\)"):
        pettingllms_envs.function(ROWS, 1.0, roles=JOBS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "has_oracle"), [(("5", 12), True), (("5", "a dozen"), False), (("5", None), False)]
)
def test_the_answers_of_rows_are_the_oracles_if_they_are_right_by_the_reward(answers: Any, has_oracle: bool) -> None:
    questions = (("2 + 3?", 5), ("3 * 4?", 12))
    rows = [{"question": q, "sum": n, "answer": answer} for (q, n), answer in zip(questions, answers, strict=True)]
    task = graded_rows("sums", rows, lambda row, reply: float(reply == str(row["sum"])))()
    assert isinstance(task, HasOracle) == has_oracle
    if has_oracle:
        state = task.generate(0)
        assert task.solved(task.apply(state, task.oracle(state)))

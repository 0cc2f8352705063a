"""Tasks on rows of a file with a grading function."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pettingllms_envs.assembly import assemble
from pettingllms_envs.core import Unreadable
from pettingllms_envs.episodes.observing import problem_of
from pettingllms_envs.evaluation.bench import choose
from pettingllms_envs.tasks.rows import RowTask, read_table
from pettingllms_envs.teams.single import Single


def task_on(path: Path, rows: list[dict[str, Any]], score: float = 0.5) -> RowTask:
    path.write_text("\n".join(map(json.dumps, rows)))

    @dataclass(frozen=True, slots=True)
    class Half(RowTask):
        name: ClassVar[str] = "half"
        file: ClassVar[Path] = path

        def grade(self, row: Mapping[str, Any], reply: str) -> float:
            return 1.0 if reply == row["answer"] else score

    return Half()


def test_the_seeds_from_0_are_all_rows_of_a_split_once(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n), "split": "train"} for n in range(5)]
    task = task_on(tmp_path / "rows.jsonl", rows)
    assert {task.show(task.generate(seed)) for seed in range(5)} == {row["question"] for row in rows}
    assert task.generate(7) == task.generate(2)


def test_rows_without_a_split_are_divided_by_the_words_of_their_question(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} times {n}?"} for n in range(500)]
    copies = [{"question": f"what is  {n} TIMES {n}", "copy": True} for n in range(500)]
    task_on(tmp_path / "rows.jsonl", rows + copies)
    table = read_table(tmp_path / "rows.jsonl")
    sizes = {split: len(problems) for split, problems in table.items()}
    assert sum(sizes.values()) == 1000
    assert 0.7 < sizes["train"] / 1000 < 0.9
    numbers = [{problem.statement.split()[2] for problem in problems} for problems in table.values()]
    assert max(Counter(number for each in numbers for number in each).values()) == 1


def test_a_partial_score_is_paid_as_progress_and_only_1_is_success(tmp_path: Path) -> None:
    task = task_on(tmp_path / "rows.jsonl", [{"question": "1 + 1?", "answer": "2", "split": "test"}])
    start = task.generate(0)
    after = task.apply(start, "3")
    assert (task.value(start), task.value(after), task.solved(after)) == (0.0, 0.5, False)
    assert task.solved(task.apply(after, "2"))
    assert isinstance(task.parse("  "), Unreadable)


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"question": "2 + 2?", "answer": "4"}, {"success": True}),
        ({"question": "2 + 2?", "answer": "5", "note": "kept"}, {"success": False}),
        ({"question": "2 + 2?"}, {}),
    ],
)
def test_a_row_that_is_given_is_graded_if_it_has_the_columns_of_the_others(
    row: dict[str, str], outcome: dict[str, bool], tmp_path: Path
) -> None:
    rows = [{"question": "1 + 1?", "answer": "2", "id": "a", "split": "test"}, {"question": "1?", "answer": "1"}]
    task = task_on(tmp_path / "rows.jsonl", rows)
    state = task.apply(task.generate(0, row=row), "4")
    assert (task.show(state), task.outcome(state)) == ("2 + 2?", outcome)
    with pytest.raises(ValueError, match="the row has the question None; expected a text"):
        task.generate(0, row={"answer": "4"})


def test_a_score_out_of_range_is_an_error_of_the_grading_function(tmp_path: Path) -> None:
    task = task_on(tmp_path / "rows.jsonl", [{"question": "1 + 1?", "answer": "2"}], score=7)
    with pytest.raises(ValueError, match=r"grade\(\) of half returned 7\.0; expected a score from 0 to 1"):
        task.apply(task.generate(0), "3")


def test_a_split_without_rows_is_not_offered(tmp_path: Path) -> None:
    task = task_on(tmp_path / "rows.jsonl", [{"question": "1 + 1?", "answer": "2", "split": "test"}])
    assert task.instance_fields == {"split": ("test",), "row": ()}
    with pytest.raises(ValueError, match=r"split is 'train'; expected one of 'test'"):
        task.generate(0, split="train")


def test_a_benchmark_plays_each_row_of_the_split_once(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}?", "answer": str(n), "split": "test"} for n in range(3)]
    env = assemble(lambda: task_on(tmp_path / "rows.jsonl", rows), __name__, (Single,)).env()
    chosen = choose(env, "half_v0", {})
    assert [instance.seed for instance in chosen.instances] == [0, 1, 2]
    assert (
        len({problem_of(env) for instance in chosen.instances if env.reset(instance.seed, instance.options) is None})
        == 3
    )


def test_a_state_stands_by_itself_and_says_its_row_and_its_last_answer(tmp_path: Path) -> None:
    row = {"question": "1 + 1?", "answer": "2", "split": "test", "tags": ["sum"]}
    task = task_on(tmp_path / "rows.jsonl", [row])
    state = pickle.loads(pickle.dumps(task.apply(task.generate(0), "3")))
    state.row["tags"].append("changed")  # of a copy
    assert (state.row, state.answer, state.score) == (row, "3", 0.5)
    assert state.problem == task.generate(0).problem

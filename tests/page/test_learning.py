"""What the page of a training says that the team learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.evaluation.statistics import wilson
from pettingllms_envs.page.learning import Look, learned, read_log, sentence


EMPTY: dict[str, list[Any]] = {name: [] for name in ("step", "error", "problem", "success", "figures")}


def evaluation(step: int, success: float, reward: float, prefix: str = "eval_") -> dict[str, Any]:
    return {
        "step": step,
        f"{prefix}runtime": 1.0,
        f"{prefix}outcome/success": success,
        f"{prefix}rollout/instances": 100.0,
        f"{prefix}agent/planner_0/reward": reward,
    }


LOG = [evaluation(0, 0.1, -0.2), {"step": 1, "loss": 0.5}, evaluation(5, 0.5, 0.1), evaluation(9, 0.6, 0.25)]


def test_the_first_and_the_last_evaluation_stand_side_by_side() -> None:
    shown = learned(LOG, EMPTY, ["planner_0"])
    assert shown is not None
    assert shown["heads"] == ["", "step 0", "step 9", "change"]
    (low, high), (new_low, new_high) = wilson(10, 100), wilson(60, 100)
    assert shown["rows"] == [
        [
            "success",
            f"10.0% [{100 * low:.1f}, {100 * high:.1f}]",
            f"60.0% [{100 * new_low:.1f}, {100 * new_high:.1f}]",
            "+50.0 points",
        ],
        ["reward of planner_0", "-0.2", "0.25", "+0.45"],
    ]
    assert shown["sentence"] == (
        "The team learned: success went from 10.0% (step 0) to 60.0% (step 9). Most changed is the reward of "
        "planner_0, from -0.2 to 0.25."
    )


def test_of_several_data_sets_the_first_is_compared_with_itself() -> None:
    log = [
        evaluation(step, rate, 0.0, f"eval_{name}_") for step in (0, 4) for name, rate in (("hard", 0.1), ("easy", 1))
    ]
    shown = learned(log, EMPTY, ["planner_0"])
    assert shown is not None
    assert [row[1].partition("%")[0] for row in shown["rows"][:1]] == ["10.0"]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ((0.5, 0.4, 0.6), "The team learned: success went from 20.0%"),
        (
            (0.25, 0.15, 0.4),
            "That the team learned is not shown: success went from 20.0% (step 0) to 25.0%",
        ),
        ((0.0, 0.0, 0.05), "The team got worse: success went from 20.0%"),
        (None, "No success is reported"),
    ],
)
def test_a_difference_within_the_intervals_is_not_called_learning(
    after: tuple[float, float, float] | None, words: str
) -> None:
    first, last = Look("step 0", (0.2, 0.1, 0.3), {}), Look("step 9", after, {})
    assert sentence(first, last).startswith(words)


def test_without_two_evaluations_the_rollouts_of_the_first_and_last_steps_are_compared() -> None:
    table = {
        "step": [1, 1, 2, 3],
        "error": [None] * 4,
        "problem": [0, 1, 2, 3],
        "success": [False, True, True, True],
        "figures": [{"planner_0": {"return": value}} for value in (0.0, 1.0, 9.0, 2.0)],
    }
    shown = learned(LOG[:2], table, ["planner_0"])
    assert shown is not None
    assert shown["heads"][1:3] == ["step 1", "step 3"]
    assert shown["rows"][0][1].startswith("50.0%")
    assert shown["rows"][1] == ["return of planner_0", "0.5", "2", "+1.5"]
    assert shown["source"].startswith("Training rollouts, for there are no two evaluations")
    assert learned([], {name: values[:2] for name, values in table.items()}, ["planner_0"]) is None


def test_of_best_candidates_it_is_not_said_that_a_team_learned_or_got_worse() -> None:
    table = {**EMPTY, "step": [1] * 40 + [2] * 40, "error": [None] * 80, "problem": list(range(80))}
    table |= {"success": [True] * 40 + [False] * 40, "figures": [{}] * 80}
    plain = learned([], table, [])
    assert plain is not None
    assert plain["sentence"].startswith("The team got worse: success went from 100.0% (step 1) to 0.0% (step 2)")
    shown = learned([], table, [], is_tree=True)
    assert shown is not None
    assert shown["sentence"] == (
        "What the team does when nothing is chosen for it was not measured. Of best candidates, success went from "
        "100.0% (step 1) to 0.0% (step 2)."
    )
    assert shown["source"].startswith("Training rollouts, the path of best candidates, for")
    evaluated = learned(LOG, table, ["planner_0"], is_tree=True)
    assert evaluated is not None
    assert evaluated["sentence"].startswith("The team learned:")


def test_a_log_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    assert read_log(tmp_path / "metrics.jsonl") == []
    (tmp_path / "metrics.jsonl").write_text(json.dumps(LOG[0]) + '\n{"step": 1, "lo')
    assert read_log(tmp_path / "metrics.jsonl") == LOG[:1]

"""The run of a guesser: the best of the policies that do not read, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.research.studies.results import Cell
from pettingllms_trl.research.study import guesser
from pettingllms_trl.research.study.plans.plan import PlannedRun


ONE_FACT = {"facts": 1, "order": "question"}


def run_of(**fields: Any) -> PlannedRun:
    train = {"env_id": "archives", "env_kwargs": {"wording": "symbols", "size": 10, "results": 1, **ONE_FACT}}
    config = {
        "train": {**train, "eval_seeds": [1000, 1006], "eval_split": "test", "seed": 3, **fields},
        "trained": False,
        "guesser": True,
        "prepare": None,
    }
    return PlannedRun(cell=Cell(phase="evaluation", environment="archives", method="guesser", seed=3), config=config)


def test_with_one_fact_of_a_name_the_best_guesser_copies_and_is_always_right(tmp_path: Path) -> None:
    found = guesser.run_guesser(run_of(), tmp_path / "run", None)
    assert (found.guesser, found.success) == ("copier", "111111")
    assert (found.tokens, found.steps, found.curve, found.training) == (0, 0, {}, {})
    assert not (tmp_path / "run").exists()
    guesser.check(run_of())


def test_its_choices_are_those_of_the_runs_seed() -> None:
    hard = {"wording": "symbols", "size": 8, "hops": 2, "facts": 2, "results": 2}
    rates = [guesser.run_guesser(run_of(env_kwargs=hard, seed=3), Path("unused"), None).success for _ in range(2)]
    assert rates[0] == rates[1]
    assert rates[0] != "111111"  # one of four readings is right


def test_a_task_with_nothing_to_play_is_refused_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesser, "guessers_of", lambda env: {})
    with pytest.raises(ValueError, match=r"the task of archives_v0 has neither blind_policies nor .*; expected some"):
        guesser.check(run_of())


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"env_kwargs": {"sise": 3}}, "sise"), ({"env_id": "archive"}, "archive")],
)
def test_a_mistake_in_its_environment_raises_as_that_of_a_training_does(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        guesser.check(run_of(**fields))

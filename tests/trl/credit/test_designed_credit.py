"""The gradients of a designer and its members, beside those of an enumeration of all designs and replies."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest


BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def toy() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "designed_toy.py"))


def test_the_value_of_a_design_is_its_worth_times_the_chance_that_all_are_right_less_its_cost(toy: Any) -> None:
    tables = {prompt: dict.fromkeys(replies, 1 / len(replies)) for prompt, replies in toy["prompts"]().items()}
    expected = {"solo": 0.1, "other": 0.05, "pair": 0.15, "swap": 0.025, "echo": 0.0, "trio": -0.025}
    assert toy["values"](tables) == pytest.approx(expected)


@pytest.mark.parametrize("group", ["candidate", pytest.param("decision", marks=pytest.mark.slow)])
def test_executions_of_designs_give_the_gradient_of_each_agents_own_return(toy: Any, group: str) -> None:
    for prompt, _, exact, mean, error in toy["signs"](rows=250, group=group, seed=0):
        # The mean of 4 designs, or of 4 executions of each of 4 designs, has its own number in it.
        factor = 3 if prompt == "design" else 4 * 3
        if group == "candidate" or prompt == "design":
            assert mean == pytest.approx(factor * exact, abs=3.5 * error)
        if abs(factor * exact) > 2 * error:
            assert exact * mean > 0

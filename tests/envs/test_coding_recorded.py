"""Recorded games of coding, on problems of this folder's, played again word for word.

If one of these fails, play has changed: raise the version of the tasks, and record the new one by

    python tests/envs/test_coding_recorded.py

which writes the files that are missing and never one that is there.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from code_problems import SQUARE, UNIQUE
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.environments.coding.coder_tester import CoderTester
from pettingllms_envs.environments.coding.lone_coder import SelfRefine, SingleCoder
from pettingllms_envs.environments.coding.rules import Coding, CodingState
from pettingllms_envs.testing.recording import record


RECORDED = Path(__file__).parent / "recorded"
WORKFLOWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "coder_tester": (CoderTester, {}),
    "tester_first": (CoderTester, {"order": ("tester", "coder")}),
    "single": (SingleCoder, {}),
    "single_with_tools": (SingleCoder, {"tools": True}),
    "self_refine": (SelfRefine, {}),
}
PROBLEMS = (SQUARE, UNIQUE, replace(SQUARE, solutions=(), wrong=(), num_public=0))


@dataclass(frozen=True, slots=True)
class ByHand(Coding):
    """The problems above, whatever the split."""

    name: ClassVar[str] = "by_hand"

    def generate(self, seed: int, **fields: Any) -> CodingState:
        problem = PROBLEMS[seed % len(PROBLEMS)]
        return CodingState(problem, len(problem.tests))


def make(name: str) -> TextEnv:
    workflow, settings = WORKFLOWS[name]
    return TextEnv(workflow(ByHand(), **settings))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_recorded_game_is_played_again_word_for_word(name: str) -> None:
    recorded = (RECORDED / f"coding_v0_{name}.txt").read_text(encoding="utf-8")
    assert record(lambda: make(name)) == recorded


if __name__ == "__main__":
    for name in WORKFLOWS:
        path = RECORDED / f"coding_v0_{name}.txt"
        if not path.exists():
            path.write_text(record(lambda name=name: make(name)), encoding="utf-8")  # type: ignore[misc]

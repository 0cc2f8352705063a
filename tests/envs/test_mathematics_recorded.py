"""A recorded game of the tasks with an answer in each workflow, played again word for word.

If one of these fails, play has changed: raise the version of the task, and record the new one by

    python tests/envs/test_mathematics_recorded.py

which writes the files that are missing and never one that is there.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pettingllms_envs
from pettingllms_envs.testing.recording import record


RECORDED = Path(__file__).parent / "recorded"
WORKFLOWS: dict[str, dict[str, Any]] = {
    "tool_reasoner": {"workflow": "tool_reasoner"},
    "single": {"workflow": "single"},
    "single_with_tools": {"workflow": "single", "tools": True},
}


def maker(workflow: str) -> Callable[[], Any]:
    """Of an environment on five problems of a file; its name is a part of the state, so it is taken as it stands."""
    return partial(pettingllms_envs.make, "math", data="problems__test.jsonl", layout="math", **WORKFLOWS[workflow])


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_the_recorded_answers_are_given_again_word_for_word(workflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECORDED)
    assert record(maker(workflow)) == Path(f"math_v0_{workflow}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    os.chdir(RECORDED)
    for name in WORKFLOWS:
        path = Path(f"math_v0_{name}.txt")
        if not path.exists():
            path.write_text(record(maker(name)), encoding="utf-8")

"""A problem small enough for rewards to be worked out by hand, and programs whose output is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pettingllms_envs
from pettingllms_envs.aec import TextEnv
from pettingllms_envs.core import ToolResult
from pettingllms_envs.datasets.problems import MathProblem
from pettingllms_envs.environments.mathematics.rules import AnswerState


SUM = MathProblem(source="by hand", id="sum", statement="What is $2 + 3$?", answer="5", level=2)
PROGRAMS: Mapping[str, ToolResult] = {
    "print(5)": ToolResult("5\n"),
    "print(10 / 2)": ToolResult("5.0\n"),
    "print(6)": ToolResult("6\n"),
    "print('so', 5, sep='\\n\\n')": ToolResult("so\n\n5\n"),
    "print('The answer is 5')": ToolResult("The answer is 5\n"),
    "print(r'So \\boxed{5}')": ToolResult("So \\boxed{5}\n"),
    "1 / 0": ToolResult("", "it failed: ZeroDivisionError"),
    "print(5); 1 / 0": ToolResult("5\n", "it failed: ZeroDivisionError"),
    "pass": ToolResult(""),
    "print('x' * 5000)": ToolResult("x" * 5000),
}
WITHOUT_PROGRAMS = ("ensemble", "debate", "self_verification")


def block(program: str) -> str:
    """A reply with one block of Python."""
    return f"I compute.\n```python\n{program}\n```"


def posed(problem: MathProblem = SUM, name: str = "math", **settings: Any) -> TextEnv:
    """An environment in its first turn on this problem; programs are those of `PROGRAMS`, unless told otherwise."""
    programs = {} if settings.get("workflow") in WITHOUT_PROGRAMS else {"executor": PROGRAMS.__getitem__}
    env = pettingllms_envs.make(name, **{**programs, **settings})
    env.reset(seed=0)
    env.restore(env.snapshot()._replace(play=env.workflow.start(AnswerState(problem))))
    return env


def parts(env: TextEnv) -> dict[str, dict[str, float]]:
    """The parts of the last step's reward by scope."""
    return {scope: dict(named) for scope, named in env.snapshot().parts.items()}

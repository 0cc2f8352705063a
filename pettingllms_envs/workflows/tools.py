"""What workflows share whose roles have Python run: checks of their settings, and the texts of prompts about a run."""

from __future__ import annotations

import re
from typing import Any

from pettingllms_envs.replies import FENCE, fence
from pettingllms_envs.workflows.channels import without_markup


MAX_SHOWN = 2_000
"""Characters of a program or of its output that a prompt shows."""


def check_executor(workflow: str, executor: Any, advice: str = "") -> None:
    """Raise ValueError unless there is something that can run a program.

    Args:
        workflow: Name of the workflow.
        executor: What was given as its executor.
        advice: What could be done instead, to end the message with.
    """
    if not callable(executor):
        given = "no executor" if executor is None else f"the executor {executor!r}"
        raise ValueError(
            f"the workflow {workflow} got {given}; expected one that runs a model's Python where it can do no harm."
            f" Pass executor=pettingllms_envs.sandbox.ToolExecutor(){advice}."
        )


def packages(imports: object) -> tuple[str, ...]:
    """The names of packages, or ValueError."""
    if not isinstance(imports, tuple | list) or not all(isinstance(name, str) for name in imports):
        raise ValueError(f"imports is {imports!r}; expected names of packages, such as ('sympy',). Give a tuple.")
    return tuple(imports)


def importable(imports: tuple[str, ...]) -> str:
    """What a program may import, in a sentence of a prompt."""
    more = "" if not imports else f" and {', '.join(imports)}"
    return f"It may import the standard library{more}; it can read no input and no files."


def shown(text: str, language: str = "") -> str:
    """A program or its output for a prompt, its middle left out if it is long.

    The fence is longer than any in the text, and chat markup is broken up, so that the text cannot pass for a part of
    the prompt or for a turn of the chat.
    """
    content = without_markup(shortened(text)).rstrip()
    longest = max(map(len, re.findall(r"`{3,}", content)), default=0)
    more = "`" * (longest - len(FENCE) + 1) if longest else ""
    return f"{more}{fence(content, language)}{more}"


def shortened(text: str) -> str:
    """A text of which the middle is left out if it is long."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def ran(printed: str, error: str) -> str:
    """What running a program gave, for a prompt."""
    words = f"It printed:\n{shown(printed)}" if printed.strip() else "It printed nothing."
    return f"{words}\nError: {error}." if error else words

"""What workflows share whose roles have Python run: checks of their settings, and the texts of prompts about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pettingllms_envs.core import ToolResult
from pettingllms_envs.quoting import quote_block, quote_inline, shorten


MAX_SHOWN = 2_000
"""Characters of a program or of its output that a prompt shows."""


@dataclass(frozen=True, slots=True)
class DefaultExecutor:
    """Runs Python as `pettingllms_envs.sandbox.ToolExecutor(imports=imports)` does, imported at the first program."""

    imports: tuple[str, ...] = ()

    def __call__(self, program: str) -> ToolResult:
        """Run the program from its first line to its end."""
        from pettingllms_envs.sandbox import ToolExecutor  # only those pay for it who run a program

        return ToolExecutor(imports=self.imports)(program)


def check_executor(workflow: str, executor: Any, advice: str = "") -> None:
    """Raise ValueError, whose message ends with `advice`, unless there is something that can run a program."""
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
    """A program or its output for a prompt, its middle left out if it is long."""
    return quote_block(shorten(text, MAX_SHOWN).rstrip(), language)


def ran(printed: str, error: str) -> str:
    """What running a program gave, for a prompt."""
    words = f"It printed:\n{shown(printed)}" if printed.strip() else "It printed nothing."
    return f"{words}\nError: {quote_inline(error)}." if error else words

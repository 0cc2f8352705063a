"""The tool `python`: runs programs that a model wrote in the process's own sandbox.

env = pettingllms_envs.make("plan_path", workflow="tool_plan", executor=sandbox.ToolExecutor())
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pettingllms_envs.core import ToolResult, ToolSpec
from pettingllms_envs.quoting import shorten
from pettingllms_envs.sandbox.shared import default
from pettingllms_envs.sandbox.values import ENDINGS, Limits, Verdict, check_limits


class SandboxFailed(RuntimeError):
    """The sandbox itself failed, twice. This is not the program's fault, and must not be punished by a reward."""


@dataclass(frozen=True, slots=True)
class ToolExecutor:
    """Runs each program in a new interpreter: no state is kept. Copies and pickles of it work the same way.

    Args:
        imports: Packages that the programs may import, such as `("numpy", "sympy")`; see `Sandbox`.
        max_shown: Most characters of printed output that are kept; the rest is cut out of the middle.
    """

    limits: Limits = field(default_factory=lambda: Limits(cpu=2.0, output=1 << 16))
    imports: tuple[str, ...] = ()
    max_shown: int = 4096

    def __post_init__(self) -> None:
        check_limits(self.limits)

    @property
    def spec(self) -> ToolSpec:
        """Its name is `python`, its one argument the program."""
        more = f" and {', '.join(self.imports)}" if self.imports else ""
        description = (
            "Runs a Python program and returns what it printed. It may import the standard library"
            f"{more}, and can read no input and no files. Nothing is kept between calls."
        )
        program = {"type": "string", "description": "The whole program."}
        return ToolSpec(
            "python", description, {"type": "object", "properties": {"program": program}, "required": ["program"]}
        )

    @property
    def digest(self) -> str:
        """The packages that programs may import."""
        return ",".join(sorted(self.imports))

    @property
    def deterministic(self) -> bool:
        """False: a program may draw random numbers, or read the clock."""
        return False

    def __call__(self, program: str) -> ToolResult:
        """Run the program from its first line to its end.

        Raises:
            SandboxFailed: The sandbox failed.
            SandboxUnavailable: No isolation works on this machine.
        """
        result = default(self.imports).run(program, limits=self.limits)
        if result.verdict == Verdict.SANDBOX_ERROR:
            raise SandboxFailed(f"the sandbox failed twice ({result.detail}); expected a result. See the log.")
        shown = shorten(result.stdout.decode("utf-8", "replace"), self.max_shown)
        error = "" if result.verdict == Verdict.FINISHED else f"{ENDINGS[result.verdict]}: {result.detail}"
        return ToolResult(shown, error)

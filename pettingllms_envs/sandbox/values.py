"""The inputs and results of the sandbox: limits, tests, verdicts. Frozen values without behaviour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


ToleranceKind = Literal["absolute", "relative", "either"]
"""What a tolerance limits: the difference, the difference over the expected number, or the smaller of the two."""


class Verdict(StrEnum):
    """How a run ended. Only `PASSED` deserves a reward; `SANDBOX_ERROR` is not the program's fault: run it again.

    Never turn a sandbox error into a reward of 0, which would train a policy away from correct programs.
    """

    PASSED = "passed"
    WRONG = "wrong"
    FINISHED = "finished"
    """It ran to its end; there was nothing to compare with."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    RUNTIME_ERROR = "runtime_error"
    VIOLATION = "violation"
    """It left a process behind, or broke a rule that no legitimate program breaks."""
    SANDBOX_ERROR = "sandbox_error"


ENDINGS = {
    Verdict.WRONG: "wrong",
    Verdict.TIMEOUT: "out of time",
    Verdict.MEMORY: "out of memory",
    Verdict.OUTPUT_LIMIT: "too much output",
    Verdict.RUNTIME_ERROR: "it failed",
    Verdict.VIOLATION: "forbidden",
}
"""What prompts say of a program that did not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a program.

    The verdict depends on CPU time, the same on a busy machine; wall-clock time only ends programs that wait.

    Args:
        cpu: Seconds of CPU time for a test.
        wall: Seconds for a test by the clock on the wall; None is four times `cpu`. Those in which the program was
            ready to run and others on the machine kept it from a core, up to a minute, do not count.
        total: Seconds of CPU time for all tests of a program together. The tests beyond it count as timed out.
        memory: Bytes of address space for each process, and of memory for all processes of a test together: where a
            cgroup can be made an eighth more or 32 MiB, else watched (`Sandbox.describe()`).
        output: Bytes of standard output for a test. (A test that expects more may print twice that.)
        processes: Processes and threads at one time; of a Python program four processes where no cgroup can be made.
    """

    cpu: float = 2.0
    wall: float | None = None
    total: float = 20.0
    memory: int = 1 << 30
    output: int = 1 << 20
    processes: int = 16

    def __post_init__(self) -> None:
        for name in ("cpu", "total", "wall"):
            value = getattr(self, name)
            if name == "wall" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
                raise ValueError(f"{name} is {value!r}; expected seconds, above 0 and at most 86400. Give a number.")
        for name, least, most in (("memory", 1 << 24, 1 << 40), ("output", 1, 1 << 30), ("processes", 1, 4096)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name} is {value!r}; expected a whole number from {least} to {most}.")

    @property
    def wall_seconds(self) -> float:
        return 4 * self.cpu if self.wall is None else self.wall


def check_limits(limits: object) -> None:
    """Raise `TypeError` unless limits are `Limits`."""
    if not isinstance(limits, Limits):
        raise TypeError(
            f"limits is {limits!r}; expected Limits. Leave it out for the defaults, or give Limits(cpu=2)."
        )


def as_bytes(text: str | bytes) -> bytes:
    """A text as UTF-8; lone surrogates, which a model may write, are left to whoever reads it."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class StdinTest:
    """A program reads `stdin` and must print `expected`."""

    stdin: str | bytes
    expected: str | bytes


@dataclass(frozen=True, slots=True)
class CallTest:
    """The function is called with `args` and must return `expected`; both are JSON values."""

    args: Sequence[Any]
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """One run of a program.

    Args:
        stdout: What it printed, or the JSON of what the function returned; a test's is cut at 64 KiB once compared.
        stderr: The end of its standard error.
        exit_code: The exit code, or minus the number of the signal that ended it; None if it was stopped or not run.
        cpu: Seconds of CPU time.
        wall: Seconds by the clock on the wall.
        waited: Seconds of `wall` in which it was ready to run and others on the machine kept it from a core. Measured
            only if it would otherwise have timed out, else 0.
        detail: A short explanation for a log; never a part of the verdict.
        isolation: The active layers, such as `"namespaces+landlock+seccomp+uid"`; `"none"` in unsafe mode.
    """

    verdict: Verdict
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    cpu: float = 0.0
    wall: float = 0.0
    waited: float = 0.0
    detail: str = ""
    isolation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A program's results on its tests, in their order."""

    results: tuple[ProgramResult, ...]
    isolation: str

    @property
    def verdict(self) -> Verdict:
        """`PASSED` if every test passed; else a sandbox error if there is one; else how the first failure ended."""
        verdicts = [result.verdict for result in self.results]
        if not verdicts or Verdict.SANDBOX_ERROR in verdicts:
            return Verdict.SANDBOX_ERROR
        return next((verdict for verdict in verdicts if verdict != Verdict.PASSED), Verdict.PASSED)

    @property
    def passed(self) -> bool:
        return self.verdict == Verdict.PASSED

    @property
    def pass_rate(self) -> float:
        """The fraction of tests passed, from 0 to 1."""
        return math.fsum(result.verdict == Verdict.PASSED for result in self.results) / max(1, len(self.results))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program and its tests, for `run_many`; the fields are the arguments of `run_tests`."""

    program: str
    tests: Sequence[StdinTest | CallTest]
    fn_name: str | None = None
    prelude: str = ""
    tolerance: float | None = None
    tolerance_kind: ToleranceKind = "either"
    ignore_case: bool | frozenset[str] = False

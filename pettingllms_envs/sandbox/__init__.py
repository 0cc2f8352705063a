"""Runs Python programs that a model wrote in isolation, and judges their output.

    from pettingllms_envs import sandbox

    sandbox.run("print(6 * 7)").stdout                                           # b"42\\n"
    tests = [sandbox.StdinTest(stdin="3", expected="9")]
    sandbox.run_tests("print(int(input()) ** 2)", tests).passed                  # True

The functions here share one `Sandbox` per process, started at the first call and ended with the process. Create your
own for other settings. `describe()` reports the active layers; a machine that allows too few raises
`SandboxUnavailable` with a table of what was tried. docs/sandbox.md lists what is guaranteed and what is not.

From the outside in: `sandbox.py` (the public API), `pool.py` and `slot.py` (servers), `layers.py` (isolation layers,
and whether they work here), `filters.py` and `syscalls.py` (the seccomp filter), `requests.py`, `compare.py` and
`verdicts.py` (pure: from a caller's tests to verdicts), `inside/` (the server, a separate program).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pettingllms_envs.sandbox.executor import SandboxFailed, ToolExecutor
from pettingllms_envs.sandbox.inside.server import MOST_WAITED
from pettingllms_envs.sandbox.layers import CONFINEMENTS, Probed, SandboxUnavailable
from pettingllms_envs.sandbox.prelude import LEETCODE_PRELUDE
from pettingllms_envs.sandbox.sandbox import Sandbox
from pettingllms_envs.sandbox.shared import default
from pettingllms_envs.sandbox.values import CallTest, Limits, ProgramResult, Report, StdinTest, Task, Verdict


__all__ = [
    "CONFINEMENTS",
    "LEETCODE_PRELUDE",
    "MOST_WAITED",
    "CallTest",
    "Limits",
    "Probed",
    "ProgramResult",
    "Report",
    "Sandbox",
    "SandboxFailed",
    "SandboxUnavailable",
    "StdinTest",
    "Task",
    "ToolExecutor",
    "Verdict",
    "default",
    "describe",
    "probe",
    "run",
    "run_many",
    "run_tests",
]


def run(program: str, stdin: str | bytes = "", **settings: Any) -> ProgramResult:
    """`Sandbox.run` of the process's own sandbox."""
    return default().run(program, stdin, **settings)


def run_tests(program: str, tests: Sequence[StdinTest | CallTest], **settings: Any) -> Report:
    """`Sandbox.run_tests` of the process's own sandbox."""
    return default().run_tests(program, tests, **settings)


def run_many(tasks: Sequence[Task], **settings: Any) -> list[Report]:
    """`Sandbox.run_many` of the process's own sandbox."""
    return default().run_many(tasks, **settings)


def describe() -> dict[str, Any]:
    """`Sandbox.describe` of the process's own sandbox."""
    return default().describe()


def probe() -> list[Probed]:
    """Try every confinement on this machine. Takes a few seconds, since each starts a server."""
    found: dict[str, Probed] = {}
    for confinement in CONFINEMENTS:
        with Sandbox(num_slots=1, confinement=confinement) as sandbox:
            with suppress(SandboxUnavailable):  # what was found says so
                sandbox.start()
            for each in sandbox.probed:
                found[each.name] = each
    return list(found.values())

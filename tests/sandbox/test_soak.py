"""Many runs of every kind of end, mixed: the trainer's process stays as small as it was, and nothing is left."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from arena import look, open_sandbox
from pettingllms_envs.sandbox import CallTest, Limits, Sandbox, StdinTest, Task, Verdict


KINDS: dict[str, tuple[str, Verdict]] = {
    "sound": ("print(2 * int(input()))", Verdict.PASSED),
    "wrong": ("print(input())", Verdict.WRONG),
    "error": ("1 / 0", Verdict.RUNTIME_ERROR),
    "crash": ("import ctypes; ctypes.string_at(0)", Verdict.RUNTIME_ERROR),
    "exit": ("import os; os._exit(7)", Verdict.RUNTIME_ERROR),
    "memory": ("x = bytearray(1 << 40)", Verdict.MEMORY),
    "flood": ("while True: print('x' * 100_000)", Verdict.OUTPUT_LIMIT),
    "syntax": ("def f(:", Verdict.RUNTIME_ERROR),
    "sleep": ("import time; time.sleep(100)", Verdict.TIMEOUT),
    "orphan": ("import os, time\nif os.fork() == 0: time.sleep(100)", Verdict.VIOLATION),
}
WEIGHTS = {
    "sound": 60,
    "wrong": 60,
    "error": 30,
    "crash": 20,
    "exit": 20,
    "memory": 20,
    "flood": 4,
    "syntax": 20,
    "sleep": 2,
    "orphan": 8,
}


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(sandbox: Sandbox, num_runs: int, seed: int) -> None:
    """Run so many tests, two for each program, a hundred programs at a time, and check each verdict."""
    numbers = random.Random(seed)
    for _ in range(max(1, num_runs // 200)):
        soak_once(sandbox, numbers)


def soak_once(sandbox: Sandbox, numbers: random.Random) -> None:
    names = numbers.choices(list(WEIGHTS), list(WEIGHTS.values()), k=100)
    tasks = [Task(program=KINDS[name][0], tests=[StdinTest("1", "2"), StdinTest("2", "4")]) for name in names]
    limits = Limits(cpu=1.0, wall=0.5, memory=1 << 28, output=1 << 17)
    for report, name in zip(sandbox.run_many(tasks, limits=limits), names, strict=True):
        # On a machine with more work than cores, half a second by the clock may be over sooner than anything else.
        assert report.verdict in (KINDS[name][1], Verdict.TIMEOUT), (name, report)


@pytest.mark.parametrize("num_runs", [300, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("configuration", ["A namespaces", pytest.param("C landlock", marks=pytest.mark.slow)])
def test_nothing_adds_up(configuration: str, num_runs: int) -> None:
    with open_sandbox(configuration, num_slots=2) as sandbox:
        soak(sandbox, num_runs // 10, seed=0)  # what is allocated once
        before, files, memory = look(sandbox), len(os.listdir("/proc/self/fd")), resident()
        soak(sandbox, num_runs, seed=1)
        after = look(sandbox)
        assert len(after.processes) == len(before.processes)
        assert after.entries == before.entries
        assert len(os.listdir("/proc/self/fd")) == files
        assert resident() - memory < 8 << 20


def test_large_outputs_are_not_kept(sandbox: Sandbox) -> None:
    tests = [StdinTest("", "x" * (1 << 20))] * 8
    report = sandbox.run_tests("print('x' * (1 << 20))", tests)
    assert report.passed
    assert all(len(result.stdout) == 1 << 16 for result in report.results)
    called = sandbox.run_tests("def f(): return 'x' * (1 << 20)", [CallTest([], "x" * (1 << 20))], fn_name="f")
    assert called.passed

"""The self-test of a sandbox at its start: five attacks, which the layers must stop, and a harmless program.

It takes less than a second, once for each `Sandbox`. The full corpus of attacks is in tests/sandbox.

An attack that was ended by its limit of time shows nothing of the layers: it is tried again with more time, and after
the last try the test is `Undecided`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pettingllms_envs.sandbox.requests import request_tests
from pettingllms_envs.sandbox.slot import Slot
from pettingllms_envs.sandbox.values import Limits, ProgramResult, StdinTest, Task, Verdict


LIMITS = Limits(cpu=1.0, wall=3.0, memory=1 << 28)
TRIES = (1, 4, 16)
"""How many times the limits of time each try has."""


class Undecided(Exception):
    """No check failed, and some were ended by their time in every try: nothing is known of the layers."""


@dataclass(frozen=True, slots=True)
class Check:
    """A program, or a script for the shell, whose `$1` is the canary, and a function that checks its result."""

    name: str
    program: str
    holds: Callable[[ProgramResult], bool]


_READ = """
import os
for path in (input(), "/etc/passwd", "/proc/1/environ", "/proc/self/environ"):
    try:
        print(os.read(os.open(path, os.O_RDONLY), 100))
    except OSError as error:
        print("refused")
"""
_CONNECT = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(family, kind); print("a socket")
        except OSError:
            print("refused")
"""
_STAY = """
import os, time
if os.fork() == 0:
    try: os.setsid()
    except OSError: pass
    time.sleep(60)
"""
_KILL = """
import os, signal
for pid in (os.getppid(), 1, 0, -1):
    try:
        os.kill(pid, signal.SIGKILL); print("killed")
    except OSError:
        print("refused")
"""
_EAT = "data = bytearray(1 << 32)\nprint(len(data))\n"


def _refused(times: int) -> Callable[[ProgramResult], bool]:
    return lambda result: result.stdout.split() == [b"refused"] * times


def checks() -> tuple[Check, ...]:
    """The programs of the self-test."""
    return (
        Check(
            "a sound program passes", "print(int(input()[-1:] == '!'))", lambda each: each.verdict == Verdict.PASSED
        ),
        Check("files are unreadable", _READ, _refused(4)),
        Check("there is no network", _CONNECT, _refused(8)),
        Check("no process is left behind", _STAY, lambda each: each.verdict in _BARRED),
        Check("others cannot be killed", _KILL, _refused(4)),
        Check("memory is limited", _EAT, lambda each: each.verdict == Verdict.MEMORY),
    )


_BARRED = (Verdict.VIOLATION, Verdict.RUNTIME_ERROR)


def failures(slot: Slot) -> list[str]:
    """The names of the checks that failed on a running slot, each with its result.

    Raises:
        Died: The server ended.
        Undecided: It cannot be told whether all hold.
    """
    with _canary() as path:

        def run(check: Check, limits: Limits) -> ProgramResult:
            test = StdinTest(path + "!" if check.program.startswith("print") else path, "1")
            request = request_tests(Task(program=check.program, tests=[test]), limits, "per_test", True)
            return slot.run(request.job, request.work, partial(request.result, isolation=""))[0]

        return _failures(checks(), run)


def _failures(checks: Iterable[Check], run: Callable[[Check, Limits], ProgramResult]) -> list[str]:
    """The names of the checks that failed, each with its result; of those that fail nothing is tried again."""
    failed, undecided = [], []
    for check in checks:
        for times in TRIES:
            result = run(check, replace(LIMITS, cpu=LIMITS.cpu * times, wall=LIMITS.wall_seconds * times))
            if result.verdict != Verdict.TIMEOUT:
                break
        if result.verdict == Verdict.TIMEOUT:
            undecided.append(f"{check.name} ({result.cpu:.1f} s of CPU time, {result.wall:.1f} s by the clock)")
        elif not check.holds(result):
            failed.append(f"{check.name}: {result.verdict} {result.detail} {result.stdout[:80]!r}")
    if undecided and not failed:
        raise Undecided(f"not over in the last of {len(TRIES)} tries: {', '.join(undecided)}")
    return failed


@contextmanager
def _canary() -> Iterator[str]:
    """The path of a file that every user of the machine may read."""
    with tempfile.NamedTemporaryFile("w") as canary:
        canary.write("secret\n")
        canary.flush()
        os.chmod(canary.name, 0o644)
        yield canary.name

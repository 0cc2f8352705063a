"""The self-test of a sandbox at its start: five attacks, which the layers must stop, and a harmless program.

It takes less than a second, once for each `Sandbox`. The full corpus of attacks is in tests/sandbox.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pettingllms_envs.sandbox.requests import request_tests
from pettingllms_envs.sandbox.slot import Slot
from pettingllms_envs.sandbox.values import Limits, Report, StdinTest, Task, Verdict


LIMITS = Limits(cpu=1.0, wall=3.0, memory=1 << 28)


@dataclass(frozen=True, slots=True)
class Check:
    """A program, and a function that checks its report."""

    name: str
    program: str
    holds: Callable[[Report], bool]


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


def _refused(times: int) -> Callable[[Report], bool]:
    return lambda report: report.results[0].stdout.split() == [b"refused"] * times


def checks() -> tuple[Check, ...]:
    """The programs of the self-test."""
    return (
        Check("a sound program passes", "print(int(input()[-1:] == '!'))", lambda report: report.passed),
        Check("files are unreadable", _READ, _refused(4)),
        Check("there is no network", _CONNECT, _refused(8)),
        Check("no process is left behind", _STAY, lambda report: report.verdict in _BARRED),
        Check("others cannot be killed", _KILL, _refused(4)),
        Check("memory is limited", _EAT, lambda report: report.verdict == Verdict.MEMORY),
    )


_BARRED = (Verdict.VIOLATION, Verdict.RUNTIME_ERROR)


def failures(slot: Slot) -> list[str]:
    """The names of the checks that failed on a running slot, each with its result.

    Raises:
        Died: The server ended.
    """
    failed = []
    with tempfile.NamedTemporaryFile("w") as canary:
        canary.write("secret")
        canary.flush()
        os.chmod(canary.name, 0o644)
        for check in checks():
            test = StdinTest(canary.name + "!" if check.program.startswith("print") else canary.name, "1")
            request = request_tests(Task(program=check.program, tests=[test]), LIMITS, "per_test", True)
            results = slot.run(request.job, request.work, partial(request.result, isolation=""))
            report = Report(results=tuple(results), isolation="")
            if not check.holds(report):
                result = report.results[0]
                failed.append(f"{check.name}: {result.verdict} {result.detail} {result.stdout[:80]!r}")
    return failed

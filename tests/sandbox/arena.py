"""Where the tests run programs: the configurations of this machine, and what a program may have left behind on it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pettingllms_envs.sandbox import CallTest, Limits, Report, Sandbox, SandboxUnavailable, StdinTest, Task, selftest
from pettingllms_envs.sandbox.slot import FIRST_UID, LAST_UID


LIMITS = Limits(cpu=1.0, wall=1.5, total=3.0, memory=1 << 28, output=1 << 20, processes=8)

WATCHED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/")
"""Folders in which an attack might leave something."""

CONFIGURATIONS = {
    "A namespaces": {"confinement": "namespaces"},
    "A user namespaces": {"confinement": "user-namespaces"},
    "B user namespaces, unprivileged": {"confinement": "user-namespaces", "as_other_user": True},
    "C landlock": {"confinement": "landlock"},
    "C landlock, unprivileged": {"confinement": "landlock", "as_other_user": True},
    "E no-open": {"confinement": "no-open"},
    "E no-open, unprivileged": {"confinement": "no-open", "as_other_user": True},
}
"""The accepted configurations, with the arguments of `Sandbox` that insist on them."""

BEST = "the best of this machine"
"""What `Sandbox` chooses when it is told nothing."""


def open_sandbox(configuration: str, num_slots: int, **more: Any) -> Sandbox:
    """A started sandbox of one configuration; skips, with what was found out, where the machine does not allow it."""
    if sys.platform != "linux":
        pytest.skip("sandboxes need Linux")
    settings = {} if configuration == BEST else CONFIGURATIONS[configuration]
    if settings.get("as_other_user") and os.geteuid() != 0:
        pytest.skip("only root can start a server as another user")
    made = Sandbox(num_slots=num_slots, **settings, **more)
    try:
        made.start()
    except SandboxUnavailable as error:
        skip_unless_broken(made, f"{configuration}: {error}")
    return made


def skip_unless_broken(sandbox: Sandbox, reason: str) -> None:
    """Skip where a layer is not to be had; fail where it is and does not hold, or where our server does not start."""
    names = [check.name for check in selftest.checks()]
    for each in sandbox.probed:
        assert not any(name in each.why for name in names), reason
        assert "the server did not start" not in each.why, reason
    pytest.skip(reason)


@dataclass(frozen=True)
class Secret:
    """A text that nobody in the sandbox may come to know: in a file, in the environment, in memory."""

    path: Path
    text: str = field(default_factory=lambda: f"canary-{secrets.token_hex(16)}")


@contextmanager
def secret(folder: Path) -> Iterator[Secret]:
    """A secret that any user of the machine can read, by the file's mode and by those of all folders above it."""
    made = Secret(folder / "secret")
    made.path.write_text(made.text + "\n")
    made.path.chmod(0o644)
    for parent in made.path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.environ["PETTINGLLMS_TEST_SECRET"] = made.text
    try:
        yield made
    finally:
        del os.environ["PETTINGLLMS_TEST_SECRET"]


@contextmanager
def busy(number: int) -> Iterator[None]:
    """As many processes that never wait, each in a session of its own: the kernel shares cores among sessions."""
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def task_of(program: str, fn_name: str | None, hidden: Secret, *, times: int = 2) -> Task:
    """The task that an attack is set: to say the secret, in so many tests."""
    if fn_name is None:
        test: StdinTest | CallTest = StdinTest(f"{hidden.path}\n{os.getpid()}\n", hidden.text)
    else:
        test = CallTest([str(hidden.path), os.getpid()], hidden.text)
    return Task(program=program, tests=[test] * times, fn_name=fn_name)


def said(report: Report, text: str) -> bool:
    """Whether the text is anywhere in what the program wrote."""
    return any(text.encode() in result.stdout + result.stderr for result in report.results)


@dataclass(frozen=True)
class Machine:
    """What there is on the machine, as far as an attack could add to it."""

    processes: frozenset[int]
    entries: frozenset[str]
    shared_memory: str


def look(sandbox: Sandbox) -> Machine:
    """The processes below the sandbox's supervisors, and what attacks left in the folders."""
    entries = [path for folder in WATCHED if os.path.isdir(folder) for path in _left_in(folder)]
    tables = [Path("/proc/sysvipc", name) for name in ("shm", "sem", "msg")]
    counts = [len(table.read_text().splitlines()) for table in tables if table.exists()]
    return Machine(frozenset(processes(sandbox)), frozenset(entries), str(counts))


def _left_in(folder: str) -> Iterator[str]:
    """Entries that are an attack's by their name or by their owner; others use these folders too."""
    for entry in os.scandir(folder):
        try:
            owner = entry.stat(follow_symlinks=False).st_uid
        except FileNotFoundError:
            continue
        if "an-attack" in entry.name or FIRST_UID <= owner < LAST_UID:
            yield entry.path


def processes(sandbox: Sandbox) -> set[int]:
    """Living processes below the supervisors; zombies do not count.

    In their process namespaces and process groups nothing can leave them: what is orphaned, a supervisor adopts.
    """
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] == b"Z":
                continue
            parents[int(name)] = int(fields[1])
    below = set(sandbox.pids())
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below

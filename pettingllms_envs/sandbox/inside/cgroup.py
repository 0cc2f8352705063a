"""A memory cgroup for the jobs of one server, where this machine lets us make one: it bounds all of a job's processes.

Both versions of the kernel's interface. The supervisor makes the group before any layer holds, and keeps its files
open: the server sets the limit of each job through them, and a job's first process moves itself in.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass


PREFIX = "pettingllms-sandbox-"
SLACK = 1 << 25
_GONE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """A group of its own, by the descriptors of its files.

    Args:
        version: 1 or 2, of the kernel's interface.
        procs: To be written to: who writes `0` is moved in.
        limits: To be written to, in this order, with the most bytes.
        events: Has a line `oom_kill N`.
    """

    version: int
    folder: str
    procs: int
    limits: tuple[int, ...]
    events: int

    def enter(self) -> None:
        os.write(self.procs, b"0")

    def limit(self, memory: int) -> None:
        """Let all processes of the group together have as much memory as a program may, and some slack.

        The slack is for pages that a fork copies of the warm interpreter: a single process that asks for too much
        is to be refused by its own limit, which raises a MemoryError, and not to be killed.
        """
        most = b"%d" % most_bytes(memory)
        if self.version == 1:
            _, both = self.limits
            os.pwrite(both, b"-1", 0)  # the limit with swap is never below the other, so it has to go up first
        for fd in self.limits:
            os.pwrite(fd, most, 0)

    def num_killed(self) -> int:
        """How many processes the kernel has killed since the group was made, for there was no memory left in it."""
        for line in os.pread(self.events, 4096, 0).splitlines():
            name, _, number = line.partition(b" ")
            if name == b"oom_kill":
                return int(number)
        return 0

    def remove(self) -> None:
        for fd in (self.procs, *self.limits, self.events):
            os.close(fd)
        deadline = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return
            time.sleep(0.01)  # a process that has been waited for may be counted for a moment


def most_bytes(memory: int) -> int:
    """What the processes of a program may have together that may have `memory` each: an eighth more, or 32 MiB."""
    return memory + max(memory // 8, SLACK)


def make(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> Group | None:
    """A new group below `root`, where cgroups are mounted, or None where none can be made."""
    for version, parent in _parents(root, own):
        _remove_stale(parent)
        folder = f"{parent}/{PREFIX}{os.getpid()}"
        try:
            os.mkdir(folder)
        except OSError:
            continue
        group = _opened(version, folder)
        if group is not None and _holds(group):
            return group
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return None


def _parents(root: str, own: str) -> Iterator[tuple[int, str]]:
    """The groups below which ours may be made, by version: our own one, and what is above it.

    In a container the path of our own may be the host's, which is not mounted; the mounted root is then our own.
    """
    try:
        with open(own) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            yield from ((1, f"{root}/memory{each}") for each in dict.fromkeys((path.rstrip("/"), "")))
    for number, controllers, path in lines:
        if number == "0" and not controllers:
            # A group that has processes may not limit those below it, but one above it may: a user's own slice.
            above = path.rpartition("/")[0]
            yield from ((2, f"{root}{each}") for each in dict.fromkeys((path.rstrip("/"), above, "")))


def _opened(version: int, folder: str) -> Group | None:
    """A group with its files open and everything set that no job changes; None where the kernel does not let us."""
    names = (
        ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control")
        if version == 1
        else ("memory.max", "memory.swap.max", "memory.events")
    )
    fds: list[int] = []
    try:
        for name in ("cgroup.procs", *names[:2]):
            fds.append(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC))
        fds.append(os.open(f"{folder}/{names[2]}", os.O_RDONLY | os.O_CLOEXEC))
        if version == 1:
            return Group(1, folder, fds[0], (fds[1], fds[2]), fds[3])
        os.write(fds[2], b"0")
        os.close(fds.pop(2))
        with contextlib.suppress(OSError), open(f"{folder}/memory.oom.group", "w") as file:  # from Linux 4.19
            file.write("1")
        return Group(2, folder, fds[0], (fds[1],), fds[2])
    except OSError:
        for fd in fds:
            os.close(fd)
        return None


def _holds(group: Group) -> bool:
    """Whether a process can enter the group, and have its memory limited."""
    pid = os.fork()
    if pid == 0:
        try:
            group.limit(1 << 28)
            group.enter()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status == 0


def _remove_stale(parent: str) -> None:
    """Remove the groups of supervisors that were killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name.removeprefix(PREFIX)}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{parent}/{name}")

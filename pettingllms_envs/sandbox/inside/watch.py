"""What the kernel says of the processes below the server: how long they waited for a core, how much memory they hold.

The server does not see /proc, and asks the supervisor, which does, through a socket. What the kernel does not limit
for all of a job's processes together (memory without a cgroup, their number where others of the same user count), the
supervisor adds up every few milliseconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .wire import MEMORY


MOST_PROCESSES = 4
"""Of a Python program, where no cgroup bounds their memory."""
INTERVAL = 0.005
"""Seconds between two looks at the memory of a job."""
ANSWER_SECONDS = 5.0

_MESSAGE = struct.Struct("<BQdd")  # kind, number of the job, values
_WAITED = 0  # from the server: how long? The answer is of the same kind, with the seconds
_BOUND = 1  # from the server: watch this job, with the limits of `Bounds`; all of them infinite is the end of it
_TOO_MUCH = 2  # from the supervisor: this job exceeds one of them; the value is the record's kind

_SLICE = 0.01
"""Seconds that others are taken to run whenever a process has to make way; only for kernels that do not count them."""
_LEAST_SLICE = 0.003
_TICK = os.sysconf("SC_CLK_TCK")


class Bounds(NamedTuple):
    """What all processes of a job together may hold: bytes of memory, and their number. Infinity where the kernel sees
    to it."""

    memory: float = math.inf
    processes: float = math.inf


UNBOUNDED = Bounds()


class Watch:
    """The server's end."""

    def __init__(self, channel: socket.socket) -> None:
        channel.settimeout(ANSWER_SECONDS)
        self._channel = channel
        self._job = 0
        self._exceeded = 0

    def fileno(self) -> int:
        """To be polled: readable when there is something to `hear`."""
        return self._channel.fileno()

    def bound(self, bounds: Bounds) -> None:
        """Watch the next job; `UNBOUNDED` ends it."""
        if bounds != UNBOUNDED:
            self._job += 1
        self._exceeded = 0
        self._channel.send(_MESSAGE.pack(_BOUND, self._job, *bounds))

    def hear(self) -> None:
        """Take a message, when there is one to be read."""
        self._receive()

    @property
    def exceeded(self) -> int:
        """The kind of record, `MEMORY`, of the limit that the job was said to exceed, or 0."""
        return self._exceeded

    def waited(self, most_cpu: float) -> float:
        """Seconds that a program was ready to run while others had the cores; see the function `waited`."""
        self._channel.send(_MESSAGE.pack(_WAITED, self._job, most_cpu, 0.0))
        while True:
            kind, value = self._receive()
            if kind == _WAITED:
                return value

    def _receive(self) -> tuple[int, float]:
        kind, job, value, *_ = _MESSAGE.unpack(self._channel.recv(_MESSAGE.size))
        if kind == _TOO_MUCH and job == self._job:
            self._exceeded = int(value)
        return kind, value


def answer(channel: socket.socket, server: int) -> None:
    """Answer the server with this process id, in the supervisor, until it is gone."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    job, bounds = 0, UNBOUNDED
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was killed before it had read all
        while True:
            if not poll.poll(INTERVAL * 1000 if bounds != UNBOUNDED else None):
                if kind := _exceeded(server, bounds):
                    channel.send(_MESSAGE.pack(_TOO_MUCH, job, kind, 0.0))
                    bounds = UNBOUNDED
                continue
            message = channel.recv(_MESSAGE.size)
            if not message:
                return
            kind, number, *values = _MESSAGE.unpack(message)
            if kind == _WAITED:
                tree = list(below(server))
                # The first process of a job is ours, unless it runs the tests itself, or is yet to start one.
                pids = [pid for pid, depth in tree if depth > 1] or [pid for pid, _ in tree]
                channel.send(_MESSAGE.pack(_WAITED, number, waited(pids, values[0]), 0.0))
            else:
                job, bounds = number, Bounds(*values)


def _exceeded(server: int, bounds: Bounds) -> int:
    """The kind of record of what the job's programs exceed, or 0."""
    programs = [pid for pid, depth in below(server) if depth > 1]  # the first of a job is ours
    if len(programs) > bounds.processes:
        return MEMORY
    if len(programs) > 1 and sum(map(resident, programs)) > bounds.memory and sum(map(own, programs)) > bounds.memory:
        return MEMORY  # a single one has a limit of its own
    return 0


def below(parent: int) -> Iterator[tuple[int, int]]:
    """The processes below one, with their depth: 1 is a child."""
    children = _children if os.path.exists(f"/proc/{parent}/task/{parent}/children") else children_by_parent
    level, depth = [parent], 0
    while level:
        depth += 1
        level = [child for pid in level for child in children(pid)]
        yield from ((pid, depth) for pid in level)


def _children(parent: int) -> list[int]:
    return [int(pid) for thread in _threads(parent) for pid in _read(f"{thread}/children").split()]


def children_by_parent(parent: int) -> list[int]:
    """The children of a process, on any kernel: all processes are asked for their parent."""
    children = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if fields and int(fields[1]) == parent:
                children.append(int(name))
    return children


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, without files; what it shares with others is counted whole."""
    return _sizes(f"/proc/{pid}/status", b"RssAnon:", b"RssShmem:")


def own(pid: int) -> int:
    """The same, of shared pages its share alone; `resident` where that may not be read. Takes longer."""
    return _sizes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", b"Pss_Shmem:") or resident(pid)


def _sizes(path: str, *names: bytes) -> int:
    """The sum of some lines of a file of /proc, which gives them in kB; 0 where it cannot be read."""
    lines = (line.split() for line in _read(path).splitlines())
    return sum(int(words[1]) << 10 for words in lines if words and words[0] in names)


def waited(pids: Sequence[int], most_cpu: float = math.inf) -> float:
    """Seconds that a program was ready to run and others on the machine had the cores; of its threads, the longest.

    What its own processes and threads kept each other waiting is not among them: at most their CPU time. Once they
    have used more than `most_cpu` seconds it is 0.
    """
    total = sum(map(cpu, pids))
    if total > most_cpu:
        return 0.0
    times = (_times(thread) for pid in pids for thread in _threads(pid))
    return max([0.0, *(delay - max(0.0, total - ran) for ran, delay in times)])


def cpu(pid: int) -> float:
    """CPU seconds of a process, with its threads that have ended and all children that were waited for."""
    ticks = [int(field) for field in _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[11:15]]
    living = sum(_times(thread)[0] for thread in _threads(pid))  # the same, but for those that have ended, and exact
    return max(living, sum(ticks[:2]) / _TICK) + sum(ticks[2:]) / _TICK


def _times(thread: str, read: Callable[[str], bytes] | None = None) -> tuple[float, float]:
    """CPU seconds of a thread, and those that it waited for a core.

    Where the kernel does not measure waiting, it is estimated by how often the thread made way. One that makes way on
    purpose gains little: it counts as often as its own CPU time has room for.
    """
    read = read or _read
    ran, delay = (*map(int, read(f"{thread}/schedstat").split()[:2]), 0, 0)[:2]
    if ran:
        return ran / 1e9, delay / 1e9
    switches = 0
    for line in read(f"{thread}/status").splitlines():
        if line.startswith(b"nonvoluntary_ctxt_switches:"):
            switches = int(line.split()[1])
    seconds = sum(map(int, read(f"{thread}/stat").rpartition(b")")[2].split()[11:13])) / _TICK
    return seconds, min(switches, (seconds + 1 / _TICK) / _LEAST_SLICE) * _SLICE


def _threads(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:  # it has ended
        return []


def _read(path: str) -> bytes:
    """A file of /proc; nothing of a process that has ended, or may not be seen."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

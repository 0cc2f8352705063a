"""The fork server: one job at a time, each in a process forked from here, watched by the clock and by the kernel.

It never reads a program, an input or an output: it passes files on. So there is nothing in its memory, of which every
job gets a copy, that one program could leave for the next.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn

from . import job as jobs
from . import wire
from .cgroup import Group
from .confine import Confinement
from .watch import MOST_PROCESSES, UNBOUNDED, Bounds, Watch


SETUP_SECONDS = 20.0
MOST_WAITED = 60.0
"""Seconds more, by the clock, for a test that others on the machine kept from its CPU time."""
_JUST_WAITED = 0.01


@dataclass(frozen=True, slots=True)
class Server:
    """What stays the same from job to job."""

    sock: socket.socket
    confinement: Confinement
    address_space: int
    """Bytes of address space that a job has before it runs anything."""
    child_died: int
    """Readable when a child has died."""
    watch: Watch
    group: Group | None
    """Bounds the memory of a job's processes; without, the watch does."""


def serve(
    sock: socket.socket, confinement: Confinement, address_space: int, watch: Watch, group: Group | None
) -> NoReturn:
    """Run jobs until the trainer is gone."""
    child_died, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    server = Server(sock, confinement, address_space, child_died, watch, group)
    while True:
        try:
            job, files = wire.receive_job(sock)
        except EOFError:
            os._exit(0)
        records = _run(server, job, files)
        for fd in files:
            os.close(fd)
        wire.send_frame(sock, b"".join(wire.RECORD.pack(*record) for record in records))


def _run(server: Server, job: wire.Job, files: list[int]) -> list[wire.Record]:
    """The record of each test; a new process wherever one ended before its time."""
    records: list[wire.Record] = []
    progress = wire.Progress()
    stop = False
    while progress.test < job.num_tests and not stop:
        for record in _process(server, job, files, progress):
            records.append(record)
            stop = record.kind in (wire.FAULT, wire.FORGED) or job.stops_after(record, progress)
            progress = progress.after(record)
    return records + [
        wire.Record(wire.SKIPPED, index, 0, 0.0, 0.0, 0, 0) for index in range(progress.test, job.num_tests)
    ]


def _process(server: Server, job: wire.Job, files: list[int], progress: wire.Progress) -> list[wire.Record]:
    """The records of the tests that one process got through, at least one."""
    # Not a pipe: a process may open the other end of its own pipe in /proc/self/fd, and read what is meant for us.
    ours, theirs = socket.socketpair()
    read, write = ours.detach(), theirs.detach()
    group = None if job.in_process else server.group  # a single process has a limit of its own, and may start no other
    if group is not None:
        group.limit(job.memory)
    elif not job.in_process:
        server.watch.bound(Bounds(memory=job.memory, processes=MOST_PROCESSES))
    pid = os.fork()
    if pid == 0:
        payload, results, errors = files
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            job_files = jobs.Files(payload, results, errors, write)
            jobs.run(job, job_files, server.confinement, group, server.address_space, progress)
        finally:
            os._exit(1)
    os.close(write)
    heard = _Heard(job, progress)
    try:
        return _watch(server, heard, pid, read, files)
    finally:
        os.close(read)
        if group is None and not job.in_process:
            server.watch.bound(UNBOUNDED)


class _Heard:
    """What a job's process has said. It is honest, unless it runs the tests itself: then it may say anything."""

    def __init__(self, job: wire.Job, progress: wire.Progress) -> None:
        self.job, self.progress = job, progress
        self.records: list[wire.Record] = []
        self.ready = self.over = self.forged = False
        self._pending = b""

    def take(self, data: bytes) -> bool:
        """Hear a piece of what it writes; whether a record was complete: a byte now and then earns no more time."""
        self._pending += data
        complete = len(self._pending) >= wire.RECORD.size
        while len(self._pending) >= wire.RECORD.size and not self.forged:
            self._take(wire.Record._make(wire.RECORD.unpack_from(self._pending)))
            self._pending = self._pending[wire.RECORD.size :]
        return complete

    def _take(self, record: wire.Record) -> None:
        if self.over:
            self.forged = True
        elif record.kind == wire.FAULT and not (self.ready and self.job.in_process):
            self.records.append(record)
            self.over = True
        elif record.kind == wire.READY and not self.ready:
            self.ready = True
        elif record.kind == wire.DONE and self.records:
            self.over = True
        elif self.ready and self._likely(record):
            self.records.append(record)
            self.progress = self.progress.after(record)
        else:
            self.forged = True

    def _likely(self, record: wire.Record) -> bool:
        if record.test != self.progress.test or record.test >= self.job.num_tests or record.waited != 0.0:
            return False
        if not self.job.in_process:
            return record.kind in (wire.ENDED, wire.LEFTOVER, wire.MEMORY)
        exited = record.kind == wire.ENDED and record.status & ~0xFF00 == 0
        sane = 0.0 <= record.cpu < math.inf and 0.0 <= record.wall < math.inf
        return exited and sane and max(record.num_output, record.num_errors) < 1 << 40


class Clock:
    """The `seconds` that a test has, by the clock on the wall; what it waits for others on the machine is added.

    `cpu` and `seen` are the seconds that its process had used and waited before, the latter as far as that is known.
    """

    def __init__(self, seconds: float, cpu: float = 0.0, seen: float = 0.0) -> None:
        self._began = time.monotonic()
        self._seconds = seconds
        self.cpu = cpu
        self.seen = seen
        self.waited = 0.0

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def left(self) -> float:
        return self._seconds + self.waited - self.elapsed()

    def put_off(self, waited: float) -> bool:
        """Add what the test's process has waited since this was asked last; whether that is anything."""
        more = min(waited - self.seen, self.elapsed() - self.waited)  # in earlier tests it may have waited as well
        self.seen = waited
        if more <= _JUST_WAITED or self.waited >= MOST_WAITED:
            return False
        self.waited = min(self.waited + more, MOST_WAITED)
        return True


def _watch(server: Server, heard: _Heard, pid: int, read: int, files: list[int]) -> list[wire.Record]:
    """Listen to a job's process until it is dead, and everything with it; kill it when its time is over."""
    poll = select.poll()
    poll.register(server.sock, 0)  # only to hear that the trainer is gone
    poll.register(server.child_died, select.POLLIN)
    poll.register(read, select.POLLIN)
    poll.register(server.watch, select.POLLIN)
    before = jobs.time_of_children()
    clock = Clock(SETUP_SECONDS)
    while True:
        left, most_cpu = clock.left(), clock.cpu + heard.job.cpu
        if left <= 0 and heard.ready and not heard.forged and clock.put_off(server.watch.waited(most_cpu)):
            continue
        if left <= 0 or heard.forged or server.watch.exceeded:
            kill(pid)
            kind = wire.FORGED if heard.forged else server.watch.exceeded or (wire.WALL if heard.ready else wire.FAULT)
            cpu = max(0.0, jobs.time_of_children() - before - sum(record.cpu for record in heard.records))
            return _with_the_end(heard, kind, 0, 0.0 if heard.forged else cpu, clock.elapsed(), files, clock.waited)
        events = dict(poll.poll(left * 1000))
        if server.sock.fileno() in events:
            os._exit(0)
        if read in events:
            data = os.read(read, 1 << 16)
            if heard.take(data):
                before_test = (_cpu(pid), clock.seen) if heard.job.in_process else ()
                clock = Clock(heard.job.wall, *before_test)
            if not data:
                poll.unregister(read)  # before its last test a process closes its end
        if server.watch.fileno() in events:
            server.watch.hear()
        if server.child_died in events:
            os.read(server.child_died, 4096)
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
    while data := os.read(read, 1 << 16):
        heard.take(data)
    left_something = kill_the_rest(pid)
    # A process that runs the tests itself may lie about each test's time, but not about the time of all.
    cpu = max(0.0, usage.ru_utime + usage.ru_stime - sum(record.cpu for record in heard.records))
    if heard.forged:
        return _with_the_end(heard, wire.FORGED, status, 0.0, 0.0, files)
    if heard.over:
        if heard.job.in_process:
            heard.records[-1] = heard.records[-1]._replace(cpu=heard.records[-1].cpu + cpu)
        return heard.records
    # It died in a test, or, if it makes a process for each, while it compiled the program.
    kind = wire.LEFTOVER if left_something else wire.ENDED
    if not heard.ready or (not heard.job.in_process and not os.WIFSIGNALED(status)):
        kind = wire.FAULT
    return _with_the_end(heard, kind, status, cpu, clock.elapsed(), files)


def _cpu(pid: int) -> float:
    """CPU seconds of a child, with its threads, by a clock that needs no /proc; see clock_getcpuclockid(3)."""
    return time.clock_gettime(~pid << 3 | 2)


def _with_the_end(
    heard: _Heard, kind: int, status: int, cpu: float, wall: float, files: list[int], waited: float = 0.0
) -> list[wire.Record]:
    """All records, and that of the test that the process died in: where all share one, with the output up to then."""
    _, results, errors = files
    if heard.progress.test == heard.job.num_tests:
        # There is no such test. An honest process says DONE after the last record, and ends; a killed one cannot.
        kind = wire.FORGED if heard.job.in_process else wire.FAULT
        return [*heard.records[:-1], heard.records[-1]._replace(kind=kind)]
    num_output = num_errors = 0
    if heard.job.in_process:
        num_output = max(0, os.fstat(results).st_size - heard.progress.num_output)
        num_errors = max(0, os.fstat(errors).st_size - heard.progress.num_errors)
    return [*heard.records, wire.Record(kind, heard.progress.test, status, cpu, wall, num_output, num_errors, waited)]


def kill(pid: int) -> None:
    """Kill a job's process, and everything that it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # not the leader of its group yet
        os.kill(pid, signal.SIGKILL)
    kill_the_rest(pid)


def kill_the_rest(group: int) -> bool:
    """Kill all children and wait for them, those that were orphaned included; whether one was still alive."""
    alive = False
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                alive = True
                os.killpg(group, signal.SIGKILL)
                os.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError):
        return alive

"""The server of native commands: it starts their runner, passes it one command at a time, and ends what outlives one.

As `server.py`, it reads nothing that a command wrote but how it ended, which the runner says.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn

from . import scratch
from .cgroup import Group
from .command import NUM_FILES, CommandMeta, Scratch, serve_commands
from .confine import Confinement, counts_processes
from .job import time_of_children
from .server import SETUP_SECONDS, Clock, kill, kill_the_rest
from .watch import UNBOUNDED, Bounds, Watch
from .wire import ENDED, FAULT, READY, RECORD, SIZE, UNCLEARED, WALL, Job, Record, receive_job, send_frame, send_job


MOST_WRITTEN = 4
"""Times the size of the scratch directory that a command may write in all, where the kernel does not limit that."""
CLEARING = 1.0
"""Seconds that a command has for the removal of its files, even if its own are over."""
MOST_OWN_CPU = 0.5
"""CPU seconds of a runner itself, which has the limit of its commands, at least one second."""


class Runner:
    """A process that runs commands with the same limits, seen from the server.

    Args:
        sock: Takes jobs, and gives the record of each.
    """

    def __init__(self, pid: int, sock: socket.socket, job: Job) -> None:
        self.pid = pid
        self.sock = sock
        self.limits = limits_of(job)
        self.own_cpu = 0.0
        self.ended = False
        self._before = time_of_children()
        self._charged = 0.0

    def suits(self, job: Job) -> bool:
        """Whether it can run this job."""
        return not self.ended and self.own_cpu < MOST_OWN_CPU and self.limits == limits_of(job)

    def charge(self, record: Record) -> Record:
        """Count the CPU time of a command that has ended by itself, and the runner's own, which the record tells."""
        self._charged += record.cpu
        self.own_cpu = record.waited
        return record._replace(waited=0.0)

    def end(self) -> float:
        """Kill it and everything that it started; the CPU seconds that no command was charged for."""
        if not self.ended:
            kill(self.pid)
            self.sock.close()
            self.ended = True
        return max(0.0, time_of_children() - self._before - self._charged - self.own_cpu)


def limits_of(job: Job) -> Job:
    """What a runner cannot change from command to command."""
    return job._replace(meta=0, wall=0.0)


@dataclass(frozen=True, slots=True)
class CommandServer:
    """What stays the same from command to command."""

    sock: socket.socket
    confinement: Confinement
    address_space: int
    watch: Watch
    group: Group | None
    place: Scratch


def serve(server: CommandServer) -> NoReturn:
    """Run commands until the trainer is gone."""
    runner: Runner | None = None
    while True:
        try:
            job, files = receive_job(server.sock, NUM_FILES)
        except EOFError:
            os._exit(0)
        if runner is not None and not runner.suits(job):
            runner.end()
            runner = None
        runner = runner or _start(server, job)
        record = _run(server, runner, job, files)
        sizes = _collect(server, job, files)
        is_clear, record = _clear(server, job, record)
        for fd in files:
            os.close(fd)
        send_frame(server.sock, RECORD.pack(*record) + b"".join(map(SIZE.pack, sizes)))
        if not is_clear:
            os._exit(0)  # no other command may see what is left; the supervisor removes it


def _start(server: CommandServer, job: Job) -> Runner:
    ours, theirs = socket.socketpair()
    if server.group is not None:
        server.group.limit(job.memory)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            serve_commands(theirs, job, server.confinement, server.group, server.address_space, server.place)
        finally:
            os._exit(1)
    theirs.close()
    return Runner(pid, ours, job)


def _run(server: CommandServer, runner: Runner, job: Job, files: list[int]) -> Record:
    """Run a command; how it ended. Everything that it started is dead then."""
    bounds = _bounds(server, job)
    if bounds != UNBOUNDED:
        server.watch.bound(bounds)
    try:
        send_job(runner.sock, job, files)
        record = _watch(server, runner, job)
    except (BrokenPipeError, ConnectionResetError):  # the runner ended before it took the job: no command's doing
        record = Record(FAULT, 0, 0, 0.0, 0.0, 0, 0)
    finally:
        if bounds != UNBOUNDED:
            server.watch.bound(UNBOUNDED)
    if record.kind != ENDED:
        runner.end()
    sizes = os.fstat(files[1]).st_size, os.fstat(files[2]).st_size
    return record._replace(num_output=sizes[0], num_errors=sizes[1])


def _bounds(server: CommandServer, job: Job) -> Bounds:
    """What the supervisor watches, since the kernel does not limit it for all processes of a command together."""
    return Bounds(
        memory=math.inf if server.group is not None else job.memory,
        processes=math.inf if counts_processes(server.confinement) else job.processes,
        written=math.inf if server.confinement.namespaces else MOST_WRITTEN * server.place.size + job.output,
    )


def _watch(server: CommandServer, runner: Runner, job: Job) -> Record:
    """Wait for a command's end, and end it when its time is over."""
    poll = select.poll()
    poll.register(server.sock, 0)  # only to hear that the trainer is gone
    poll.register(runner.sock, select.POLLIN)
    poll.register(server.watch, select.POLLIN)
    clock = Clock(SETUP_SECONDS)
    ready = False
    while True:
        left = clock.left()
        if left <= 0 and ready and clock.put_off(server.watch.waited(job.cpu)):
            continue
        if left <= 0 or server.watch.exceeded:
            cpu = runner.end()
            kind = server.watch.exceeded or (WALL if ready else FAULT)
            return Record(kind, 0, 0, cpu, clock.elapsed(), 0, 0, clock.waited)
        events = dict(poll.poll(left * 1000))
        if server.sock.fileno() in events:
            os._exit(0)
        if runner.sock.fileno() in events:
            data = runner.sock.recv(RECORD.size)
            if not data:
                return _died(runner, clock)
            record = Record._make(RECORD.unpack(data))
            if record.kind != READY:
                return runner.charge(record)
            ready, clock = True, Clock(job.wall)
        if server.watch.fileno() in events:
            server.watch.hear()


def _died(runner: Runner, clock: Clock) -> Record:
    """The runner has ended: the kernel killed it when memory ran out, which is the command's doing, or we failed."""
    _, status = os.waitpid(runner.pid, 0)
    kill_the_rest(runner.pid)
    runner.sock.close()
    runner.ended = True
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return Record(ENDED if killed else FAULT, 0, status if killed else 0, runner.end(), clock.elapsed(), 0, 0)


def _collect(server: CommandServer, job: Job, files: list[int]) -> list[int]:
    """Append the files that were asked for to the results; the size of each."""
    payload, results, *_ = files
    meta: CommandMeta = json.loads(os.pread(payload, job.meta, 0))
    return list(scratch.copy_out(server.place.fd, meta["outputs"], results, server.place.size))


def _clear(server: CommandServer, job: Job, record: Record) -> tuple[bool, Record]:
    """Clear the scratch directory in what is left of the command's time; whether it is empty, and the record then."""
    began = time.monotonic()
    left = job.wall + record.waited - record.wall
    if scratch.clear(server.place.fd, max(CLEARING, left)):
        return True, record
    kind = FAULT if record.kind == FAULT else UNCLEARED
    return False, record._replace(kind=kind, wall=record.wall + time.monotonic() - began)

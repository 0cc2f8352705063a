"""The messages between the trainer, the server and a job: fixed structs, and files as descriptors.

A job comes as a small struct with three memory files: `payload` (the program and the inputs), `results` (where
standard outputs or returned values go, one after the other) and `errors` (the
ends of the standard errors). So neither side parses what a program wrote, and the server never has it in its memory,
from which the next job is forked.
"""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple


LENGTH = struct.Struct("<I")
MAX_FRAME = 1 << 24
ERRORS_SHOWN = 4096
"""Bytes of the end of a standard error."""


READY = 0  # the job is locked in; what comes after was written by a process that hostile code may own
ENDED = 1
WALL = 2  # stopped by the clock on the wall
LEFTOVER = 3  # it ended, and something that it had started was still alive
FAULT = 4  # ours, not the program's
FORGED = 5  # the job wrote records that no honest job writes
SKIPPED = 6  # not run: an earlier test timed out, or the total is used up
DONE = 7  # the job will write no more, and end
MEMORY = 8  # its processes together held too much memory


class Record(NamedTuple):
    """How the process of one test ended. `status` is what `waitpid` gave, or an errno if `kind` is FAULT.

    `waited` are seconds, within `wall`, in which it was ready to run and others on the machine kept it from a core;
    measured only if the clock would otherwise have stopped it.
    """

    kind: int
    test: int
    status: int
    cpu: float
    wall: float
    num_output: int
    num_errors: int
    waited: float = 0.0


class Progress(NamedTuple):
    """Where a job's next process goes on: the test, the CPU time used, and the bytes in `results` and `errors`."""

    test: int = 0
    used: float = 0.0
    num_output: int = 0
    num_errors: int = 0

    def after(self, record: Record) -> Progress:
        """Behind the record's test."""
        return Progress(
            record.test + 1,
            self.used + record.cpu,
            self.num_output + record.num_output,
            self.num_errors + record.num_errors,
        )


class Job(NamedTuple):
    """What the server must know of a job; the rest is in the payload."""

    num_tests: int
    in_process: bool
    """One process for all tests, instead of a fork for each."""
    stop_at_timeout: bool
    cpu: float
    """Seconds of CPU time for a test."""
    wall: float
    """Seconds for a test by the clock on the wall, besides those in which it waited for a core."""
    total: float
    """Seconds of CPU time for all tests together."""
    memory: int
    output: int
    processes: int
    meta: int
    """Length of the JSON at the start of the payload: see `job.Meta`."""

    def time_left(self, progress: Progress) -> float:
        """The seconds of CPU time that the next test may take."""
        return min(self.cpu, self.total - progress.used)

    def timed_out(self, record: Record, before: Progress) -> bool:
        """Whether a test took too much time, by the kernel's account."""
        if record.kind == WALL or record.cpu > self.cpu:
            return True
        if record.kind not in (ENDED, LEFTOVER) or not os.WIFSIGNALED(record.status):
            return False
        # The kernel's clock for the limit ticks more coarsely than the account that it gives at the end.
        by_clock = os.WTERMSIG(record.status) == signal.SIGKILL and record.cpu >= 0.8 * self.time_left(before)
        return by_clock or os.WTERMSIG(record.status) == signal.SIGXCPU

    def stops_after(self, record: Record, before: Progress) -> bool:
        """Whether the tests after this one are not to be run."""
        timed_out = self.timed_out(record, before)
        return before.used + record.cpu >= self.total or (self.stop_at_timeout and timed_out)


JOB = struct.Struct("<I??dddQQII")
RECORD = struct.Struct("<BIiddQQd")
_NUM_FILES = 3


def send_frame(sock: socket.socket, data: bytes) -> None:
    """Send bytes with their length in front."""
    sock.sendall(LENGTH.pack(len(data)) + data)


def receive_frame(sock: socket.socket) -> bytes:
    """The next frame.

    Raises:
        EOFError: The other side is gone.
        ValueError: The frame says that it is longer than any of ours.
    """
    (length,) = LENGTH.unpack(_receive(sock, LENGTH.size))
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes; expected at most {MAX_FRAME}")
    return _receive(sock, length)


def _receive(sock: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = sock.recv(min(length, 1 << 16))
        if not part:
            raise EOFError("the other side of the sandbox's socket is gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def copy(target: int, source: int, start: int, end: int) -> int:
    """Append bytes of a file to another, as far as the source goes. Returns their number."""
    at = start
    while at < end and (sent := os.sendfile(target, source, at, end - at)):
        at += sent
    return at - start


def send_job(sock: socket.socket, job: Job, files: Sequence[int]) -> None:
    """Send a job with its files: payload, results and errors."""
    fds = array.array("i", files)
    sent = sock.sendmsg([JOB.pack(*job)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    assert sent == JOB.size


def receive_job(sock: socket.socket) -> tuple[Job, list[int]]:
    """The next job and its files, as `send_job` was given them.

    Raises:
        EOFError: The trainer is gone.
    """
    data, ancillary, _, _ = sock.recvmsg(JOB.size, socket.CMSG_SPACE(_NUM_FILES * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
    if len(data) != JOB.size or len(fds) != _NUM_FILES:
        for fd in fds:
            os.close(fd)
        raise EOFError("the trainer is gone")
    return Job._make(JOB.unpack(data)), list(fds)

"""The runner of native commands: it locks itself in once, and then starts one command after the other.

It is trusted: a command runs in a process of its own, which is not forked but spawned, so it has nothing of the
runner's memory, and no descriptor but its input and outputs. It inherits the runner's limits, user and filter.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn, TypedDict

from .cgroup import Group
from .confine import Confinement, limit_command, lock_in
from .job import close_all_but, left_something, move_up, time_of_children
from .wire import ENDED, FAULT, LEFTOVER, MEMORY, READY, RECORD, Job, Record, copy, receive_job


NOT_EXECUTED = 126
"""Exit code of a file that the kernel does not execute, as that of a shell."""
NUM_FILES = 4
"""With each command: payload, results, errors, and its standard input."""


class CommandMeta(TypedDict):
    """The JSON at the start of a payload. The files follow it, back to back."""

    path: str
    """Of the binary: absolute, or below the scratch directory."""
    argv: list[str]
    environment: dict[str, str]
    files: list[tuple[str, int]]
    """Relative names and lengths."""
    outputs: list[str]
    """Relative names of files that are read back."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch directory of a server: where it is, a descriptor of it, and the bytes that it may hold."""

    path: str
    fd: int
    size: int


def serve_commands(
    sock: socket.socket, job: Job, confinement: Confinement, group: Group | None, address_space: int, place: Scratch
) -> NoReturn:
    """Run commands with the limits of this job until the server is gone, in a process just forked."""
    sock = socket.socket(fileno=move_up(sock.fileno()))
    sock.set_inheritable(False)
    try:
        if group is not None:
            group.enter()
        os.fchdir(place.fd)  # by its path it may be unreachable for the user of commands
        close_all_but({2, sock.fileno()} | ({group.events} if group is not None else set()))
        lock_in(confinement, job, address_space, place.size)
        limit_command(job)
        error = 0
    except OSError as failed:
        error = failed.errno or -1
    while True:
        try:
            job, files = receive_job(sock, NUM_FILES)
        except EOFError:
            os._exit(0)
        record = Record(FAULT, 0, error, 0.0, 0.0, 0, 0) if error else _record(sock, job, files, group)
        for fd in files:
            os.close(fd)
        sock.send(RECORD.pack(*record))


def _record(sock: socket.socket, job: Job, files: list[int], group: Group | None) -> Record:
    """Run a command, once it is said to start; how it ended, and for `waited` our own CPU seconds so far."""
    payload, results, errors, stdin = files
    num_killed = 0 if group is None else group.num_killed()
    try:
        meta: CommandMeta = json.loads(os.pread(payload, job.meta, 0))
        _write_files(payload, job.meta, meta)
        sock.send(RECORD.pack(*_READY))
        before, began = time_of_children(), time.monotonic()
        status = _execute(meta, (stdin, results, errors))
    except OSError as error:
        return Record(FAULT, 0, error.errno or 0, 0.0, 0.0, 0, 0)
    kind = LEFTOVER if left_something() else ENDED
    if group is not None and group.num_killed() > num_killed:
        kind = MEMORY
    cpu, wall = time_of_children() - before, time.monotonic() - began
    return Record(kind, 0, status, cpu, wall, 0, 0, waited=time.process_time())


def _write_files(payload: int, offset: int, meta: CommandMeta) -> None:
    """Write the given files, all of which may be executed; only this user sees them."""
    for name, length in meta["files"]:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        offset += copy(fd, payload, offset, offset + length)
        os.close(fd)


def _execute(meta: CommandMeta, streams: tuple[int, int, int]) -> int:
    """Run the command to its end; its status as `waitpid` gives it."""
    argv = [each.encode("utf-8", "surrogatepass") for each in meta["argv"]]
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(streams)]
    try:
        pid = os.posix_spawn(
            meta["path"], argv, meta["environment"], file_actions=actions, setsigdef=_IGNORED_BY_PYTHON
        )
    except OSError as error:
        if error.errno in _NO_FAULT_OF_THE_FILE:
            raise
        os.write(streams[2], f"{meta['argv'][0]}: {error.strerror}\n".encode("utf-8", "replace"))
        return NOT_EXECUTED << 8
    return os.waitpid(pid, 0)[1]


_READY = Record(READY, 0, 0, 0.0, 0.0, 0, 0)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_NO_FAULT_OF_THE_FILE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

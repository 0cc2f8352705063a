"""A native command's process: lock itself in, write the files that were given, and execute the command.

What runs here before the command is trusted, and reads only what the trainer sent. Nothing of it is left afterwards:
to execute a command replaces the memory of its process.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import NoReturn, TypedDict

from . import scratch
from .cgroup import Group
from .confine import Confinement, limit_command, lock_in
from .job import LAST_FD, Files, move_up
from .wire import FAULT, READY, RECORD, Job, Record


NOT_EXECUTED = 126
"""Exit code of a file that the kernel does not execute, as that of a shell."""


MOST_WRITTEN = 4
"""Times the size of the scratch directory that a command may write in all, where the kernel does not limit that."""


class CommandMeta(TypedDict):
    """The JSON at the start of a payload. Standard input follows it, then the files, back to back."""

    path: str
    """Of the binary: absolute, or below the scratch directory."""
    argv: list[str]
    environment: dict[str, str]
    stdin: int
    files: list[tuple[str, int]]
    """Relative names and lengths."""
    outputs: list[str]
    """Relative names of files that are read back."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The scratch directory of a server: where it is, and a descriptor of it."""

    path: str
    fd: int
    size: int
    """Bytes of files that a command may hold."""


def run(
    job: Job, files: Files, confinement: Confinement, group: Group | None, address_space: int, place: Scratch
) -> NoReturn:
    """Execute the job's command, in a process just forked."""
    try:
        if group is not None:
            group.enter()
        files = Files(*(move_up(fd) for fd in (files.payload, files.results, files.errors, files.records)))
        meta: CommandMeta = json.loads(os.pread(files.payload, job.meta, 0))
        stdin = move_up(os.memfd_create("in"))  # the filter forbids to make one
        lock_in(confinement, job, address_space, place.size)
        os.chdir(place.path)
        _write_files(files.payload, job.meta, meta, stdin)
        for target, fd in enumerate((stdin, files.results, files.errors)):
            os.dup2(fd, target)
        _close_all_but(files.records)
        limit_command(job)
        os.write(files.records, RECORD.pack(*Record(READY, 0, 0, 0.0, 0.0, 0, 0)))
    except OSError as error:
        os.write(files.records, RECORD.pack(*Record(FAULT, 0, error.errno or 0, 0.0, 0.0, 0, 0)))
        os._exit(1)
    os.set_inheritable(files.records, False)
    _execute(meta)


def _write_files(payload: int, offset: int, meta: CommandMeta, stdin: int) -> None:
    """Write standard input and the given files, all of which may be executed; only this user sees them."""
    _copy(stdin, payload, offset, meta["stdin"])
    os.lseek(stdin, 0, os.SEEK_SET)
    offset += meta["stdin"]
    for name, length in meta["files"]:
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
        _copy(fd, payload, offset, length)
        os.close(fd)
        offset += length


def _copy(target: int, payload: int, offset: int, length: int) -> None:
    end = offset + length
    while offset < end and (sent := os.sendfile(target, payload, offset, end - offset)):
        offset += sent


def _close_all_but(records: int) -> None:
    """Close everything but the three streams and the socket for records."""
    os.closerange(3, records)
    os.closerange(records + 1, LAST_FD)


def _execute(meta: CommandMeta) -> NoReturn:
    argv = [each.encode("utf-8", "surrogatepass") for each in meta["argv"]]
    try:
        os.execve(meta["path"], argv, meta["environment"])
    except OSError as error:  # the file is the command's author's: a result, and no fault of ours
        os.write(2, f"{meta['argv'][0]}: {error.strerror}\n".encode("utf-8", "replace"))
    os._exit(NOT_EXECUTED)


def collect(job: Job, files: list[int], place: Scratch) -> list[int]:
    """Append the files that were asked for to the results, and clear the scratch directory; the size of each.

    In the server, which reads no byte of them. All processes of the command have ended.
    """
    payload, results, _ = files
    meta: CommandMeta = json.loads(os.pread(payload, job.meta, 0))
    sizes = list(scratch.copy_out(place.fd, meta["outputs"], results, place.size))
    scratch.clear(place.fd)
    return sizes

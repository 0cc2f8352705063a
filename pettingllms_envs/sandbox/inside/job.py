"""A job's process: lock itself in, compile the program, run its tests, and say how each ended.

With a fork for each test, what runs here stays trusted: the program only runs in the children, which have no
descriptor but their own input and outputs. With all tests in this process it is hostile from the first test on; the
server then believes nothing but the kernel.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import astuple, dataclass
from types import CodeType
from typing import NoReturn, TypedDict

from . import program
from .cgroup import Group
from .confine import Confinement, limit_test, lock_in, whole_seconds
from .wire import DONE, ENDED, ERRORS_SHOWN, FAULT, LEFTOVER, MEMORY, READY, RECORD, Job, Progress, Record, copy


if sys.platform != "win32":
    import fcntl
    import resource


ABOVE_STREAMS = 10
ROUNDING = 0.05  # the kernel counts whole seconds: what the process used before is not worth one of them
LAST_FD = 1 << 16


class Meta(TypedDict):
    """The JSON at the start of a payload. The prelude and the program follow it, then the inputs, back to back."""

    fn_name: str | None
    prelude: int
    program: int
    inputs: list[int]


@dataclass(frozen=True, slots=True)
class Files:
    """What a job reads from and writes to."""

    payload: int
    results: int
    errors: int
    records: int


@dataclass(frozen=True, slots=True)
class Code:
    """The program, ready to run, and where each input lies in the payload: its offset and its length."""

    code: CodeType
    prelude: CodeType
    fn_name: str | None
    inputs: tuple[tuple[int, int], ...]


Streams = tuple[int, int, int]


def run(
    job: Job, files: Files, confinement: Confinement, group: Group | None, address_space: int, progress: Progress
) -> NoReturn:
    """Run the tests from `progress.test` on, in a process just forked."""
    try:
        if group is not None:
            group.enter()
        files = Files(*map(move_up, astuple(files)))
        streams = _streams(job, files)
        events = set() if group is None else {group.events}
        close_all_but({*astuple(files), *streams, *events})
        lock_in(confinement, job, address_space, os.fstat(files.payload).st_size)
        meta: Meta = json.loads(os.pread(files.payload, job.meta, 0))
    except OSError as error:
        _record(files, Record(FAULT, progress.test, error.errno or 0, 0.0, 0.0, 0, 0))
        os._exit(1)
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    _record(files, Record(READY, progress.test, 0, 0.0, 0.0, 0, 0))
    os.lseek(files.results, progress.num_output, os.SEEK_SET)
    os.lseek(files.errors, progress.num_errors, os.SEEK_SET)
    code = _compile(files, job, meta)
    if code is None:
        _same_for_all(files, job, streams, progress)
    elif job.in_process:
        _in_process(files, job, code, streams, progress)
    else:
        _fork_each(files, job, code, streams, progress, confinement.test_filter, group)
    _record(files, Record(DONE, 0, 0, 0.0, 0.0, 0, 0))
    os._exit(0)


def _streams(job: Job, files: Files) -> Streams:
    """Standard input, output and error of the tests: memory files, made before that is forbidden."""
    stdin = move_up(os.memfd_create("in"))
    if job.in_process:
        return stdin, files.results, files.errors
    return stdin, move_up(os.memfd_create("out")), move_up(os.memfd_create("err"))


def move_up(fd: int) -> int:
    """The same file under a number that no program's stream has."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD, ABOVE_STREAMS)


def close_all_but(kept: set[int]) -> None:
    """Close all files but these and the streams, above all the server's socket, whose other end is the trainer's."""
    ordered = sorted(kept | {2})
    for low, high in zip(ordered, [*ordered[1:], LAST_FD], strict=True):
        os.closerange(low + 1, high)


def _compile(files: Files, job: Job, meta: Meta) -> Code | None:
    """Compile prelude and program; the error on standard error and None if that fails."""
    offset = job.meta + meta["prelude"] + meta["program"]
    inputs = []
    for length in meta["inputs"]:
        inputs.append((offset, length))
        offset += length
    try:
        prelude = os.pread(files.payload, meta["prelude"], job.meta).decode()
        text = os.pread(files.payload, meta["program"], job.meta + meta["prelude"]).decode("utf-8", "surrogatepass")
        text = text.removeprefix("\ufeff")  # as Python does with a file
        program.remember_source(text)
        compiled = program.compiled(text, program.NAME), program.compiled(prelude, "prelude.py")
    except BaseException as error:  # noqa: BLE001  # untrusted source may make the compiler raise anything
        program.print_error(error)
        return None
    gc.freeze()
    return Code(*compiled, meta["fn_name"], tuple(inputs))


def _same_for_all(files: Files, job: Job, streams: Streams, progress: Progress) -> None:
    """The program cannot be compiled: every test ends like that. The error stands with the first."""
    num_errors = 0
    if job.in_process:
        num_errors = os.lseek(files.errors, 0, os.SEEK_CUR) - progress.num_errors
    else:
        num_errors = _append(files.errors, streams[2], ERRORS_SHOWN)
    for index in range(progress.test, job.num_tests):
        _record(files, Record(ENDED, index, 1 << 8, 0.0, 0.0, 0, num_errors if index == progress.test else 0))


def _fork_each(
    files: Files, job: Job, code: Code, streams: Streams, progress: Progress, test_filter: bytes, group: Group | None
) -> None:
    for index in range(progress.test, job.num_tests):
        for fd in streams:
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # the test before this one may have set O_APPEND, which sendfile refuses
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        _set_input(streams[0], files.payload, *code.inputs[index])
        limit = job.time_left(progress)
        num_killed = 0 if group is None else group.num_killed()
        before, began = time_of_children(), time.monotonic()
        try:
            pid = os.fork()
        except OSError as error:
            _record(files, Record(FAULT, index, error.errno or 0, 0.0, 0.0, 0, 0))
            return
        if pid == 0:
            _test_process(job, code, streams, limit, test_filter)
        _, status = os.waitpid(pid, 0)
        alive = left_something()
        killed = group is not None and group.num_killed() > num_killed
        kind = MEMORY if killed else LEFTOVER if alive else ENDED
        num_output = _append(files.results, streams[1], job.output)
        num_errors = _append(files.errors, streams[2], ERRORS_SHOWN)
        cpu = time_of_children() - before
        record = Record(kind, index, status, cpu, time.monotonic() - began, num_output, num_errors)
        _record(files, record)
        if alive or job.stops_after(record, progress):
            return
        progress = progress.after(record)


def _test_process(job: Job, code: Code, streams: Streams, limit: float, test_filter: bytes) -> NoReturn:
    """Run one test in a process just forked, which has no other file than its own."""
    _connect(streams, code)
    os.closerange(program.RESULT_FD + (code.fn_name is not None), LAST_FD)
    limit_test(job, limit, test_filter)
    os._exit(program.finish(_run(code)))


def _run(code: Code) -> int:
    if code.fn_name is None:
        return program.stdin_test(code.code, code.prelude)
    arguments = os.pread(0, os.fstat(0).st_size, 0)
    os.ftruncate(0, 0)
    return program.call_test(code.code, code.prelude, code.fn_name, arguments.decode())


def time_of_children() -> float:
    """CPU seconds of all processes that ended below this one; also of those that a test orphaned."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def left_something() -> bool:
    """Whether a program that has ended left a living process behind. This process adopts its orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _append(target: int, source: int, most: int) -> int:
    """Append the last `most` bytes of a file to another, inside the kernel; how many that were."""
    size = os.fstat(source).st_size
    return copy(target, source, max(0, size - most), size)


def _set_input(stdin: int, payload: int, offset: int, length: int) -> None:
    os.ftruncate(stdin, 0)
    os.lseek(stdin, 0, os.SEEK_SET)
    copy(stdin, payload, offset, offset + length)
    os.lseek(stdin, 0, os.SEEK_SET)


def _in_process(files: Files, job: Job, code: Code, streams: Streams, progress: Progress) -> None:
    """One test after the other, here. The last one gets no record: how it ends, the kernel tells the server.

    So does one that started threads: they can be waited for once, at the end of a process; the server starts another.
    """
    first = progress.test
    for index in range(first, job.num_tests):
        if index > first:
            program.forget_module()
        _set_input(streams[0], files.payload, *code.inputs[index])
        _connect(streams, code)  # again each time: `open(0)` closes what it read
        limit = job.time_left(progress)
        before, began = time.process_time(), time.monotonic()
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        seconds = whole_seconds(before + limit - ROUNDING)
        resource.setrlimit(resource.RLIMIT_CPU, (min(most, seconds), most))
        if index > first:  # what the test before it left unread, or replaced, is not this one's
            program.fresh_streams()
        last = index == job.num_tests - 1
        if last:
            os.closerange(program.RESULT_FD + (code.fn_name is not None), LAST_FD)
        status = _run(code)
        if last or program.has_threads():
            os._exit(program.finish(status))
        status = program.finish(status, threads=False)
        num_output = os.fstat(files.results).st_size - progress.num_output
        num_errors = os.fstat(files.errors).st_size - progress.num_errors
        cpu, wall = time.process_time() - before, time.monotonic() - began
        record = Record(ENDED, index, status << 8, cpu, wall, num_output, num_errors)
        _record(files, record)
        if job.stops_after(record, progress):
            return
        progress = progress.after(record)


def _connect(streams: Streams, code: Code) -> None:
    """Standard input, output and error; if a function is called, the output is for what it returns alone."""
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    if code.fn_name is not None:
        os.dup2(1, program.RESULT_FD)
        os.dup2(2, 1)


def _record(files: Files, record: Record) -> None:
    os.write(files.records, RECORD.pack(*record))

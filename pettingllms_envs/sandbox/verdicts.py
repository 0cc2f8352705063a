"""Computes the verdict on a test from how its process ended, as reported by the kernel, and from its output. Pure."""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Callable

from pettingllms_envs.sandbox.inside import wire
from pettingllms_envs.sandbox.inside.wire import Job, Progress, Record
from pettingllms_envs.sandbox.values import Limits, ProgramResult, Verdict


Compare = Callable[[bytes], bool]


def judge(
    job: Job, record: Record, before: Progress, output: bytes, errors: bytes, compare: Compare | None, isolation: str
) -> ProgramResult:
    """The result of one test, with what those before it used; `compare` is None if nothing is to be compared."""
    verdict, detail = _ending(job, record, before, output, errors)
    if verdict == Verdict.FINISHED and compare is not None:
        verdict = Verdict.PASSED if compare(output) else Verdict.WRONG
    return ProgramResult(
        verdict=verdict,
        stdout=output,
        stderr=errors,
        exit_code=os.waitstatus_to_exitcode(record.status) if record.kind == wire.ENDED else None,
        cpu=record.cpu,
        wall=record.wall,
        waited=record.waited,
        detail=detail,
        isolation=isolation,
    )


def _ending(job: Job, record: Record, before: Progress, output: bytes, errors: bytes) -> tuple[Verdict, str]:
    by_kind = {
        wire.FAULT: (Verdict.SANDBOX_ERROR, f"the sandbox failed: {_fault(record.status)}"),
        wire.FORGED: (Verdict.VIOLATION, "it wrote where only the sandbox writes"),
        wire.LEFTOVER: (Verdict.VIOLATION, "it left a process behind"),
        wire.SKIPPED: (Verdict.TIMEOUT, "not run: the tests before it took too long"),
        wire.WALL: (Verdict.TIMEOUT, f"more than {job.wall:g} s by the clock on the wall"),
        wire.MEMORY: (Verdict.MEMORY, f"its processes together held more than {job.memory} bytes, or were too many"),
    }
    if record.kind in by_kind:
        return by_kind[record.kind]
    if job.timed_out(record, before):
        return Verdict.TIMEOUT, f"more than {job.time_left(before):g} s of CPU time"
    code = os.waitstatus_to_exitcode(record.status)
    if record.num_output > job.output or code == -signal.SIGXFSZ:
        return Verdict.OUTPUT_LIMIT, f"more than {job.output} bytes"
    last_line = errors.rstrip().rpartition(b"\n")[2]
    if code == -signal.SIGKILL or (code == 1 and last_line.startswith(b"MemoryError")):
        return Verdict.MEMORY, f"more than {job.memory} bytes"
    if code == -signal.SIGSYS:
        return Verdict.VIOLATION, "a call of another kernel interface"
    if code < 0:
        return Verdict.RUNTIME_ERROR, f"signal {_SIGNALS.get(-code, -code)}"
    if code:
        return Verdict.RUNTIME_ERROR, _exception(last_line) if code == 1 else f"exit code {code}"
    return Verdict.FINISHED, ""


_SIGNALS = {int(each): each.name for each in signal.Signals}  # most of the real-time ones have no name


def _fault(number: int) -> str:
    return os.strerror(number) if 0 < number < 256 else "a process of its own ended before its time"


def _exception(line: bytes) -> str:
    """The name of the exception at the end of a traceback; only built-in ones, since an untrusted program wrote it."""
    name = line.partition(b":")[0].decode("ascii", "replace")
    kind = getattr(builtins, name, None)
    known = isinstance(kind, type) and issubclass(kind, BaseException)
    return name if known else "an exception of its own"


def job_of(limits: Limits, output: int, num_tests: int, *, in_process: bool, stop_at_timeout: bool) -> Job:
    """The job of a number of tests under limits, each of which may write `output` bytes."""
    return Job(
        num_tests=num_tests,
        in_process=in_process,
        stop_at_timeout=stop_at_timeout,
        cpu=limits.cpu,
        wall=limits.wall_seconds,
        total=limits.total,
        memory=limits.memory,
        output=output,
        processes=limits.processes,
        meta=0,
    )

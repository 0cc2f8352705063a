"""One fork server, seen from the trainer's process: start it, send it a job, read the results, stop it.

Not thread-safe: the `Sandbox` lends a slot to one caller at a time.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pettingllms_envs.sandbox import imports as modules
from pettingllms_envs.sandbox.inside import wire
from pettingllms_envs.sandbox.inside.confine import Confinement
from pettingllms_envs.sandbox.inside.job import Meta
from pettingllms_envs.sandbox.inside.server import MOST_WAITED, SETUP_SECONDS
from pettingllms_envs.sandbox.inside.wire import Job, Progress, Record
from pettingllms_envs.sandbox.layers import Plan, confinement_of, module_path


if sys.platform != "win32":
    import fcntl


_BOOT = "import sys; sys.path.insert(0, {here!r}); from inside.supervisor import main; sys.path.pop(0); main(sys.argv)"
# -I but for its -E: the hash seed, without which the order of a set would change from server to server, is a variable.
_FLAGS = ("-s", "-S", "-P", "-B", "-X", "utf8", "-c")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_START_SECONDS = 60.0
_END_SECONDS = 2.0

T = TypeVar("T")


class NotStarted(Exception):
    """The server could not be started. The message names the call that failed."""


class Died(Exception):
    """The server has died, or no longer answers."""


@dataclass(frozen=True, slots=True)
class Work:
    """The program and inputs of a job, as bytes."""

    program: bytes
    prelude: bytes
    fn_name: str | None
    inputs: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Done:
    """How a test ended, what the tests before it had used, and its output."""

    record: Record
    before: Progress
    output: bytes
    errors: bytes


class Slot:
    """A fork server with its supervisor."""

    def __init__(self, plan: Plan, imports: Sequence[str], resident: str = "") -> None:
        self.plan = plan
        self._imports = tuple(imports)
        self._resident = resident
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._claim: socket.socket | None = None
        self._log = -1
        self._memory = ""

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            NotStarted: A layer of the plan does not work, or the interpreter does not start.
        """
        try:
            answer = self._start()
        except (OSError, EOFError, ValueError) as error:
            log = self.log()
            self.stop()
            raise NotStarted(f"the server did not start: {log or error}") from error
        except BaseException:  # such as a Ctrl-C: nobody would ever read the server's first answer
            self.stop()
            raise
        if "failed" in answer:
            self.stop()
            raise NotStarted(f"{answer['failed']}: {os.strerror(answer['errno'])}")
        self._memory = answer["memory"]

    def _start(self) -> dict[str, Any]:
        plan = self.plan
        if plan.uid is not None:
            self._claim, uid = claim_uid()
            plan = replace(plan, uid=uid)
        self._log = os.memfd_create("sandbox-log", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_FLAGS, _BOOT.format(here=str(Path(__file__).parent)), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=_ENVIRONMENT,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in a terminal is for the trainer
            )
        ours.settimeout(_START_SECONDS)
        wire.send_frame(ours, json.dumps(self._settings(plan)).encode())
        answer: dict[str, Any] = json.loads(wire.receive_frame(ours))
        return answer

    def _settings(self, plan: Plan) -> dict[str, Any]:
        """What the server is sent at its start, as plain values."""
        return {
            "confinement": fields_of(confinement_of(plan, self._imports)),
            "imports": [*modules.USUAL, *self._imports],
            "hoped_for": modules.ALL if plan.confinement == "no-open" else [],
            "path": module_path(self._imports),
            "memory": plan.memory,
            "resident": self._resident,
        }

    @property
    def memory(self) -> str:
        """How the memory of a program's processes is limited: `"cgroup v1"`, `"cgroup v2"` or `"polling"`."""
        return self._memory

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """The end of what the server's own processes wrote to standard error."""
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()

    def run(self, job: Job, work: Work, judge: Callable[[int, Done], T]) -> list[T]:
        """Run a job. Returns the result of `judge` for each test, given its index and how it ended.

        Only one output is in memory at a time.

        Raises:
            Died: The server and all of its processes have died; start it again.
        """
        files: list[int] = []
        try:
            records = self._run(job, work, files)
            return [judge(at, done) for at, done in enumerate(_read_outputs(job, records, files[1], files[2]))]
        finally:
            for fd in files:
                os.close(fd)

    def _run(self, job: Job, work: Work, files: list[int]) -> list[Record]:
        """The records of a job's tests; its files are added to the list as they are created."""
        answer = self._exchange(job, lambda files: _write_payload(files[0], work), files)
        return [Record._make(fields) for fields in wire.RECORD.iter_unpack(answer)]

    def _exchange(self, job: Job, write: Callable[[list[int]], int], files: list[int]) -> bytes:
        """The server's answer to a job, with a record for each test.

        `write` writes the payload to the first file, and returns the length of the header; it may add files. `files`,
        empty at first, get descriptors of the payload, the results, the errors and what was added.
        """
        assert self._socket is not None
        try:
            for name, flags in (("payload", os.MFD_ALLOW_SEALING), ("results", 0), ("errors", 0)):
                files.append(os.memfd_create(name, os.MFD_CLOEXEC | flags))
            job = job._replace(meta=write(files))
            # A program that has it open, where all tests share a process, must not change what the next one reads.
            read_only = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(files[0], fcntl.F_ADD_SEALS, read_only)
            # Every test within its wall limit, and time for the server to set up and to clear away.
            self._socket.settimeout(SETUP_SECONDS + 10.0 + job.num_tests * (job.wall + MOST_WAITED + 1.0))
            wire.send_job(self._socket, job, files)
            answer = wire.receive_frame(self._socket)
            records = wire.RECORD.iter_unpack(answer[: job.num_tests * wire.RECORD.size])
            if [Record._make(fields).test for fields in records] != list(range(job.num_tests)):
                raise ValueError("the records are not those of the tests")
            return answer
        except (OSError, EOFError, ValueError, struct.error) as error:
            log = self.log()
            self.stop()
            raise Died(log or f"{error}") from error
        except BaseException:  # a Ctrl-C, or a handler's time limit: the answer on its way is not for the next job
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and all processes below it, also if it was started only in part."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # a daemon thread may still read: closing alone would not wake it
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        if self._process is None:
            self._close()
            return
        for number in (None, signal.SIGTERM, signal.SIGKILL):  # at first it is enough that the socket is closed
            if number is not None:
                self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
                break
        self._close()

    def forget(self) -> None:
        """Forget a server that belongs to the parent of a fork."""
        if self._process is not None:
            self._process.returncode = 0  # it is not our child: nothing to wait for
        if self._socket is not None:
            self._socket.close()
        self._close()

    def _close(self) -> None:
        self._process = self._socket = None
        log, self._log = self._log, -1
        if log >= 0:
            os.close(log)
        if self._claim is not None:
            self._claim.close()
            self._claim = None


FIRST_UID, LAST_UID = 20_000, 60_000


def claim_uid() -> tuple[socket.socket, int]:
    """A user id that no other slot on this machine uses, while the socket is open.

    Slots with the same id would share its limit of processes. The name of an abstract socket can be used only once,
    and is released when its process dies, for whatever reason.
    """
    numbers = random.SystemRandom()  # other containers have their own names, so the choice must differ as well
    while True:
        uid = numbers.randrange(FIRST_UID, LAST_UID)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0pettingllms-sandbox-uid-{uid}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise
        return claim, uid


def fields_of(confinement: Confinement) -> dict[str, Any]:
    """A confinement as JSON can carry it."""
    fields = asdict(confinement)
    for name in ("job_filter", "process_filter", "test_filter"):
        fields[name] = base64.b64encode(fields[name]).decode()
    return fields


def _write_payload(fd: int, work: Work) -> int:
    """Write program and inputs. Returns the length of the header, which has the length of each piece."""
    meta = Meta(
        fn_name=work.fn_name,
        prelude=len(work.prelude),
        program=len(work.program),
        inputs=[len(each) for each in work.inputs],
    )
    head = json.dumps(meta).encode()
    with open(fd, "wb", closefd=False) as file:
        file.writelines([head, work.prelude, work.program, *work.inputs])
    return len(head)


def _read_outputs(job: Job, records: Sequence[Record], results: int, errors: int) -> Iterator[Done]:
    """Each test's part of the outputs, truncated at the limit; if all tests share a process, lengths may be false."""
    before = Progress()
    for record in records:
        sizes = os.fstat(results).st_size, os.fstat(errors).st_size
        if before.num_output + record.num_output > sizes[0] or before.num_errors + record.num_errors > sizes[1]:
            record = record._replace(kind=wire.FORGED, num_output=0, num_errors=0)
        output = os.pread(results, min(record.num_output, job.output), before.num_output)
        num_errors = min(record.num_errors, 4096)
        end = before.num_errors + record.num_errors
        yield Done(record, before, output, os.pread(errors, num_errors, end - num_errors))
        before = before.after(record)

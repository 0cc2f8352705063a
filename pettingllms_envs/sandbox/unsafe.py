"""Runs tests without a sandbox, in plain subprocesses with only time limits; only on explicit request.

A program can read and write whatever the user can, and use the network. Its verdict is still computed here, from
bytes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pettingllms_envs.sandbox.inside import wire
from pettingllms_envs.sandbox.inside.wire import Job, Progress, Record
from pettingllms_envs.sandbox.slot import Done, Work


_BOOT = (
    "import sys; sys.path.insert(0, {here!r}); from inside import program; sys.path.pop(0);"
    " sys.exit(program.unconfined(sys.argv[1:]))"
)


def run(job: Job, work: Work) -> list[Done]:
    """Run a job with no isolation; one `Done` for each test."""
    done: list[Done] = []
    progress = Progress()
    stop = False
    for index, data in enumerate(work.inputs):
        if stop:
            done.append(Done(Record(wire.SKIPPED, index, 0, 0.0, 0.0, 0, 0), progress, b"", b""))
            continue
        record, output, errors = _run(job, work, index, data)
        done.append(Done(record, progress, output, errors))
        stop = job.stops_after(record, progress)
        progress = progress.after(record)
    return done


def _run(job: Job, work: Work, index: int, data: bytes) -> tuple[Record, bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        names = ("program", "prelude", "input", "output", "errors")
        paths = {name: Path(folder, name) for name in names}
        for name, content in (("program", work.program), ("prelude", work.prelude), ("input", data)):
            paths[name].write_bytes(content)
        boot = _BOOT.format(here=str(Path(__file__).parent))
        settings = json.dumps({"fn_name": work.fn_name, "cpu": math.ceil(job.cpu), "output": job.output})
        command = [sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", boot, settings, folder]
        began = time.monotonic()
        with (
            paths["input"].open("rb") as stdin,
            paths["output"].open("wb") as stdout,
            paths["errors"].open("wb") as stderr,
        ):
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder, env={}, start_new_session=True
            )
            try:
                kind, status, cpu = _wait(process, job.wall)
            finally:  # however it ended, and if we were interrupted: it, and what it started and kept in its group
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        wall = time.monotonic() - began
        errors = paths["errors"].read_bytes()[-4096:]
        with paths["output"].open("rb") as file:
            output = file.read(job.output)
        record = Record(kind, index, status, cpu, wall, paths["output"].stat().st_size, len(errors))
        return record, output, errors


def _wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, int, float]:
    """Wait for a process, and kill it when the time is over. Returns how it ended, its status and its CPU seconds."""
    deadline = time.monotonic() + seconds
    kind = wire.ENDED
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return kind, status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline and kind == wire.ENDED:
            os.kill(process.pid, signal.SIGKILL)
            kind = wire.WALL
        time.sleep(0.002)

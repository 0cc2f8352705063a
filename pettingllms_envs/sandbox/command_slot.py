"""One server for native commands, seen from the trainer's process; see `slot.py`."""

from __future__ import annotations

import json
import os
import struct
from functools import partial
from typing import Any

from pettingllms_envs.sandbox.commands import Command, CommandRequest, CommandResult
from pettingllms_envs.sandbox.inside import wire
from pettingllms_envs.sandbox.inside.wire import Progress, Record
from pettingllms_envs.sandbox.layers import Plan, confinement_of_commands
from pettingllms_envs.sandbox.slot import Died, Done, Slot, fields_of


KEPT_ERRORS = 1 << 16
"""Bytes of the end of a command's standard error."""


class CommandSlot(Slot):
    """A server that executes one native command, or files that are given to it.

    Args:
        scratch: Bytes of files that a command may hold.
    """

    def __init__(self, plan: Plan, command: Command | None, scratch: int) -> None:
        super().__init__(plan, ())
        self._reads = () if command is None else (command.path, *command.reads)
        self.scratch = scratch

    def _settings(self, plan: Plan) -> dict[str, Any]:
        confinement = confinement_of_commands(plan, self._reads, self.scratch)
        nothing: dict[str, Any] = {"imports": [], "hoped_for": [], "path": [], "resident": ""}
        return {"confinement": fields_of(confinement), "memory": plan.memory, **nothing}

    def run_command(self, request: CommandRequest, isolation: str) -> CommandResult:
        """Run a command.

        Raises:
            Died: The server and all of its processes have died; start it again.
        """
        fds: list[int] = []
        try:
            answer = self._exchange(request.job, partial(_write_files, request=request), fds)
            _, results, errors, _ = fds
            record = Record._make(wire.RECORD.unpack_from(answer))
            if record.kind in (wire.FAULT, wire.UNCLEARED):  # its scratch directory may not be empty
                self.stop()
            sizes = [size for (size,) in wire.SIZE.iter_unpack(answer[wire.RECORD.size :])]
            offset = os.fstat(results).st_size - sum(size for size in sizes if size >= 0)
            contents = []
            for size in sizes:
                if size >= 0:
                    contents.append(_read(results, size, offset))
                    offset += size
            num_errors = min(record.num_errors, KEPT_ERRORS)
            output = _read(results, min(record.num_output, request.job.output), 0)
            done = Done(record, Progress(), output, os.pread(errors, num_errors, record.num_errors - num_errors))
            return request.result(done, sizes, contents, isolation)
        except (struct.error, ValueError) as error:
            self.stop()
            raise Died(f"the server's answer cannot be read: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)


def _read(fd: int, size: int, offset: int) -> bytes:
    """Bytes of a memory file; one call reads at most 2 GiB."""
    data = os.pread(fd, size, offset)
    while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more
    return data


def _write_files(fds: list[int], request: CommandRequest) -> int:
    """Write what `inside/command.py` reads, and a file for standard input. Returns the length of the header."""
    head = json.dumps(request.meta).encode()
    with open(fds[0], "wb", closefd=False) as file:
        file.writelines([head, *request.contents])
    fds.append(os.memfd_create("stdin", os.MFD_CLOEXEC))
    with open(fds[-1], "wb", closefd=False) as file:
        file.write(request.stdin)
    os.lseek(fds[-1], 0, os.SEEK_SET)
    return len(head)
